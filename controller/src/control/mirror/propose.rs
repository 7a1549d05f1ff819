//! ProposeMirror: facts that brokers want committed, many in one atomic batch, each with a result of its
//! own.

use std::collections::{BTreeMap, HashSet};

use common::ids::*;
use common::metadata::record::CutKind;
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::cut::{CutRequest, RaiseRequest, cut, raise};
use super::release::{ReleaseRequest, release};
use super::source::{self, SourceTopic};
use crate::control::partition::{Sender, check_broker_epoch};
use crate::control::reassignment::complete_after_loss;
use crate::control::result::{ControlError, ControllerResult, refuse};
use crate::control::settings::ControlSettings;
use crate::control::topic::Randomness;

/// One item.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposal {
    Cut(CutRequest),
    Release(ReleaseRequest),
    Raise(RaiseRequest),
    SourceDeleted { topic_id: TopicId, association: Association },
    Source { mirror: String, source_cluster_id: String },
    Create(SourceTopic),
    Grow { mirror: String, topic_id: TopicId, partitions: i32 },
    Configs { mirror: String, topic_id: TopicId, set: BTreeMap<String, String>, unset: Vec<String> },
}

/// What an item touches. Two items of one batch cannot touch the same: both would be decided on the
/// image before the batch.
#[derive(PartialEq, Eq, Hash)]
enum Subject<'a> {
    Partition(TopicIdPartition),
    Topic(TopicId),
    NewTopic(&'a str),
    Mirror(&'a str),
}

impl Proposal {
    fn subject(&self) -> Subject<'_> {
        match self {
            Proposal::Cut(cut) => Subject::Partition(cut.id),
            Proposal::Release(release) => Subject::Partition(release.id),
            Proposal::Raise(raise) => Subject::Partition(raise.id),
            Proposal::SourceDeleted { topic_id, .. }
            | Proposal::Grow { topic_id, .. }
            | Proposal::Configs { topic_id, .. } => Subject::Topic(*topic_id),
            Proposal::Source { mirror, .. } => Subject::Mirror(mirror),
            Proposal::Create(topic) => Subject::NewTopic(&topic.name),
        }
    }
}

/// For each item a remark or a refusal.
pub type ProposeResults = Vec<Result<Option<String>, ControlError>>;

/// Decides all items on one image.
pub fn propose(
    image: &MetadataImage,
    settings: &ControlSettings,
    sender: Sender,
    proposals: &[Proposal],
    random: &mut dyn Randomness,
) -> Result<ControllerResult<ProposeResults>, ControlError> {
    check_broker_epoch(image, sender)?;
    if image.brokers.get(&sender.broker_id).is_some_and(|broker| broker.fenced) {
        return refuse(ErrorCode::StaleBrokerEpoch, format!("broker {} is fenced", sender.broker_id));
    }
    let mut records: Vec<MetadataRecord> = Vec::new();
    let mut touched = HashSet::new();
    let mut created_ids = HashSet::new();
    let results = proposals
        .iter()
        .map(|proposal| {
            if !touched.insert(proposal.subject()) {
                return refuse(
                    ErrorCode::OperationNotAttempted,
                    "an earlier item of the request touches the same",
                );
            }
            let broker = sender.broker_id;
            let (new, remark) = match proposal {
                Proposal::Cut(request) => {
                    let mut new = cut(image, broker, request)?;
                    if request.kind == CutKind::Loss {
                        new.extend(complete_after_loss(image, settings, request.id));
                    }
                    (new, None)
                }
                Proposal::Release(request) => (release(image, broker, request)?, None),
                Proposal::Raise(request) => (raise(image, broker, request)?, None),
                Proposal::SourceDeleted { topic_id, association } => {
                    source::source_deleted(image, *topic_id, *association)?
                }
                Proposal::Source { mirror, source_cluster_id } => {
                    source::source_cluster(image, settings, mirror, source_cluster_id)?
                }
                Proposal::Create(topic) => {
                    if !created_ids.insert(topic.topic_id) {
                        return refuse(ErrorCode::TopicAlreadyExists, "two topics with one id");
                    }
                    source::create(image, settings, topic, random)?
                }
                Proposal::Grow { mirror, topic_id, partitions } => {
                    source::grow_topic(image, mirror, *topic_id, *partitions, random)?
                }
                Proposal::Configs { mirror, topic_id, set, unset } => {
                    source::sync_configs(image, settings, mirror, *topic_id, set, unset)?
                }
            };
            records.extend(new);
            Ok(remark)
        })
        .collect();
    Ok(ControllerResult::new(records, results))
}

#[cfg(test)]
#[path = "propose_tests.rs"]
mod tests;
