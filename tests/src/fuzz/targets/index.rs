//! The indexes of a segment, taken as they are: an offset index, a time index and a transaction index beside a sound
//! segment file. Looked up, they may lead nowhere, but never astray.
//!
//! An input is the number of offset entries, of time entries, two numbers to look for, and the three files.

use broker::log::LogError;
use broker::log::proof::IndexedSegment;

use super::batch_samples::{NOW_MS, copied};
use crate::fuzz::scratch::Scratch;
use crate::fuzz::{Target, Trail, bound};

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;
const BASE: &str = "00000000000000000000";

pub struct Indexes {
    scratch: Scratch,
    /// First and last offset of each batch in the segment.
    batches: Vec<(i64, i64)>,
}

impl Indexes {
    pub fn new() -> Indexes {
        let scratch = Scratch::new();
        let samples = copied();
        let segment = samples.first().map_or(&[][..], Vec::as_slice);
        scratch.write(&format!("{BASE}.log"), segment);
        let batches = protocol::record_batch::batches(segment).flatten();
        let batches = batches.map(|batch| (batch.header.base_offset, batch.header.last_offset())).collect();
        Indexes { scratch, batches }
    }

    fn look_up(&self, offset: i64, timestamp_ms: i64, trail: &mut Trail) -> Result<(), LogError> {
        let mut segment = IndexedSegment::open(self.scratch.path(), 0)?;
        trail.note(i32::from(segment.needs_rebuild));
        // A segment whose indexes need to be built anew is never asked.
        if segment.needs_rebuild {
            return Ok(());
        }
        if let Some(found) = trail.result(segment.holding(offset)).flatten() {
            assert!(self.batches.contains(&found), "no such batch: {found:?}");
            assert!(found.1 >= offset, "batch {found:?} does not reach {offset}");
        }
        trail.result(segment.end_of_read(offset, 150));
        trail.result(segment.position_by_time(timestamp_ms));
        trail.result(segment.aborted());
        if trail.result(segment.resume()).is_some() {
            trail.accept();
        }
        Ok(())
    }
}

fn input_of(
    offsets: &[(u32, u32)],
    times: &[(i64, u32)],
    aborted: &[[i64; 4]],
    looked_for: [i64; 2],
) -> Vec<u8> {
    let mut input = vec![offsets.len() as u8, times.len() as u8];
    input.extend(looked_for.into_iter().flat_map(i64::to_be_bytes));
    for (relative_offset, position) in offsets {
        input.extend(relative_offset.to_be_bytes());
        input.extend(position.to_be_bytes());
    }
    for (timestamp_ms, relative_offset) in times {
        input.extend(timestamp_ms.to_be_bytes());
        input.extend(relative_offset.to_be_bytes());
    }
    for fields in aborted {
        input.extend([0, 0]);
        input.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
    }
    input
}

fn split_entries(bytes: &[u8], entries: u8, entry_bytes: usize) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(usize::from(entries) * entry_bytes))
}

impl Target for Indexes {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let times = [(NOW_MS, 0), (NOW_MS + 2, 2), (NOW_MS + 3, 8)];
        let aborted = [[7, 0, 3, 4], [8, 4, 6, 9]];
        (-1..11)
            .flat_map(|offset| {
                [
                    input_of(&[(3, 350), (5, 500)], &times, &aborted, [offset, NOW_MS + offset]),
                    input_of(&[], &times, &[], [offset, NOW_MS]),
                ]
            })
            .collect()
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(128 << 10, 16, input)
    }

    fn longest_input_bytes(&self) -> usize {
        400
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((&[offset_entries, time_entries], rest)) = input.split_first_chunk::<2>() else {
            return trail;
        };
        let Some((offset, rest)) = rest.split_first_chunk::<8>() else { return trail };
        let Some((timestamp_ms, rest)) = rest.split_first_chunk::<8>() else { return trail };
        let (offsets, rest) = split_entries(rest, offset_entries, OFFSET_ENTRY_BYTES);
        let (times, aborted) = split_entries(rest, time_entries, TIME_ENTRY_BYTES);
        self.scratch.write(&format!("{BASE}.index"), offsets);
        self.scratch.write(&format!("{BASE}.timeindex"), times);
        self.scratch.write(&format!("{BASE}.txnindex"), aborted);
        trail.size(offsets.len());
        trail.size(times.len());
        let found = self.look_up(i64::from_be_bytes(*offset), i64::from_be_bytes(*timestamp_ms), &mut trail);
        trail.result(found);
        trail
    }
}
