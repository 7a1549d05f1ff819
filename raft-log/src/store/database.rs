//! What the store needs of a database: sled in the product, memory with a power switch in the simulation.

use std::io;

use crate::store::keys::EntryKey;

/// Shown a pair of a scan; it goes on while the answer is true.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> io::Result<bool> + 'a;

pub trait Database: Send + Sync {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// The pairs in `start..end`, in order.
    fn scan(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> io::Result<()>;

    /// All of a batch or nothing of it is there after a crash, and no batch without those before it.
    fn apply(&self, batch: Batch) -> io::Result<()>;

    /// The one thing that makes durable what was applied, up to the batch with this number.
    fn sync(&self, number: u64) -> io::Result<()>;

    /// The newest number that `sync` noted, as far as that is known.
    fn durable_number(&self) -> io::Result<Option<u64>>;
}

/// Only marks and entries are ever written, so no key needs memory of its own.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    Mark(&'static [u8]),
    Entry(EntryKey),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Key::Mark(name) => name,
            Key::Entry(key) => key,
        }
    }
}

/// Writes in order; `None` removes.
#[derive(Debug, Default)]
pub struct Batch {
    pub writes: Vec<(Key, Option<Vec<u8>>)>,
}

impl Batch {
    pub fn put(&mut self, name: &'static [u8], value: Vec<u8>) {
        self.writes.push((Key::Mark(name), Some(value)));
    }

    pub fn put_entry(&mut self, key: EntryKey, value: Vec<u8>) {
        self.writes.push((Key::Entry(key), Some(value)));
    }

    pub fn remove_entry(&mut self, key: EntryKey) {
        self.writes.push((Key::Entry(key), None));
    }
}
