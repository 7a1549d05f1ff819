//! PURE. Fetch sessions of the leader's side (KIP-227): ids, epochs, and who has to go when the cache
//! is full.

use std::collections::HashMap;

/// Sessions that fetch for followers are kept before those of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Follower,
    Consumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    pub max_sessions: usize,
    /// Over all sessions: what bounds the memory.
    pub max_partitions: usize,
    /// A session used within this time is not evicted for one of equal rank.
    pub eviction_ms: u64,
}

#[derive(Debug)]
struct Entry<T> {
    owner: Owner,
    partitions: usize,
    last_used_ms: u64,
    session: T,
}

#[derive(Debug)]
pub struct SessionCache<T> {
    limits: SessionLimits,
    sessions: HashMap<i32, Entry<T>>,
    partitions: usize,
}

impl<T> SessionCache<T> {
    pub fn new(limits: SessionLimits) -> SessionCache<T> {
        SessionCache { limits, sessions: HashMap::new(), partitions: 0 }
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The session, marked as used.
    pub fn get(&mut self, id: i32, now_ms: u64) -> Option<&T> {
        let entry = self.sessions.get_mut(&id)?;
        entry.last_used_ms = now_ms;
        Some(&entry.session)
    }

    pub fn remove(&mut self, id: i32) -> Option<T> {
        let entry = self.sessions.remove(&id)?;
        self.partitions -= entry.partitions;
        Some(entry.session)
    }

    /// A session grew or shrank; false where it got too large and should be ended.
    pub fn resize(&mut self, id: i32, partitions: usize) -> bool {
        let Some(entry) = self.sessions.get_mut(&id) else { return false };
        self.partitions = self.partitions - entry.partitions + partitions;
        entry.partitions = partitions;
        self.partitions <= self.limits.max_partitions
    }

    /// Makes room for a session of this size by evicting others; false: there is none, and the request
    /// goes without a session.
    pub fn make_room(&mut self, owner: Owner, partitions: usize, now_ms: u64) -> bool {
        if partitions > self.limits.max_partitions || self.limits.max_sessions == 0 {
            return false;
        }
        while self.sessions.len() >= self.limits.max_sessions
            || self.partitions + partitions > self.limits.max_partitions
        {
            let Some(id) = self.candidate(owner, now_ms) else { return false };
            self.remove(id);
        }
        true
    }

    /// Adds a session under a free id taken from `random`, ids being positive.
    pub fn insert(
        &mut self,
        owner: Owner,
        partitions: usize,
        now_ms: u64,
        mut random: impl FnMut() -> u32,
        session: T,
    ) -> Option<i32> {
        if self.sessions.len() >= self.limits.max_sessions
            || self.partitions + partitions > self.limits.max_partitions
        {
            return None;
        }
        let id = loop {
            let id = (random() & 0x7fff_ffff) as i32;
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        self.partitions += partitions;
        self.sessions.insert(id, Entry { owner, partitions, last_used_ms: now_ms, session });
        Some(id)
    }

    fn candidate(&self, owner: Owner, now_ms: u64) -> Option<i32> {
        let may_go = |entry: &Entry<T>| {
            let is_stale = now_ms.saturating_sub(entry.last_used_ms) > self.limits.eviction_ms;
            is_stale || (owner == Owner::Follower && entry.owner == Owner::Consumer)
        };
        let candidates = self.sessions.iter().filter(|(_, entry)| may_go(entry));
        let ranked =
            candidates.min_by_key(|(id, entry)| (entry.owner == Owner::Follower, entry.last_used_ms, **id));
        ranked.map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> SessionCache<&'static str> {
        SessionCache::new(SessionLimits { max_sessions: 2, max_partitions: 10, eviction_ms: 100 })
    }

    fn add(
        cache: &mut SessionCache<&'static str>,
        owner: Owner,
        size: usize,
        now: u64,
        id: u32,
    ) -> Option<i32> {
        if !cache.make_room(owner, size, now) {
            return None;
        }
        let mut ids = vec![id + 1, 0, id];
        cache.insert(owner, size, now, || ids.pop().unwrap_or(id + 2), "session")
    }

    #[test]
    fn a_full_cache_evicts_the_stale_and_prefers_followers() {
        let mut cache = cache();
        assert_eq!(add(&mut cache, Owner::Consumer, 1, 0, 10), Some(10));
        assert_eq!(add(&mut cache, Owner::Consumer, 1, 50, 20), Some(20));
        // Both were used recently.
        assert_eq!(add(&mut cache, Owner::Consumer, 1, 90, 30), None);
        // The older one is stale now.
        assert_eq!(add(&mut cache, Owner::Consumer, 1, 101, 40), Some(40));
        assert!(cache.get(10, 101).is_none());
        // A follower may push out a consumer at any time, a consumer never a follower.
        assert_eq!(add(&mut cache, Owner::Follower, 1, 101, 50), Some(50));
        assert_eq!(add(&mut cache, Owner::Follower, 1, 101, 60), Some(60));
        assert_eq!(add(&mut cache, Owner::Follower, 1, 101, 70), None);
        assert_eq!(add(&mut cache, Owner::Consumer, 1, 150, 80), None);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn partitions_are_counted_over_all_sessions() {
        let mut cache = cache();
        assert_eq!(add(&mut cache, Owner::Consumer, 11, 0, 10), None);
        assert_eq!(add(&mut cache, Owner::Consumer, 6, 0, 10), Some(10));
        assert_eq!(add(&mut cache, Owner::Consumer, 5, 0, 20), None);
        assert!(cache.resize(10, 5));
        assert_eq!(add(&mut cache, Owner::Consumer, 5, 0, 20), Some(20));
        assert!(!cache.resize(20, 6));
        assert_eq!(cache.remove(20), Some("session"));
        assert!(cache.resize(10, 10));
        assert!(!cache.resize(77, 1));
    }

    #[test]
    fn ids_are_positive_and_not_taken_twice() {
        let mut cache = cache();
        assert_eq!(add(&mut cache, Owner::Consumer, 1, 0, 10), Some(10));
        let mut ids = vec![33_u32, 10, 0x8000_0000];
        assert_eq!(cache.insert(Owner::Consumer, 1, 0, || ids.pop().unwrap_or(1), "b"), Some(33));
    }
}
