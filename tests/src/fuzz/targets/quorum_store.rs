//! What a voter keeps (marks, entries, snapshot files) and what other voters send it.
//!
//! An input is one byte that chooses what it is read as, then the bytes.

use std::fs::File;

use raft_log::proof::decoding::{Kind, read_snapshot, samples};

use crate::fuzz::scratch::Scratch;
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

/// Behind the kinds of `raft_log`.
const SNAPSHOT_FILE: usize = Kind::ALL.len();
const CHOICES: usize = SNAPSHOT_FILE + 1;
/// Of a snapshot file: magic, length of the meta, length of the data, checksum.
const SNAPSHOT_HEADER_BYTES: usize = 24;

pub struct QuorumStore {
    scratch: Scratch,
}

impl QuorumStore {
    pub fn new() -> QuorumStore {
        QuorumStore { scratch: Scratch::new() }
    }
}

fn kind_of(selector: u8) -> Option<Kind> {
    Kind::ALL.get(usize::from(selector) % CHOICES).copied()
}

fn snapshot_file(meta: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = b"KAGAMIS1".to_vec();
    file.extend((meta.len() as u32).to_be_bytes());
    file.extend((data.len() as u64).to_be_bytes());
    file.extend(crc_fast::crc32_iscsi(&[meta, data].concat()).to_be_bytes());
    file.extend_from_slice(meta);
    file.extend_from_slice(data);
    file
}

impl Target for QuorumStore {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let selector =
            |kind: Kind| Kind::ALL.iter().position(|known| *known == kind).unwrap_or_default() as u8;
        let mut seeds: Vec<Vec<u8>> =
            samples().into_iter().map(|(kind, bytes)| [&[selector(kind)], &bytes[..]].concat()).collect();
        // No last entry, no membership, no name.
        seeds.push([&[SNAPSHOT_FILE as u8], &snapshot_file(&[0, 0, 0, 0, 0], b"state")[..]].concat());
        seeds
    }

    fn repair(&self, input: &mut Vec<u8>, random: &mut Random) {
        if random.chance(60) {
            return;
        }
        let Some((&mut selector, bytes)) = input.split_first_mut() else { return };
        match kind_of(selector) {
            Some(kind) => kind.reseal(bytes),
            None if bytes.len() > SNAPSHOT_HEADER_BYTES && random.chance(800) => {
                let rest = &bytes[SNAPSHOT_HEADER_BYTES..];
                let meta_bytes = usize::from(bytes[11]).min(rest.len());
                let file = snapshot_file(&rest[..meta_bytes], &rest[meta_bytes..]);
                bytes.copy_from_slice(&file);
            }
            None => {}
        }
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        // A count of a list makes room for a mebibyte of values at most, and lists of lists have two of them.
        bound(2 << 20, 64, input)
    }

    fn longest_input_bytes(&self) -> usize {
        500
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((&selector, bytes)) = input.split_first() else { return trail };
        trail.note(selector % CHOICES as u8);
        let read = match kind_of(selector) {
            Some(kind) => trail.result(kind.read(bytes)),
            None => {
                let path = self.scratch.write("snapshot", bytes);
                let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                trail.result(read_snapshot(&file)).map(|length| trail.size(length))
            }
        };
        if read.is_some() {
            trail.accept();
            trail.size(bytes.len());
        }
        trail
    }
}
