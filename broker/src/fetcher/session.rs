//! PURE. The follower's side of a fetch session (KIP-227): only what changed since the last request is
//! sent, so a request costs what moves, not what is hosted.

use std::collections::{BTreeMap, BTreeSet};

use common::ids::*;
use protocol::ErrorCode;

/// What is asked of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionRequest {
    pub fetch_offset: Offset,
    pub log_start_offset: Offset,
    pub leader_epoch: LeaderEpoch,
    /// `None`: the log is empty.
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRequest {
    pub session_id: i32,
    pub session_epoch: i32,
    pub partitions: Vec<(TopicIdPartition, PartitionRequest)>,
    pub forgotten: Vec<TopicIdPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Ask for everything, and for a new session; the id names the one to close.
    Full {
        close: i32,
    },
    Incremental {
        id: i32,
        epoch: i32,
    },
}

#[derive(Clone, Debug)]
pub struct FetchSession {
    phase: Phase,
    wanted: BTreeMap<TopicIdPartition, PartitionRequest>,
    /// Partitions the leader's session holds.
    held: BTreeSet<TopicIdPartition>,
    changed: BTreeSet<TopicIdPartition>,
}

const INITIAL_EPOCH: i32 = 0;

impl Default for FetchSession {
    fn default() -> Self {
        FetchSession {
            phase: Phase::Full { close: 0 },
            wanted: BTreeMap::new(),
            held: BTreeSet::new(),
            changed: BTreeSet::new(),
        }
    }
}

impl FetchSession {
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    pub fn contains(&self, id: TopicIdPartition) -> bool {
        self.wanted.contains_key(&id)
    }

    pub fn set(&mut self, id: TopicIdPartition, request: PartitionRequest) {
        if self.wanted.insert(id, request) != Some(request) {
            self.changed.insert(id);
        }
    }

    pub fn remove(&mut self, id: TopicIdPartition) {
        if self.wanted.remove(&id).is_some() {
            self.changed.insert(id);
        }
    }

    pub fn next_request(&mut self) -> SessionRequest {
        match self.phase {
            Phase::Full { close } => {
                self.changed.clear();
                self.held = self.wanted.keys().copied().collect();
                SessionRequest {
                    session_id: close,
                    session_epoch: INITIAL_EPOCH,
                    partitions: self.wanted.iter().map(|(id, request)| (*id, *request)).collect(),
                    forgotten: Vec::new(),
                }
            }
            Phase::Incremental { id, epoch } => {
                let mut request =
                    SessionRequest { session_id: id, session_epoch: epoch, ..SessionRequest::default() };
                for changed in std::mem::take(&mut self.changed) {
                    if let Some(wanted) = self.wanted.get(&changed) {
                        self.held.insert(changed);
                        request.partitions.push((changed, *wanted));
                    } else if self.held.remove(&changed) {
                        request.forgotten.push(changed);
                    }
                }
                request
            }
        }
    }

    /// The leader answered. A session error makes the next request a full one.
    pub fn answered(&mut self, error: ErrorCode, session_id: i32) {
        self.phase = match (&self.phase, error) {
            // Session id 0: the leader keeps no session for us.
            (_, ErrorCode::None) if session_id == 0 => Phase::Full { close: 0 },
            (Phase::Incremental { id, epoch }, ErrorCode::None) if *id == session_id => {
                Phase::Incremental { id: *id, epoch: next_epoch(*epoch) }
            }
            (_, ErrorCode::None) => Phase::Incremental { id: session_id, epoch: next_epoch(INITIAL_EPOCH) },
            (_, ErrorCode::FetchSessionIdNotFound) => Phase::Full { close: 0 },
            (Phase::Incremental { id, .. }, _) => Phase::Full { close: *id },
            (Phase::Full { close }, _) => Phase::Full { close: *close },
        };
    }

    /// No answer: the leader may or may not have seen the request. A new connection starts anew.
    pub fn lost(&mut self) {
        let close = match self.phase {
            Phase::Incremental { id, .. } => id,
            Phase::Full { close } => close,
        };
        self.phase = Phase::Full { close };
    }
}

/// Epoch 0 opens a session, -1 ends one; counting skips both.
fn next_epoch(epoch: i32) -> i32 {
    if epoch < 0 || epoch == i32::MAX { 1 } else { epoch + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: i32) -> TopicIdPartition {
        TopicIdPartition::new(TopicId(uuid::Uuid::from_u128(7)), partition)
    }

    fn at(offset: i64) -> PartitionRequest {
        PartitionRequest {
            fetch_offset: Offset(offset),
            log_start_offset: Offset(0),
            leader_epoch: LeaderEpoch(1),
            last_fetched_epoch: None,
        }
    }

    fn request(id: i32, epoch: i32, sent: &[(i32, i64)], forgotten: &[i32]) -> SessionRequest {
        SessionRequest {
            session_id: id,
            session_epoch: epoch,
            partitions: sent.iter().map(|(partition, offset)| (self::id(*partition), at(*offset))).collect(),
            forgotten: forgotten.iter().map(|partition| self::id(*partition)).collect(),
        }
    }

    #[test]
    fn a_session_sends_only_what_changed() {
        let mut session = FetchSession::default();
        session.set(id(0), at(0));
        session.set(id(1), at(0));
        assert_eq!(session.next_request(), request(0, 0, &[(0, 0), (1, 0)], &[]));
        session.answered(ErrorCode::None, 55);
        assert_eq!(session.next_request(), request(55, 1, &[], &[]));
        session.answered(ErrorCode::None, 55);
        session.set(id(0), at(5));
        session.set(id(1), at(0));
        assert_eq!(session.next_request(), request(55, 2, &[(0, 5)], &[]));
        session.answered(ErrorCode::None, 55);
        session.remove(id(1));
        assert_eq!(session.next_request(), request(55, 3, &[], &[1]));
        session.answered(ErrorCode::None, 55);
        // Removed and set again between two requests: told as a change, or not at all.
        session.remove(id(0));
        session.set(id(0), at(5));
        assert_eq!(session.next_request(), request(55, 4, &[(0, 5)], &[]));
        session.answered(ErrorCode::None, 55);
        // Set and removed before it was ever sent.
        session.set(id(2), at(1));
        session.remove(id(2));
        assert_eq!(session.next_request(), request(55, 5, &[], &[]));
    }

    #[test]
    fn errors_and_lost_answers_lead_to_a_full_request() {
        let mut session = FetchSession::default();
        session.set(id(0), at(3));
        session.next_request();
        session.answered(ErrorCode::None, 9);
        session.next_request();
        session.answered(ErrorCode::InvalidFetchSessionEpoch, 0);
        assert_eq!(session.next_request(), request(9, 0, &[(0, 3)], &[]));
        session.answered(ErrorCode::None, 10);
        session.next_request();
        session.answered(ErrorCode::FetchSessionIdNotFound, 0);
        assert_eq!(session.next_request(), request(0, 0, &[(0, 3)], &[]));
        session.answered(ErrorCode::None, 11);
        session.next_request();
        session.lost();
        assert_eq!(session.next_request(), request(11, 0, &[(0, 3)], &[]));
        // A leader without room answers without a session: every request is a full one.
        session.answered(ErrorCode::None, 0);
        assert_eq!(session.next_request(), request(0, 0, &[(0, 3)], &[]));
    }

    #[test]
    fn epochs_skip_those_that_open_and_end_a_session() {
        assert_eq!(next_epoch(0), 1);
        assert_eq!(next_epoch(i32::MAX), 1);
    }
}
