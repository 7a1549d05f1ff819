//! The files of one partition's directory as one input: how it was stopped, then each file with its length.

use protocol::record_batch::{BatchHeader, HEADER_BYTES};

use super::batch_samples::{copied, seal};

/// Files that an input may hold, by number.
pub const NAMES: [&str; 15] = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000009.log",
    "00000000000000000009.index",
    "00000000000000000009.timeindex",
    "00000000000000000009.txnindex",
    "00000000000000000009.snapshot",
    "00000000000000000004.snapshot",
    "leader-epoch-checkpoint",
    "compacted-end-checkpoint",
    "00000000000000000000.log.swap",
    "09223372036854775807.log",
    "00000000000000000000.log.cleaned",
];

/// Flags, recovery point, log start.
const HEAD_BYTES: usize = 5;
pub const CLEAN_SHUTDOWN: u8 = 1;
pub const COMPACT: u8 = 2;
/// Of a file: its number, its length.
const FILE_HEAD_BYTES: usize = 3;

#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    pub flags: u8,
    pub recovery_point: u16,
    pub log_start: u16,
}

/// Name and content.
pub type NamedFile<'a> = (&'static str, &'a [u8]);

/// What an input holds; files whose bytes are not all there end early.
pub fn parse(input: &[u8]) -> Option<(Head, Vec<NamedFile<'_>>)> {
    let (&[flags, high, low, start_high, start_low], mut rest) = input.split_first_chunk::<HEAD_BYTES>()?;
    let head = Head {
        flags,
        recovery_point: u16::from_be_bytes([high, low]),
        log_start: u16::from_be_bytes([start_high, start_low]),
    };
    let mut files = Vec::new();
    while let Some((&[number, high, low], after)) = rest.split_first_chunk::<FILE_HEAD_BYTES>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (content, after) = after.split_at(length);
        files.push((NAMES[usize::from(number) % NAMES.len()], content));
        rest = after;
    }
    Some((head, files))
}

pub fn write(head: Head, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut input = vec![head.flags];
    input.extend(head.recovery_point.to_be_bytes());
    input.extend(head.log_start.to_be_bytes());
    for (name, content) in files {
        let number = NAMES.iter().position(|known| known == name).unwrap_or_default();
        input.push(number as u8);
        input.extend((content.len() as u16).to_be_bytes());
        input.extend_from_slice(content);
    }
    input
}

/// The input with sound checksums in its segments and its producer snapshots.
pub fn sealed(input: &[u8]) -> Option<Vec<u8>> {
    let (head, files) = parse(input)?;
    let files: Vec<(&str, Vec<u8>)> = files
        .into_iter()
        .map(|(name, content)| {
            let mut content = content.to_vec();
            if name.contains(".log") {
                seal_batches(&mut content);
            } else if name.ends_with(".snapshot") && content.len() >= 6 {
                let crc = crc_fast::crc32_iscsi(&content[6..]);
                content[2..6].copy_from_slice(&crc.to_be_bytes());
            }
            (name, content)
        })
        .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (*name, &content[..])).collect();
    Some(write(head, &files))
}

fn seal_batches(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= HEADER_BYTES {
        let length =
            BatchHeader::parse(rest).map_or(rest.len(), |header| header.size_bytes()).min(rest.len());
        let (batch, after) = rest.split_at_mut(length);
        seal(batch);
        rest = after;
    }
}

/// Logs as brokers leave them, stopped in order and not.
pub fn samples() -> Vec<Vec<u8>> {
    let runs = copied();
    let offset_index: &[u8] = &[0, 0, 0, 3, 0, 0, 1, 0x40];
    let time_index = [&super::batch_samples::NOW_MS.to_be_bytes()[..], &[0, 0, 0, 2]].concat();
    let epochs: &[u8] = b"0\n2\n0 0\n1 4\n";
    let mut transaction_index = vec![0, 0];
    for field in [8_i64, 2, 5, 6] {
        transaction_index.extend(field.to_be_bytes());
    }
    // A producer with an open transaction.
    let mut snapshot = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    snapshot.extend(7_i64.to_be_bytes());
    snapshot.extend([0, 0, 0, 0, 0, 1]);
    snapshot.extend(3_i64.to_be_bytes());
    snapshot.extend(1_i32.to_be_bytes());
    snapshot.extend(super::batch_samples::NOW_MS.to_be_bytes());
    snapshot.extend([0, 0, 0, 1]);
    snapshot.extend(2_i64.to_be_bytes());
    let mut seeds = Vec::new();
    for run in &runs {
        for (flags, recovery_point) in [(0, 0), (CLEAN_SHUTDOWN, 9), (0, 3), (CLEAN_SHUTDOWN | COMPACT, 0)] {
            let head = Head { flags, recovery_point, log_start: 0 };
            seeds.push(write(
                head,
                &[
                    (NAMES[0], &run[..]),
                    (NAMES[1], offset_index),
                    (NAMES[2], &time_index),
                    (NAMES[3], &transaction_index),
                    (NAMES[10], epochs),
                ],
            ));
            seeds.push(write(head, &[(NAMES[0], &run[..])]));
        }
    }
    if let Some(run) = runs.first() {
        let second = protocol::record_batch::BatchBuilder::new()
            .base_offset(9)
            .leader_epoch(4)
            .producer(7, 0, 4)
            .transactional()
            .record(1, Some(b"key"), Some(b"value"))
            .build();
        for flags in [0, CLEAN_SHUTDOWN, COMPACT] {
            let head = Head { flags, recovery_point: 9, log_start: 2 };
            seeds.push(write(
                head,
                &[
                    (NAMES[0], &run[..]),
                    (NAMES[1], &[]),
                    (NAMES[2], &time_index),
                    (NAMES[4], &second),
                    (NAMES[5], &[]),
                    (NAMES[6], &time_index),
                    (NAMES[8], &snapshot),
                    (NAMES[10], epochs),
                    (NAMES[11], b"0\n1\n4\n"),
                ],
            ));
            seeds.push(write(head, &[(NAMES[0], &run[..]), (NAMES[12], &run[..]), (NAMES[4], &second)]));
            seeds.push(write(head, &[(NAMES[13], &second[..])]));
        }
    }
    seeds.iter().filter_map(|seed| sealed(seed)).collect()
}
