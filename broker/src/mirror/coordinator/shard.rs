//! PURE: the states of the mirror partitions whose key hashes to one partition of `__mirror_state`.

use std::collections::HashMap;

use bytes::Bytes;
use common::ids::*;
use common::mirror_state::MirrorState;
use thiserror::Error;

use crate::coordinator::{CoordinatorRecord, ReplayError, Replayed, Shard};
use crate::mirror::deps::StateWrite;

use super::record::{
    RecordError, StateEpoch, StateKey, StateRecord, decode_key, decode_value, encode_key, encode_value,
};

/// Why a state was not recorded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WriteRefusal {
    #[error("leader epoch {sent} is older than {recorded}")]
    FencedLeaderEpoch { sent: LeaderEpoch, recorded: LeaderEpoch },
    #[error("association {sent} is older than {recorded}")]
    FencedAssociation { sent: Association, recorded: Association },
    #[error("state epoch {} was expected, {} is recorded", .expected.0, .recorded.0)]
    FencedStateEpoch { expected: StateEpoch, recorded: StateEpoch },
    #[error("{from} does not become {to}")]
    Transition { from: MirrorState, to: MirrorState },
    #[error("the recorded state cannot be read: {0}")]
    Unreadable(String),
}

enum Entry {
    Record(StateRecord),
    /// Written by something newer. Read as neither a state nor "nothing recorded".
    Unreadable(String),
}

pub struct MirrorShard {
    states: HashMap<StateKey, Entry>,
}

impl Shard for MirrorShard {
    fn empty() -> MirrorShard {
        MirrorShard { states: HashMap::new() }
    }

    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<Replayed, ReplayError> {
        let key = match decode_key(key) {
            Ok(key) => key,
            // Of a later version, or of nobody: it says nothing about any partition that could be asked for,
            // and must not take the others' coordinator away.
            Err(error) => return Ok(Replayed::LeftOut(error.to_string())),
        };
        let named = |error: &RecordError| Replayed::LeftOut(format!("{}: {error}", key.coordinator_key()));
        match value.map(decode_value) {
            None => {
                self.states.remove(&key);
            }
            Some(Ok(record)) => {
                self.states.insert(key, Entry::Record(record));
            }
            Some(Err(error @ RecordError::UnknownVersion(_))) => {
                let left_out = named(&error);
                self.states.insert(key, Entry::Unreadable(error.to_string()));
                return Ok(left_out);
            }
            // Damaged is lost, and a lost state is rebuilt: what must never be guessed (cuts, releases, the
            // source's cuts that were checked) is in the metadata image (decisions 11, 14). The record before
            // it is no answer: its epochs would let a deposed writer in.
            Some(Err(error)) => {
                let left_out = named(&error);
                self.states.remove(&key);
                return Ok(left_out);
            }
        }
        Ok(Replayed::Taken)
    }
}

impl MirrorShard {
    /// `Ok(None)`: nothing is recorded.
    pub fn read(&self, key: &StateKey) -> Result<Option<&StateRecord>, String> {
        match self.states.get(key) {
            None => Ok(None),
            Some(Entry::Record(record)) => Ok(Some(record)),
            Some(Entry::Unreadable(why)) => Err(why.clone()),
        }
    }

    /// All that is recorded, for Describe.
    pub fn of_mirror<'a>(
        &'a self,
        mirror: &'a str,
    ) -> impl Iterator<Item = (&'a StateKey, &'a StateRecord)> + 'a {
        self.states.iter().filter_map(move |(key, entry)| match entry {
            Entry::Record(record) if &*key.mirror == mirror => Some((key, record)),
            _ => None,
        })
    }

    /// The record that makes `write` true, fenced by leader epoch, association and state epoch
    /// (decision 16): a deposed leader, a delayed task or a second writer changes nothing.
    pub fn write(&self, write: &StateWrite) -> Result<(StateEpoch, CoordinatorRecord), WriteRefusal> {
        let recorded = self.read(&write.key).map_err(WriteRefusal::Unreadable)?;
        let state_epoch = recorded.map_or(StateEpoch::NONE, |record| record.state_epoch);
        let next = &write.record;
        if let Some(record) = recorded {
            if next.leader_epoch < record.leader_epoch {
                let (sent, recorded) = (next.leader_epoch, record.leader_epoch);
                return Err(WriteRefusal::FencedLeaderEpoch { sent, recorded });
            }
            if next.association < record.association {
                let (sent, recorded) = (next.association, record.association);
                return Err(WriteRefusal::FencedAssociation { sent, recorded });
            }
        }
        if write.expected != state_epoch {
            let (expected, recorded) = (write.expected, state_epoch);
            return Err(WriteRefusal::FencedStateEpoch { expected, recorded });
        }
        let from = recorded
            .filter(|record| record.association == next.association)
            .map_or(MirrorState::Unknown, |record| record.state);
        if next.state == MirrorState::Unknown || !from.may_become(next.state) {
            return Err(WriteRefusal::Transition { from, to: next.state });
        }
        let state_epoch = state_epoch.next();
        let stored = StateRecord { state_epoch, ..next.clone() };
        let value: Bytes = encode_value(&stored);
        Ok((state_epoch, CoordinatorRecord { key: encode_key(&write.key), value: Some(value) }))
    }

    /// Tombstones for the partitions of a topic that was deleted. A topic made anew with the same id has
    /// a later association, and keeps what is recorded of it.
    pub fn forget(&self, topic_id: TopicId, up_to: Association) -> Vec<CoordinatorRecord> {
        self.states
            .iter()
            .filter(|(key, entry)| {
                key.topic_id == topic_id
                    && matches!(entry, Entry::Record(record) if record.association <= up_to)
            })
            .map(|(key, _)| CoordinatorRecord { key: encode_key(key), value: None })
            .collect()
    }

    /// Tombstones for the partitions of deleted topics, by name.
    pub fn remove_topics(&self, mirror: &str, topics: &[String]) -> Vec<CoordinatorRecord> {
        self.of_mirror(mirror)
            .filter(|(_, record)| topics.iter().any(|topic| **topic == *record.topic))
            .map(|(key, _)| CoordinatorRecord { key: encode_key(key), value: None })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StateKey {
        StateKey { mirror: "m".into(), topic_id: TopicId::ZERO, partition: 0 }
    }

    fn write(state: MirrorState, epoch: i32, association: i64, expected: i32) -> StateWrite {
        StateWrite {
            key: key(),
            record: StateRecord {
                topic: "t".into(),
                partition: 0,
                state,
                association: Association(association),
                leader_epoch: LeaderEpoch(epoch),
                state_epoch: StateEpoch(0),
                last_mirrored_offset: None,
                reason: String::new(),
                since_ms: 0,
                attempt: 0,
                next_retry_ms: -1,
                failed_state: None,
                checked_cut_id: None,
            },
            expected: StateEpoch(expected),
        }
    }

    fn apply(shard: &mut MirrorShard, write: &StateWrite) -> Result<StateEpoch, WriteRefusal> {
        let (epoch, record) = shard.write(write)?;
        shard.replay(&record.key, record.value.as_deref()).unwrap();
        Ok(epoch)
    }

    /// A shard with MIRRORING recorded under leader epoch 5, association 10, state epoch 2.
    fn mirroring() -> MirrorShard {
        let mut shard = MirrorShard::empty();
        assert_eq!(apply(&mut shard, &write(MirrorState::Preparing, 5, 10, 0)), Ok(StateEpoch(1)));
        assert_eq!(apply(&mut shard, &write(MirrorState::Mirroring, 5, 10, 1)), Ok(StateEpoch(2)));
        shard
    }

    #[test]
    fn fencing_table() {
        use MirrorState::*;
        let fenced_leader =
            |sent| Err(WriteRefusal::FencedLeaderEpoch { sent: LeaderEpoch(sent), recorded: LeaderEpoch(5) });
        let fenced_association = |sent| {
            Err(WriteRefusal::FencedAssociation { sent: Association(sent), recorded: Association(10) })
        };
        let fenced_state = |expected| {
            Err(WriteRefusal::FencedStateEpoch { expected: StateEpoch(expected), recorded: StateEpoch(2) })
        };
        let transition = |from, to| Err(WriteRefusal::Transition { from, to });
        let third = Ok(StateEpoch(3));
        // state, leader epoch, association, expected state epoch -> outcome
        let table = [
            (Stopping, 5, 10, 2, third.clone()),
            (Mirroring, 6, 10, 2, third.clone()),
            (Failed, 5, 10, 2, third.clone()),
            (Stopping, 4, 10, 2, fenced_leader(4)),
            (Stopping, 5, 9, 2, fenced_association(9)),
            (Stopping, 9, 9, 2, fenced_association(9)),
            (Stopping, 5, 10, 1, fenced_state(1)),
            (Stopping, 5, 10, 3, fenced_state(3)),
            (Stopping, 5, 10, 0, fenced_state(0)),
            (Preparing, 5, 10, 2, transition(Mirroring, Preparing)),
            (Stopped, 5, 10, 2, transition(Mirroring, Stopped)),
            (Unknown, 5, 10, 2, transition(Mirroring, Unknown)),
            // A later association begins anew, from any state.
            (Preparing, 5, 11, 2, third.clone()),
            (Stopping, 5, 11, 2, third),
            (Mirroring, 5, 11, 2, transition(Unknown, Mirroring)),
            (Stopped, 5, 11, 2, transition(Unknown, Stopped)),
        ];
        for (state, epoch, association, expected, outcome) in table {
            let mut shard = mirroring();
            let got = apply(&mut shard, &write(state, epoch, association, expected));
            assert_eq!(got, outcome, "{state} under {epoch}, association {association}, expected {expected}");
        }
    }

    /// Case 50 of N.2: a paused leader writes a state after its successor.
    #[test]
    fn case_50_a_stale_leaders_write_is_refused() {
        let mut shard = mirroring();
        assert_eq!(apply(&mut shard, &write(MirrorState::Mirroring, 6, 10, 2)), Ok(StateEpoch(3)));
        let stale = apply(&mut shard, &write(MirrorState::Failed, 5, 10, 2));
        assert!(matches!(stale, Err(WriteRefusal::FencedLeaderEpoch { .. })));
    }

    #[test]
    fn stopped_is_final_for_its_association() {
        let mut shard = mirroring();
        apply(&mut shard, &write(MirrorState::Stopping, 5, 10, 2)).unwrap();
        apply(&mut shard, &write(MirrorState::Stopped, 5, 10, 3)).unwrap();
        let restarted = apply(&mut shard, &write(MirrorState::Preparing, 5, 10, 4));
        assert!(matches!(restarted, Err(WriteRefusal::Transition { .. })));
        assert_eq!(apply(&mut shard, &write(MirrorState::Stopped, 6, 10, 4)), Ok(StateEpoch(5)));
        assert_eq!(apply(&mut shard, &write(MirrorState::Preparing, 6, 12, 5)), Ok(StateEpoch(6)));
    }

    /// M17 of the fault list: a value of a later version is neither a state nor "nothing".
    #[test]
    fn a_record_of_a_later_version_is_not_nothing() {
        let mut shard = MirrorShard::empty();
        let replayed = shard.replay(&encode_key(&key()), Some(&[0, 7])).unwrap();
        assert!(matches!(replayed, Replayed::LeftOut(_)));
        assert!(shard.read(&key()).is_err());
        let refused = apply(&mut shard, &write(MirrorState::Preparing, 5, 10, 0));
        assert!(matches!(refused, Err(WriteRefusal::Unreadable(_))));
    }

    #[test]
    fn a_damaged_key_or_an_unknown_type_is_left_out_and_told() {
        let mut shard = mirroring();
        for key in [&[0, 2, 0, 9][..], &[0, 99, 1, 2, 3], &[]] {
            assert!(matches!(shard.replay(key, Some(&[1])), Ok(Replayed::LeftOut(_))), "{key:?}");
        }
        assert!(shard.read(&key()).unwrap().is_some());
    }

    /// A damaged value is a lost state, told by name: what it was before it is not what it is now, and a
    /// new one can be recorded.
    #[test]
    fn a_damaged_value_is_a_lost_state() {
        let mut shard = mirroring();
        let Ok(Replayed::LeftOut(why)) = shard.replay(&encode_key(&key()), Some(&[0, 0, 9])) else {
            panic!("taken")
        };
        assert!(why.starts_with(&key().coordinator_key()), "{why}");
        assert_eq!(shard.read(&key()), Ok(None));
        assert_eq!(apply(&mut shard, &write(MirrorState::Preparing, 5, 10, 0)), Ok(StateEpoch(1)));
    }

    #[test]
    fn a_deleted_topic_is_forgotten_and_a_later_association_is_not() {
        let shard = mirroring();
        assert_eq!(shard.forget(TopicId::ZERO, Association(9)), []);
        assert_eq!(shard.forget(TopicId::ZERO, Association(10)).len(), 1);
    }

    #[test]
    fn deleted_topics_leave_tombstones() {
        let mut shard = mirroring();
        let records = shard.remove_topics("m", &["t".to_owned()]);
        assert_eq!(records.len(), 1);
        for record in records {
            shard.replay(&record.key, record.value.as_deref()).unwrap();
        }
        assert_eq!(shard.read(&key()), Ok(None));
    }
}
