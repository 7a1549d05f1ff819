//! PURE: the records of `__mirror_state` as bytes.
//!
//! Coordinator records as Kafka writes them: the key begins with its record type, the value with its
//! version. Keyed by mirror, topic id and partition, since a key of the mirror's name alone (KIP-1279)
//! would make all partitions of a mirror overwrite each other in a compacted topic (decision 15).

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use common::ids::*;
use common::mirror_state::MirrorState;
use thiserror::Error;
use uuid::Uuid;

/// Counts the records of one key; a write names the one it was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateEpoch(pub i32);

impl StateEpoch {
    /// Nothing is recorded.
    pub const NONE: StateEpoch = StateEpoch(0);

    pub fn next(self) -> StateEpoch {
        StateEpoch(self.0.wrapping_add(1).max(1))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateKey {
    pub mirror: Arc<str>,
    pub topic_id: TopicId,
    pub partition: i32,
}

impl StateKey {
    pub fn id(&self) -> TopicIdPartition {
        TopicIdPartition::new(self.topic_id, self.partition)
    }

    /// The string whose hash picks the coordinator. A mirror name holds no colon, so it can be taken
    /// apart again.
    pub fn coordinator_key(&self) -> String {
        format!("{}:{}:{}", self.mirror, self.topic_id, self.partition)
    }
}

/// What is recorded of one partition of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    pub topic: Arc<str>,
    pub partition: i32,
    pub state: MirrorState,
    pub association: Association,
    /// Of the leader that wrote it.
    pub leader_epoch: LeaderEpoch,
    pub state_epoch: StateEpoch,
    /// Exclusive; only with STOPPED, `None` where nothing is recorded (decision 9).
    pub last_mirrored_offset: Option<Offset>,
    /// Why it failed, or what an operator should know of it; empty if all is well.
    pub reason: String,
    pub since_ms: i64,
    pub attempt: u32,
    /// -1: no retry is planned.
    pub next_retry_ms: i64,
    /// Only with FAILED: the state that failed, to which a retry returns.
    pub failed_state: Option<MirrorState>,
    /// The newest of the source's cut ids that was checked (decision 20).
    pub checked_cut_id: Option<CutId>,
}

/// Longest stored reason; what a source says in an error is untrusted and may be long.
pub const REASON_BYTES: usize = 512;

const KEY_TYPE: i16 = 2;
const VALUE_VERSION: i16 = 0;
const NO_STATE: i8 = 16;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("record type {0} of __mirror_state is not known")]
    UnknownType(i16),
    #[error("version {0} of a mirror state value is not known")]
    UnknownVersion(i16),
    #[error("mirror state record is damaged: {0}")]
    Damaged(&'static str),
}

pub fn encode_key(key: &StateKey) -> Bytes {
    let mut out = BytesMut::with_capacity(2 + 2 + key.mirror.len() + 16 + 4);
    out.put_i16(KEY_TYPE);
    out.put_i16(key.mirror.len().min(i16::MAX as usize) as i16);
    out.put_slice(key.mirror.as_bytes());
    out.put_slice(key.topic_id.0.as_bytes());
    out.put_i32(key.partition);
    out.freeze()
}

pub fn decode_key(bytes: &[u8]) -> Result<StateKey, RecordError> {
    let mut input = Input(bytes);
    let key_type = input.i16()?;
    if key_type != KEY_TYPE {
        return Err(RecordError::UnknownType(key_type));
    }
    let length = usize::try_from(input.i16()?).map_err(|_| RecordError::Damaged("negative name length"))?;
    let mirror = input.text(length)?.into();
    let topic_id = TopicId(Uuid::from_slice(input.take(16)?).map_err(|_| RecordError::Damaged("topic id"))?);
    let partition = input.i32()?;
    input.end()?;
    Ok(StateKey { mirror, topic_id, partition })
}

pub fn encode_value(record: &StateRecord) -> Bytes {
    let mut out = BytesMut::with_capacity(80 + record.topic.len() + record.reason.len());
    out.put_i16(VALUE_VERSION);
    put_compact_text(&mut out, &record.topic);
    out.put_i32(record.partition);
    out.put_i8(record.state.code());
    out.put_i64(record.association.0);
    out.put_i32(record.leader_epoch.0);
    out.put_i32(record.state_epoch.0);
    out.put_i64(record.last_mirrored_offset.map_or(-1, |offset| offset.0));
    put_compact_text(&mut out, shortened(&record.reason));
    out.put_i64(record.since_ms);
    out.put_i32(i32::try_from(record.attempt).unwrap_or(i32::MAX));
    out.put_i64(record.next_retry_ms);
    out.put_i8(record.failed_state.map_or(NO_STATE, MirrorState::code));
    out.put_i64(record.checked_cut_id.map_or(-1, |id| id.0));
    out.put_u8(0); // no tagged fields
    out.freeze()
}

pub fn decode_value(bytes: &[u8]) -> Result<StateRecord, RecordError> {
    let mut input = Input(bytes);
    let version = input.i16()?;
    if version != VALUE_VERSION {
        return Err(RecordError::UnknownVersion(version));
    }
    let record = StateRecord {
        topic: input.compact_text()?.into(),
        partition: input.i32()?,
        state: state(input.i8()?)?,
        association: Association(input.i64()?),
        leader_epoch: LeaderEpoch(input.i32()?),
        state_epoch: StateEpoch(input.i32()?),
        last_mirrored_offset: not_negative(input.i64()?).map(Offset),
        reason: input.compact_text()?.to_owned(),
        since_ms: input.i64()?,
        attempt: u32::try_from(input.i32()?).map_err(|_| RecordError::Damaged("negative attempt"))?,
        next_retry_ms: input.i64()?,
        failed_state: match input.i8()? {
            NO_STATE => None,
            code => Some(state(code)?),
        },
        checked_cut_id: not_negative(input.i64()?).map(CutId),
    };
    // Later minor additions are tagged; they are skipped, as Kafka skips unknown tags.
    for _ in 0..input.varint()? {
        input.varint()?;
        let length = input.varint()? as usize;
        input.take(length)?;
    }
    input.end()?;
    Ok(record)
}

fn state(code: i8) -> Result<MirrorState, RecordError> {
    MirrorState::from_code(code).ok_or(RecordError::Damaged("unknown state"))
}

fn not_negative(value: i64) -> Option<i64> {
    (value >= 0).then_some(value)
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn put_compact_text(out: &mut BytesMut, text: &str) {
    let mut length = text.len() as u64 + 1;
    while length >= 0x80 {
        out.put_u8((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
    out.put_slice(text.as_bytes());
}

/// Reads from a slice; every shortage is an error.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(RecordError::Damaged("ends early"))?;
        self.0 = tail;
        Ok(head)
    }

    fn i8(&mut self) -> Result<i8, RecordError> {
        Ok(self.take(1)?.get_i8())
    }

    fn i16(&mut self) -> Result<i16, RecordError> {
        Ok(self.take(2)?.get_i16())
    }

    fn i32(&mut self) -> Result<i32, RecordError> {
        Ok(self.take(4)?.get_i32())
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        Ok(self.take(8)?.get_i64())
    }

    fn varint(&mut self) -> Result<u32, RecordError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?.get_u8();
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| RecordError::Damaged("varint too large"));
            }
        }
        Err(RecordError::Damaged("varint too long"))
    }

    fn text(&mut self, length: usize) -> Result<&'a str, RecordError> {
        std::str::from_utf8(self.take(length)?).map_err(|_| RecordError::Damaged("text is not UTF-8"))
    }

    fn compact_text(&mut self) -> Result<&'a str, RecordError> {
        let length = self.varint()?.checked_sub(1).ok_or(RecordError::Damaged("null text"))?;
        self.text(length as usize)
    }

    fn end(&self) -> Result<(), RecordError> {
        if self.0.is_empty() { Ok(()) } else { Err(RecordError::Damaged("bytes left over")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> StateRecord {
        StateRecord {
            topic: "t".into(),
            partition: 3,
            state: MirrorState::Failed,
            association: Association(7),
            leader_epoch: LeaderEpoch(5),
            state_epoch: StateEpoch(2),
            last_mirrored_offset: None,
            reason: "x".into(),
            since_ms: 1,
            attempt: 4,
            next_retry_ms: 9,
            failed_state: Some(MirrorState::Mirroring),
            checked_cut_id: Some(CutId(6)),
        }
    }

    #[test]
    fn golden_key() {
        let key =
            StateKey { mirror: "m1".into(), topic_id: TopicId(Uuid::from_bytes([0xab; 16])), partition: 3 };
        let mut expected = vec![0, 2, 0, 2, b'm', b'1'];
        expected.extend([0xab; 16]);
        expected.extend([0, 0, 0, 3]);
        assert_eq!(encode_key(&key), expected);
        assert_eq!(decode_key(&expected), Ok(key));
    }

    #[test]
    fn golden_value() {
        #[rustfmt::skip]
        let expected = [
            0, 0,                             // version
            2, b't',                          // topic
            0, 0, 0, 3,                       // partition
            8,                                // FAILED
            0, 0, 0, 0, 0, 0, 0, 7,           // association
            0, 0, 0, 5,                       // leader epoch
            0, 0, 0, 2,                       // state epoch
            255, 255, 255, 255, 255, 255, 255, 255, // no last mirrored offset
            2, b'x',                          // reason
            0, 0, 0, 0, 0, 0, 0, 1,           // since
            0, 0, 0, 4,                       // attempt
            0, 0, 0, 0, 0, 0, 0, 9,           // next retry
            1,                                // MIRRORING failed
            0, 0, 0, 0, 0, 0, 0, 6,           // checked cut id
            0,                                // tags
        ];
        assert_eq!(encode_value(&record())[..], expected);
        assert_eq!(decode_value(&expected), Ok(record()));
    }

    #[test]
    fn offset_zero_and_nothing_recorded_are_two_things() {
        let zero = StateRecord { last_mirrored_offset: Some(Offset::ZERO), ..record() };
        assert_eq!(decode_value(&encode_value(&zero)), Ok(zero));
    }

    #[test]
    fn an_unknown_version_or_type_is_named() {
        assert_eq!(decode_value(&[0, 1]), Err(RecordError::UnknownVersion(1)));
        assert_eq!(decode_key(&[0, 1]), Err(RecordError::UnknownType(1)));
    }

    #[test]
    fn unknown_tags_are_skipped() {
        let mut bytes = encode_value(&record()).to_vec();
        bytes.pop();
        bytes.extend([1, 9, 2, 0xaa, 0xbb]);
        assert_eq!(decode_value(&bytes), Ok(record()));
    }

    proptest! {
        #[test]
        fn values_round_trip(topic in "[a-z.]{1,30}", reason in ".{0,80}", offset in -1i64.., epoch in any::<i32>()) {
            let record = StateRecord {
                topic: topic.as_str().into(),
                reason,
                last_mirrored_offset: not_negative(offset).map(Offset),
                leader_epoch: LeaderEpoch(epoch),
                ..record()
            };
            prop_assert_eq!(decode_value(&encode_value(&record)), Ok(record));
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode_key(&bytes);
            let _ = decode_value(&bytes);
        }
    }
}
