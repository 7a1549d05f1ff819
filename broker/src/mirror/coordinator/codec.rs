//! PURE: state records in Read- and WriteMirrorStates.

use std::sync::Arc;

use common::ids::*;
use common::mirror_state::MirrorState;
use protocol::mirror::read_mirror_states::ReadPartitionState;
use protocol::mirror::write_mirror_states::PartitionState as WritePartitionState;
use protocol::{ErrorCode, StrBytes};

use super::record::{StateEpoch, StateRecord};
use super::shard::WriteRefusal;
use crate::coordinator::CoordinatorError;
use crate::mirror::state::StoreError;

fn text(reason: &str) -> Option<StrBytes> {
    (!reason.is_empty()).then(|| StrBytes::from_string(reason.to_owned()))
}

fn not_negative(value: i64) -> Option<i64> {
    (value >= 0).then_some(value)
}

pub fn to_read_state(partition: i32, topic_id: TopicId, record: Option<&StateRecord>) -> ReadPartitionState {
    let mut state =
        ReadPartitionState { partition_index: partition, topic_id: topic_id.0, ..Default::default() };
    state.state = MirrorState::Unknown.code();
    state.state_epoch = StateEpoch::NONE.0;
    if let Some(record) = record {
        state.last_mirrored_offset = record.last_mirrored_offset.map_or(-1, |offset| offset.0);
        state.state = record.state.code();
        state.leader_epoch = record.leader_epoch.0;
        state.state_epoch = record.state_epoch.0;
        state.association = record.association.0;
        state.reason = text(&record.reason);
        state.since_ms = record.since_ms;
        state.attempt = i32::try_from(record.attempt).unwrap_or(i32::MAX);
        state.next_retry_ms = record.next_retry_ms;
        state.checked_cut_id = record.checked_cut_id.map_or(-1, |id| id.0);
        state.failed_state = record.failed_state.map_or(MirrorState::Unknown.code(), MirrorState::code);
    }
    state
}

/// `None`: nothing is recorded.
pub fn from_read_state(
    topic: &Arc<str>,
    answer: &ReadPartitionState,
) -> Result<Option<StateRecord>, StoreError> {
    if answer.error_code != 0 {
        return Err(store_error(answer.error_code));
    }
    let state = MirrorState::from_code(answer.state)
        .ok_or_else(|| StoreError::Unreadable(format!("state {}", answer.state)))?;
    if state == MirrorState::Unknown {
        return Ok(None);
    }
    Ok(Some(StateRecord {
        topic: topic.clone(),
        partition: answer.partition_index,
        state,
        association: Association(answer.association),
        leader_epoch: LeaderEpoch(answer.leader_epoch),
        state_epoch: StateEpoch(answer.state_epoch),
        last_mirrored_offset: not_negative(answer.last_mirrored_offset).map(Offset),
        reason: answer.reason.as_ref().map_or(String::new(), |reason| reason.to_string()),
        since_ms: answer.since_ms,
        attempt: u32::try_from(answer.attempt).unwrap_or(0),
        next_retry_ms: answer.next_retry_ms,
        failed_state: failed_state(answer.failed_state),
        checked_cut_id: not_negative(answer.checked_cut_id).map(CutId),
    }))
}

fn failed_state(code: i8) -> Option<MirrorState> {
    MirrorState::from_code(code).filter(|state| *state != MirrorState::Unknown)
}

pub fn to_write_state(topic_id: TopicId, record: &StateRecord, expected: StateEpoch) -> WritePartitionState {
    let mut state = WritePartitionState {
        partition_index: record.partition,
        last_mirrored_offset: record.last_mirrored_offset.map_or(-1, |offset| offset.0),
        state: record.state.code(),
        ..Default::default()
    };
    state.topic_id = topic_id.0;
    state.leader_epoch = record.leader_epoch.0;
    state.state_epoch = expected.0;
    state.association = record.association.0;
    state.reason = text(&record.reason);
    state.since_ms = record.since_ms;
    state.attempt = i32::try_from(record.attempt).unwrap_or(i32::MAX);
    state.next_retry_ms = record.next_retry_ms;
    state.checked_cut_id = record.checked_cut_id.map_or(-1, |id| id.0);
    state.failed_state = record.failed_state.map_or(MirrorState::Unknown.code(), MirrorState::code);
    state
}

/// The record a write asks for and the state epoch it expects; an unknown state is refused.
pub fn from_write_state(topic: Arc<str>, asked: &WritePartitionState) -> Option<(StateRecord, StateEpoch)> {
    let record = StateRecord {
        topic,
        partition: asked.partition_index,
        state: MirrorState::from_code(asked.state)?,
        association: Association(asked.association),
        leader_epoch: LeaderEpoch(asked.leader_epoch),
        state_epoch: StateEpoch::NONE,
        last_mirrored_offset: not_negative(asked.last_mirrored_offset).map(Offset),
        reason: asked.reason.as_ref().map_or(String::new(), |reason| reason.to_string()),
        since_ms: asked.since_ms,
        attempt: u32::try_from(asked.attempt).unwrap_or(0),
        next_retry_ms: asked.next_retry_ms,
        failed_state: failed_state(asked.failed_state),
        checked_cut_id: not_negative(asked.checked_cut_id).map(CutId),
    };
    Some((record, StateEpoch(asked.state_epoch)))
}

pub fn coordinator_code(error: &CoordinatorError) -> ErrorCode {
    match error {
        CoordinatorError::NotCoordinator => ErrorCode::NotCoordinator,
        CoordinatorError::LoadFailed(_) => ErrorCode::CoordinatorNotAvailable,
        CoordinatorError::TimedOut => ErrorCode::RequestTimedOut,
        CoordinatorError::NotEnoughReplicas => ErrorCode::NotEnoughReplicas,
        CoordinatorError::Storage(_) => ErrorCode::KafkaStorageError,
    }
}

pub fn refusal_code(refusal: &WriteRefusal) -> ErrorCode {
    match refusal {
        WriteRefusal::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
        WriteRefusal::FencedAssociation { .. } | WriteRefusal::FencedStateEpoch { .. } => {
            ErrorCode::FencedStateEpoch
        }
        WriteRefusal::Transition { .. } => ErrorCode::InvalidRequest,
        WriteRefusal::Unreadable(_) => ErrorCode::CorruptMessage,
    }
}

pub fn store_error(code: i16) -> StoreError {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::FencedLeaderEpoch) => StoreError::FencedLeaderEpoch,
        Some(ErrorCode::FencedStateEpoch) => StoreError::FencedStateEpoch,
        // The state the write came from is not the recorded one: read it again.
        Some(ErrorCode::InvalidRequest) => StoreError::FencedStateEpoch,
        Some(ErrorCode::CorruptMessage) => {
            StoreError::Unreadable("damaged, or of a later version".to_owned())
        }
        Some(code) => StoreError::Unavailable(code.name().to_owned()),
        None => StoreError::Unavailable(format!("error {code}")),
    }
}

impl From<&WriteRefusal> for StoreError {
    fn from(refusal: &WriteRefusal) -> StoreError {
        match refusal {
            WriteRefusal::FencedLeaderEpoch { .. } => StoreError::FencedLeaderEpoch,
            WriteRefusal::FencedAssociation { .. } => StoreError::FencedAssociation,
            WriteRefusal::FencedStateEpoch { .. } | WriteRefusal::Transition { .. } => {
                StoreError::FencedStateEpoch
            }
            WriteRefusal::Unreadable(why) => StoreError::Unreadable(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> StateRecord {
        StateRecord {
            topic: "t".into(),
            partition: 3,
            state: MirrorState::Failed,
            association: Association(7),
            leader_epoch: LeaderEpoch(5),
            state_epoch: StateEpoch(2),
            last_mirrored_offset: Some(Offset(0)),
            reason: "why".into(),
            since_ms: 1,
            attempt: 4,
            next_retry_ms: 9,
            failed_state: Some(MirrorState::Mirroring),
            checked_cut_id: Some(CutId(6)),
        }
    }

    #[test]
    fn a_record_survives_both_messages() {
        let read = to_read_state(3, TopicId::ZERO, Some(&record()));
        assert_eq!(from_read_state(&"t".into(), &read), Ok(Some(record())));
        let written = to_write_state(TopicId::ZERO, &record(), StateEpoch(1));
        let expected = StateRecord { state_epoch: StateEpoch::NONE, ..record() };
        assert_eq!(from_write_state("t".into(), &written), Some((expected, StateEpoch(1))));
    }

    #[test]
    fn an_error_is_never_read_as_nothing_recorded() {
        let nothing = to_read_state(3, TopicId::ZERO, None);
        assert_eq!(from_read_state(&"t".into(), &nothing), Ok(None));
        for code in ErrorCode::ALL.iter().filter(|code| **code != ErrorCode::None) {
            let answer = ReadPartitionState { error_code: code.code(), ..nothing.clone() };
            assert!(from_read_state(&"t".into(), &answer).is_err(), "{}", code.name());
        }
    }
}
