//! PURE: what one partition's part of a fetch answer means (E.3 of the reference). Everything in it is
//! untrusted; records are only looked at by their headers here, their CRC is checked once, on append.

use bytes::Bytes;
use common::ids::*;
use protocol::ErrorCode;
use protocol::messages::fetch_response::PartitionData;
use protocol::record_batch::{BatchError, batches};

use crate::mirror::state::{FailureKind, FailureReason, FetchStop};

/// Where the source's log stands, as told with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceEnds {
    pub log_start: Offset,
    pub high_watermark: Offset,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Whole batches from the asked offset on; `next` is the offset to ask for then.
    Data {
        records: Bytes,
        next: Offset,
        source: SourceEnds,
    },
    /// Nothing new.
    Empty {
        source: SourceEnds,
    },
    /// Ask again later with the same epoch.
    Retry(&'static str),
    Stop(FetchStop),
}

pub fn interpret(answer: &PartitionData, asked: Offset) -> Outcome {
    if answer.error_code != 0 {
        let told = answer.current_leader.leader_epoch;
        return refused(answer.error_code, (told >= 0).then_some(LeaderEpoch(told)));
    }
    let source = SourceEnds {
        log_start: Offset(answer.log_start_offset.max(0)),
        high_watermark: Offset(answer.high_watermark.max(0)),
    };
    let records = match &answer.records {
        Some(records) if !records.is_empty() => records,
        _ => return Outcome::Empty { source },
    };
    match whole_batches(records, asked) {
        Ok((0, _)) => Outcome::Empty { source },
        Ok((length, next)) => Outcome::Data { records: records.slice(..length), next, source },
        Err(reason) => Outcome::Stop(FetchStop::Failed(reason)),
    }
}

/// The bytes of the whole batches, and the offset behind them. A cut-off last batch is dropped. A first
/// batch may begin below the asked offset (its head is deleted at the source): the append takes it into
/// an empty log only.
fn whole_batches(records: &[u8], asked: Offset) -> Result<(usize, Offset), FailureReason> {
    let unexpected = |what: String| FailureReason::new(FailureKind::UnexpectedOffset, what);
    let mut length = 0;
    let mut next = asked;
    for batch in batches(records) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(BatchError::Incomplete { .. }) => break,
            Err(error) => return Err(FailureReason::new(FailureKind::CorruptBatch, error.to_string())),
        };
        let header = &batch.header;
        if header.last_offset_delta < 0 || header.base_offset < 0 {
            return Err(unexpected(format!(
                "a batch from {} to {}",
                header.base_offset,
                header.last_offset()
            )));
        }
        if header.last_offset() < next.0 {
            return Err(unexpected(format!("a batch up to {} where {next} is next", header.last_offset())));
        }
        if length > 0 && header.base_offset < next.0 {
            return Err(unexpected(format!("a batch from {} where {next} is next", header.base_offset)));
        }
        next = Offset(header.next_offset());
        length += batch.bytes.len();
    }
    Ok((length, next))
}

/// What an error means; `told_epoch`: of the leader that the answer names beside it.
pub fn refused(error_code: i16, told_epoch: Option<LeaderEpoch>) -> Outcome {
    let moved = |epoch| Outcome::Stop(FetchStop::SourceMoved { epoch });
    let failed = |kind, what: &str| Outcome::Stop(FetchStop::Failed(FailureReason::new(kind, what)));
    match ErrorCode::from_code(error_code) {
        // The source is ahead of what we know: its epoch is adopted, from the answer or from Metadata.
        Some(ErrorCode::FencedLeaderEpoch | ErrorCode::NotLeaderOrFollower) => moved(told_epoch),
        // The source is behind what we know; an epoch never falls.
        Some(ErrorCode::UnknownLeaderEpoch) => Outcome::Retry("UNKNOWN_LEADER_EPOCH"),
        Some(ErrorCode::OffsetOutOfRange) => Outcome::Stop(FetchStop::OffsetOutOfRange),
        Some(ErrorCode::OffsetMovedToTieredStorage) => {
            failed(FailureKind::TieredStorage, "the source does not serve it to consumers")
        }
        Some(ErrorCode::CorruptMessage) => failed(FailureKind::CorruptBatch, "found by the source itself"),
        // Whether the topic is gone, recreated or only moving, its metadata tells.
        Some(
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::ReplicaNotAvailable
            | ErrorCode::KafkaStorageError,
        ) => moved(None),
        Some(code) => Outcome::Retry(code.name()),
        None => Outcome::Retry("an unknown error code"),
    }
}
