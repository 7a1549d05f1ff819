//! Releases (decision 14): a stopped partition becomes writable.

use common::ids::*;
use common::metadata::record::LeaderRecoveryState;
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::cut::current_association;
use super::is_released;
use crate::control::partition::led_partition;
use crate::control::result::{ControlError, refuse};

/// A leader asks for the release of a partition whose STOPPED state is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct ReleaseRequest {
    pub id: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub association: Association,
    /// Its log end now. `None`: stopped before the PREPARING cut, so nothing is recorded.
    pub offset: Option<Offset>,
    pub checked_cut_id: i64,
}

/// The record of a release; none where it is committed already.
pub fn release(
    image: &MetadataImage,
    broker: BrokerId,
    request: &ReleaseRequest,
) -> Result<Vec<MetadataRecord>, ControlError> {
    let (topic, partition) = led_partition(image, request.id, broker, request.leader_epoch)?;
    if let Some(mirror) = &topic.mirror
        && mirror.association == request.association
        && is_released(partition, mirror)
    {
        return Ok(Vec::new());
    }
    let mirror = current_association(topic, partition, Some(request.association))?;
    if !mirror.removed {
        return refuse(ErrorCode::InvalidRequest, "the topic was not removed from its mirror");
    }
    if partition.registration.leader_recovery_state == LeaderRecoveryState::Recovering {
        return refuse(ErrorCode::InvalidRequest, "a recovering leader releases nothing before its cut");
    }
    let facts = &partition.mirror;
    match (&facts.preparing_cut, &facts.stopping_cut, request.offset) {
        (Some(_), Some(stopping), Some(offset)) if offset <= stopping.offset && offset >= Offset::ZERO => {}
        (None, _, None) => {}
        (Some(_), None, _) => {
            return refuse(ErrorCode::InvalidRequest, "the association has not made its STOPPING cut");
        }
        (Some(_), Some(stopping), offset) => {
            return refuse(
                ErrorCode::InvalidRequest,
                format!("a log cut to {} does not end at {offset:?}", stopping.offset),
            );
        }
        (None, ..) => {
            return refuse(
                ErrorCode::InvalidRequest,
                "without a PREPARING cut no last mirrored offset is recorded",
            );
        }
    }
    let source_cluster_id = image
        .mirrors
        .get(&mirror.mirror)
        .and_then(|mirror| mirror.source_cluster_id.clone())
        .unwrap_or_default();
    Ok(vec![MetadataRecord::Release {
        topic_id: topic.id,
        partition: request.id.partition,
        association: request.association,
        offset: request.offset.unwrap_or(Offset(-1)),
        source_cluster_id,
        checked_cut_id: request.checked_cut_id,
    }])
}
