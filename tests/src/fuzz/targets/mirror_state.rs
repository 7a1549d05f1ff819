//! Records of `__mirror_state`: a key and a value, as the coordinator loads them.
//!
//! An input is the length of the key, the key, and the value.

use broker::mirror::coordinator::record::{decode_key, decode_value, encode_key, encode_value};
use broker::mirror::coordinator::{StateEpoch, StateKey, StateRecord};
use common::ids::{Association, CutId, LeaderEpoch, Offset, TopicId};
use common::mirror_state::MirrorState;
use uuid::Uuid;

use crate::fuzz::{Target, Trail, bound};

pub struct MirrorStates;

impl Target for MirrorStates {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let key =
            StateKey { mirror: "m1".into(), topic_id: TopicId(Uuid::from_bytes([0xab; 16])), partition: 3 };
        let key = encode_key(&key);
        let states = [
            MirrorState::Preparing,
            MirrorState::Mirroring,
            MirrorState::Stopping,
            MirrorState::Stopped,
            MirrorState::Failed,
        ];
        states
            .into_iter()
            .map(|state| {
                let record = StateRecord {
                    topic: "orders".into(),
                    partition: 3,
                    state,
                    association: Association(7),
                    leader_epoch: LeaderEpoch(5),
                    state_epoch: StateEpoch(2),
                    last_mirrored_offset: (state == MirrorState::Stopped).then_some(Offset(9)),
                    reason: "the source is away".into(),
                    since_ms: 1,
                    attempt: 4,
                    next_retry_ms: 9,
                    failed_state: (state == MirrorState::Failed).then_some(MirrorState::Mirroring),
                    checked_cut_id: Some(CutId(6)),
                };
                [&[key.len() as u8], &key[..], &encode_value(&record)].concat()
            })
            .collect()
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(4 << 10, 8, input)
    }

    fn longest_input_bytes(&self) -> usize {
        300
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((&key_bytes, rest)) = input.split_first() else { return trail };
        let (key, value) = rest.split_at(rest.len().min(key_bytes.into()));
        if let Some(key) = trail.result(decode_key(key)) {
            trail.size(key.coordinator_key().len());
            assert_eq!(decode_key(&encode_key(&key)), Ok(key), "a key that was read, written");
        }
        if let Some(record) = trail.result(decode_value(value)) {
            trail.accept();
            trail.note(record.state.code());
            trail.size(value.len());
            // A reason may be shortened.
            decode_value(&encode_value(&record))
                .unwrap_or_else(|error| panic!("a value that was read, written: {error}"));
        }
        trail
    }
}
