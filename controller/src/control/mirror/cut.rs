//! Cuts (decision 10) and epoch raises (decision 8).

use common::ids::*;
use common::metadata::image::{PartitionImage, TopicImage};
use common::metadata::record::{CutKind, LeaderRecoveryState, PartitionChange, TopicMirror};
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::is_released;
use crate::control::partition::led_partition;
use crate::control::result::{ControlError, refuse};

/// An epoch that lies further ahead is a source that lies (decision 8).
pub const MAX_EPOCH_JUMP: i32 = 1_000_000;

/// A leader asks for a cut.
#[derive(Clone, Debug, PartialEq)]
pub struct CutRequest {
    pub id: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub kind: CutKind,
    pub association: Option<Association>,
    pub offset: Offset,
    /// In its log; the raised epoch is above it.
    pub highest_batch_epoch: LeaderEpoch,
    pub directory: DirectoryId,
    /// STOPPING without a PREPARING cut: nothing is cut or recorded, only the epoch rises if it must.
    pub only_release: bool,
    /// PREPARING and SOURCE: the newest of the source's cuts that this one takes note of.
    pub source_cut_id: Option<CutId>,
}

/// The record of a cut, if the sender may make it.
pub fn cut(
    image: &MetadataImage,
    broker: BrokerId,
    request: &CutRequest,
) -> Result<Vec<MetadataRecord>, ControlError> {
    let (topic, partition) = led_partition(image, request.id, broker, request.leader_epoch)?;
    if request.only_release && request.kind != CutKind::Stopping {
        return refuse(ErrorCode::InvalidRequest, "only STOPPING may leave the log uncut");
    }
    if request.offset < Offset::ZERO && !request.only_release {
        return refuse(ErrorCode::InvalidRequest, format!("{} is no offset", request.offset));
    }
    let current = partition.registration.leader_epoch;
    let raised = raised_epoch(current, request.highest_batch_epoch.0.saturating_add(1))?;
    let recovering = partition.registration.leader_recovery_state == LeaderRecoveryState::Recovering;
    let (association, leader_keeps_tail) = match request.kind {
        CutKind::Loss => {
            if !recovering {
                return refuse(ErrorCode::InvalidRequest, "the partition is not recovering");
            }
            (None, keeps_tail(topic, partition))
        }
        CutKind::Preparing | CutKind::Stopping | CutKind::Source if recovering => {
            return refuse(ErrorCode::InvalidRequest, "the recovering leader's own cut comes first");
        }
        CutKind::Preparing => (Some(check_preparing(topic, partition, request)?), false),
        CutKind::Source => (Some(check_source(topic, partition, request)?), false),
        CutKind::Stopping => {
            let association = check_stopping(topic, partition, request)?;
            if request.only_release {
                // Nothing to cut: the copy never began. The epoch alone may have to rise.
                let rises = request.highest_batch_epoch >= current;
                let change = PartitionChange { leader_epoch: Some(raised), ..PartitionChange::default() };
                let record = MetadataRecord::PartitionChange {
                    topic_id: topic.id,
                    partition: request.id.partition,
                    change,
                };
                return Ok(if rises { vec![record] } else { Vec::new() });
            }
            (Some(association), false)
        }
    };
    let mut records = vec![MetadataRecord::Cut {
        topic_id: topic.id,
        partition: request.id.partition,
        kind: request.kind,
        association,
        offset: request.offset,
        leader_epoch: raised,
        broker_id: broker,
        directory: request.directory,
        leader_keeps_tail,
    }];
    if let (CutKind::Preparing | CutKind::Source, Some(association), Some(cut_id)) =
        (request.kind, association, request.source_cut_id)
    {
        let (topic_id, partition) = (topic.id, request.id.partition);
        records.push(MetadataRecord::SourceCutChecked { topic_id, partition, association, cut_id });
    }
    Ok(records)
}

/// On an ordinary or released partition, or one with the suffix, the leader keeps its tail; a copy that made
/// its PREPARING cut is cut with the others and fetched again. Before that cut the log is still what it was
/// before the add, nobody can give it back, and it may be the last copy: it is kept too (ADR 11).
fn keeps_tail(topic: &TopicImage, partition: &PartitionImage) -> bool {
    let uncut = partition.mirror.preparing_cut.is_none();
    topic.mirror.as_ref().is_none_or(|mirror| mirror.removed || uncut || is_released(partition, mirror))
}

/// The association of a request must be the newest, unreleased one.
pub(super) fn current_association<'a>(
    topic: &'a TopicImage,
    partition: &PartitionImage,
    association: Option<Association>,
) -> Result<&'a TopicMirror, ControlError> {
    let Some(mirror) = &topic.mirror else {
        return refuse(ErrorCode::InvalidRequest, format!("topic '{}' belongs to no mirror", topic.name));
    };
    if association != Some(mirror.association) {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("the newest association of topic '{}' is {}", topic.name, mirror.association),
        );
    }
    if is_released(partition, mirror) {
        return refuse(ErrorCode::InvalidRequest, format!("association {} is released", mirror.association));
    }
    Ok(mirror)
}

/// The association of a request must not be on its way out either.
fn copying_association(
    topic: &TopicImage,
    partition: &PartitionImage,
    request: &CutRequest,
) -> Result<Association, ControlError> {
    let mirror = current_association(topic, partition, request.association)?;
    if mirror.removed {
        return refuse(ErrorCode::InvalidRequest, "the topic was removed from its mirror");
    }
    Ok(mirror.association)
}

fn check_preparing(
    topic: &TopicImage,
    partition: &PartitionImage,
    request: &CutRequest,
) -> Result<Association, ControlError> {
    let association = copying_association(topic, partition, request)?;
    if partition.mirror.preparing_cut.is_some() {
        return refuse(ErrorCode::InvalidRequest, "the association has made its PREPARING cut");
    }
    Ok(association)
}

/// A copy takes note of cuts of its source, each once. That its leader's log ends at or below the offset, the
/// leader alone knows (decision 20).
fn check_source(
    topic: &TopicImage,
    partition: &PartitionImage,
    request: &CutRequest,
) -> Result<Association, ControlError> {
    let association = copying_association(topic, partition, request)?;
    if partition.mirror.preparing_cut.is_none() {
        return refuse(ErrorCode::InvalidRequest, "the association has not made its PREPARING cut");
    }
    if request.source_cut_id <= partition.mirror.checked_source_cut {
        return refuse(ErrorCode::InvalidRequest, "the association has taken note of that cut of its source");
    }
    Ok(association)
}

fn check_stopping(
    topic: &TopicImage,
    partition: &PartitionImage,
    request: &CutRequest,
) -> Result<Association, ControlError> {
    let mirror = current_association(topic, partition, request.association)?;
    if !mirror.removed {
        return refuse(ErrorCode::InvalidRequest, "the topic was not removed from its mirror");
    }
    if partition.mirror.stopping_cut.is_some() {
        return refuse(ErrorCode::InvalidRequest, "the association has made its STOPPING cut");
    }
    if request.only_release != partition.mirror.preparing_cut.is_none() {
        return refuse(
            ErrorCode::InvalidRequest,
            "STOPPING cuts exactly where the association made its PREPARING cut",
        );
    }
    Ok(mirror.association)
}

/// Above the current epoch and at least `minimum`.
fn raised_epoch(current: LeaderEpoch, minimum: i32) -> Result<LeaderEpoch, ControlError> {
    let raised = current.0.saturating_add(1).max(minimum);
    if raised.saturating_sub(current.0) > MAX_EPOCH_JUMP || raised == i32::MAX {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("leader epoch {raised} lies more than {MAX_EPOCH_JUMP} above {current}"),
        );
    }
    Ok(LeaderEpoch(raised))
}

/// A leader asks for a leader epoch of at least `minimum` before it appends a batch with that epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct RaiseRequest {
    pub id: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub minimum: LeaderEpoch,
}

/// The record of a raise; none where the epoch is high enough.
pub fn raise(
    image: &MetadataImage,
    broker: BrokerId,
    request: &RaiseRequest,
) -> Result<Vec<MetadataRecord>, ControlError> {
    let (topic, partition) = led_partition(image, request.id, broker, request.leader_epoch)?;
    if topic.mirror.as_ref().is_none_or(|mirror| is_released(partition, mirror)) {
        return refuse(ErrorCode::InvalidRequest, format!("topic '{}' is not mirrored", topic.name));
    }
    if request.minimum <= partition.registration.leader_epoch {
        return Ok(Vec::new());
    }
    let raised = raised_epoch(partition.registration.leader_epoch, request.minimum.0)?;
    Ok(vec![MetadataRecord::PartitionChange {
        topic_id: topic.id,
        partition: request.id.partition,
        change: PartitionChange { leader_epoch: Some(raised), ..PartitionChange::default() },
    }])
}
