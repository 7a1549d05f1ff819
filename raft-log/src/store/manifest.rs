//! What the store should hold, so that a store that lost something is noticed.
//!
//! sled takes a part of its file that does not match its checksum for the torn end of a crash, and goes
//! on with what came before. So an old flaw of the disk could take acknowledged entries, or the vote,
//! without a word. Against that each batch carries a manifest of all marks and of the log's bounds, with
//! a number that rises; and the number of the last batch that was made durable stands in a small file of
//! its own. What is loaded must be what the manifest says, and not be older than that file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::store::database::Database;
use crate::store::keys::crc;
use crate::store::{damaged, keys};

pub const MANIFEST: &[u8] = b"mmanifest";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of the batch that it came with.
    pub number: u64,
    /// Of each mark, the CRC of its sealed value.
    pub marks: BTreeMap<Vec<u8>, u32>,
    /// First index of the log.
    pub first_index: u64,
    /// First index after it.
    pub end_index: u64,
}

impl Manifest {
    pub fn put(&mut self, name: &[u8], sealed: &[u8]) {
        self.marks.insert(name.to_vec(), crc(&[sealed]));
    }

    pub fn appended(&mut self, first_index: u64, end_index: u64) {
        if self.end_index == 0 && self.first_index == 0 {
            self.first_index = first_index;
        }
        self.end_index = end_index;
    }

    pub fn truncated(&mut self, from: u64) {
        self.end_index = self.end_index.min(from);
        if self.end_index <= self.first_index && !self.marks.contains_key(keys::PURGED) {
            // An empty log that never was purged begins where its next entry says.
            (self.first_index, self.end_index) = (0, 0);
        }
    }

    pub fn purged(&mut self, below: u64) {
        self.first_index = self.first_index.max(below);
        self.end_index = self.end_index.max(below);
    }

    /// Reads it, and compares the marks that are there.
    pub fn load(database: &dyn Database) -> io::Result<Manifest> {
        let Some(sealed) = database.get(MANIFEST)? else {
            return Err(damaged("it has lost its manifest"));
        };
        let manifest: Manifest = keys::unseal(MANIFEST, &sealed)?;
        let mut found = BTreeMap::new();
        database.scan(keys::MARKS, &keys::marks_end(), &mut |name, sealed| {
            if name != MANIFEST {
                found.insert(name.to_vec(), crc(&[sealed]));
            }
            Ok(true)
        })?;
        if found != manifest.marks {
            return Err(damaged("its marks are not those that were written last"));
        }
        Ok(manifest)
    }

    /// The log that was loaded.
    pub fn check_log(&self, first_index: u64, end_index: u64) -> io::Result<()> {
        if (first_index, end_index) == (self.first_index, self.end_index) {
            return Ok(());
        }
        Err(damaged(format!(
            "its log is {first_index}..{end_index}, and was {}..{}",
            self.first_index, self.end_index
        )))
    }
}

const SLOT_BYTES: usize = 16;
const SLOTS: usize = 2;

/// The file with the number of the last durable batch: two slots in turn, each with its CRC, so that one
/// that is being written leaves the other.
pub struct Watermark {
    file: File,
}

impl Watermark {
    pub fn open(path: &Path) -> io::Result<Watermark> {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        Ok(Watermark { file })
    }

    /// `None`: nothing was ever written. An error: neither slot can be read.
    pub fn read(&self) -> io::Result<Option<u64>> {
        let length = self.file.metadata()?.len();
        if length == 0 {
            return Ok(None);
        }
        let mut newest = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; SLOT_BYTES];
            if self.file.read_exact_at(&mut bytes, (slot * SLOT_BYTES) as u64).is_ok() {
                newest = newest.max(parse(&bytes));
            }
        }
        newest.map(Some).ok_or_else(|| damaged("the number of its last batch is not readable"))
    }

    /// Not synced: it guards against what the disk does to old data, and a crash of the machine may only
    /// leave it behind, which weakens the guard and refuses nobody.
    pub fn write(&self, number: u64) -> io::Result<()> {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..12].copy_from_slice(&crc(&[&number.to_be_bytes()]).to_be_bytes());
        self.file.write_all_at(&bytes, (number % SLOTS as u64) * SLOT_BYTES as u64)
    }
}

fn parse(bytes: &[u8; SLOT_BYTES]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let expected = rest.first_chunk::<4>()?;
    (crc(&[number]) == u32::from_be_bytes(*expected)).then(|| u64::from_be_bytes(*number))
}
