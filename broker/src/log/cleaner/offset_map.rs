//! PURE. For each key of the dirty part of a log the offset of its newest record, in memory that is
//! bounded: a table of 24-byte slots. What does not fit is left to the next pass.

use std::hash::{BuildHasher, RandomState};

/// Two words of hash and the offset plus one; zero is an empty slot, so that a fresh table costs only
/// the pages that are written.
type Slot = [u64; 3];
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();
/// A table is never smaller: each pass must get on by at least this many keys.
const MIN_SLOTS: usize = 64;

/// Keys are told apart by 128 bits of a keyed hash. Kafka takes MD5; with a secret key a producer
/// cannot make two keys that count as one.
pub(crate) struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    limit: usize,
    hashers: [RandomState; 2],
    latest: i64,
}

impl OffsetMap {
    /// Takes at most `memory_bytes`, and no more than `keys` keys need. `load_factor` of the slots are
    /// filled at most.
    pub fn new(memory_bytes: usize, load_factor: f64, keys: u64) -> OffsetMap {
        let load_factor = load_factor.clamp(0.1, 0.95);
        let wanted = (keys as f64 / load_factor).ceil() as usize + 1;
        let count = (memory_bytes / SLOT_BYTES).min(wanted).max(MIN_SLOTS);
        OffsetMap {
            slots: vec![[0; 3]; count],
            used: 0,
            limit: (count as f64 * load_factor) as usize,
            hashers: [RandomState::new(), RandomState::new()],
            latest: -1,
        }
    }

    /// The last offset whose record has been taken into account.
    pub fn latest_offset(&self) -> i64 {
        self.latest
    }

    pub fn note_latest(&mut self, offset: i64) {
        self.latest = self.latest.max(offset);
    }

    /// False: the map is full and nothing changed.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        if self.used >= self.limit {
            return false;
        }
        let (index, hash) = self.find(key);
        let slot = &mut self.slots[index];
        if slot[2] == 0 {
            self.used += 1;
        }
        *slot = [hash[0], hash[1], offset as u64 + 1];
        self.latest = offset;
        true
    }

    pub fn get(&self, key: &[u8]) -> Option<i64> {
        let (index, _) = self.find(key);
        self.slots[index][2].checked_sub(1).map(|offset| offset as i64)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.used
    }

    /// The slot of the key, or the empty one where it would go. There is always one: `limit` is below
    /// the number of slots.
    fn find(&self, key: &[u8]) -> (usize, [u64; 2]) {
        let hash = [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)];
        let mut index = (hash[0] % self.slots.len() as u64) as usize;
        loop {
            let slot = &self.slots[index];
            if slot[2] == 0 || (slot[0] == hash[0] && slot[1] == hash[1]) {
                return (index, hash);
            }
            index += 1;
            if index == self.slots.len() {
                index = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_hash_map_until_it_is_full() {
        let mut map = OffsetMap::new(SLOT_BYTES * 1000, 0.9, u64::MAX >> 12);
        let mut plain = std::collections::HashMap::new();
        let mut full_at = None;
        for offset in 0..5000_i64 {
            let key = (offset * offset % 1201).to_string();
            if !map.put(key.as_bytes(), offset) {
                full_at = Some(offset);
                break;
            }
            plain.insert(key, offset);
        }
        assert_eq!(map.len(), plain.len());
        for (key, offset) in &plain {
            assert_eq!(map.get(key.as_bytes()), Some(*offset), "{key}");
        }
        assert_eq!(map.get(b"no such key"), None);
        assert_eq!(map.latest_offset(), full_at.unwrap_or(5000) - 1);
    }

    #[test]
    fn it_stops_at_its_load_factor() {
        let mut map = OffsetMap::new(0, 0.5, 10);
        let fitted = (0..1000_i64).take_while(|key| map.put(&key.to_be_bytes(), *key)).count();
        assert_eq!(fitted, MIN_SLOTS / 2);
        assert!(!map.put(&0_i64.to_be_bytes(), 77), "full is full");
        assert_eq!((map.get(&0_i64.to_be_bytes()), map.latest_offset()), (Some(0), 31));
        map.note_latest(40);
        map.note_latest(35);
        assert_eq!(map.latest_offset(), 40);
    }
}
