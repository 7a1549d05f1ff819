//! ProposeMirror: facts about mirrors that a broker wants committed.

use common::ids::*;
use common::metadata::record::CutKind;
use protocol::proto::controller as wire;
use tonic::Status;

use super::{ApiContext, sender, topic_id, uuid};
use crate::control::mirror::cut::{CutRequest, RaiseRequest};
use crate::control::mirror::propose::{Proposal, propose};
use crate::control::mirror::release::ReleaseRequest;
use crate::control::mirror::source::SourceTopic;

pub async fn propose_mirror(
    context: &ApiContext,
    request: wire::ProposeMirrorRequest,
) -> Result<wire::ProposeMirrorResponse, Status> {
    let sender = sender(request.broker_id, request.broker_epoch);
    let proposals = proposals(request)?;
    let outcome = context
        .controller
        .write("mirror", move |op| propose(op.image, op.settings, sender, &proposals, op.random))
        .await;
    match outcome {
        Ok(committed) => Ok(wire::ProposeMirrorResponse {
            error_code: 0,
            results: committed
                .response
                .into_iter()
                .map(|result| match result {
                    Ok(remark) => wire::propose_mirror_response::Result {
                        error_code: 0,
                        error_message: remark.unwrap_or_default(),
                    },
                    Err(error) => wire::propose_mirror_response::Result {
                        error_code: i32::from(error.code.code()),
                        error_message: error.message,
                    },
                })
                .collect(),
            metadata_offset: committed.offset.0,
        }),
        Err(error) => {
            let (error_code, _) = context.refused(error)?;
            Ok(wire::ProposeMirrorResponse { error_code, results: Vec::new(), metadata_offset: -1 })
        }
    }
}

/// In the order in which the results are given.
fn proposals(request: wire::ProposeMirrorRequest) -> Result<Vec<Proposal>, Status> {
    let mut proposals = Vec::new();
    for cut in &request.cuts {
        proposals.push(Proposal::Cut(cut_request(cut)?));
    }
    for release in &request.releases {
        proposals.push(Proposal::Release(ReleaseRequest {
            id: TopicIdPartition::new(topic_id(&release.topic_id)?, release.partition),
            leader_epoch: LeaderEpoch(release.leader_epoch),
            association: Association(release.association),
            offset: (release.offset >= 0).then_some(Offset(release.offset)),
            checked_cut_id: release.checked_cut_id,
        }));
    }
    for raise in &request.raises {
        proposals.push(Proposal::Raise(RaiseRequest {
            id: TopicIdPartition::new(topic_id(&raise.topic_id)?, raise.partition),
            leader_epoch: LeaderEpoch(raise.leader_epoch),
            minimum: LeaderEpoch(raise.minimum),
        }));
    }
    for deleted in &request.source_deleted {
        proposals.push(Proposal::SourceDeleted {
            topic_id: topic_id(&deleted.topic_id)?,
            association: Association(deleted.association),
        });
    }
    for source in request.sources {
        proposals
            .push(Proposal::Source { mirror: source.mirror, source_cluster_id: source.source_cluster_id });
    }
    for create in request.creates {
        proposals.push(Proposal::Create(SourceTopic {
            topic_id: topic_id(&create.topic_id)?,
            mirror: create.mirror,
            name: create.topic,
            partitions: create.partitions,
            configs: create.configs.into_iter().collect(),
        }));
    }
    for grow in request.grows {
        proposals.push(Proposal::Grow {
            topic_id: topic_id(&grow.topic_id)?,
            mirror: grow.mirror,
            partitions: grow.partitions,
        });
    }
    for configs in request.configs {
        proposals.push(Proposal::Configs {
            topic_id: topic_id(&configs.topic_id)?,
            mirror: configs.mirror,
            set: configs.set.into_iter().collect(),
            unset: configs.unset,
        });
    }
    Ok(proposals)
}

fn cut_request(cut: &wire::propose_mirror_request::Cut) -> Result<CutRequest, Status> {
    Ok(CutRequest {
        id: TopicIdPartition::new(topic_id(&cut.topic_id)?, cut.partition),
        leader_epoch: LeaderEpoch(cut.leader_epoch),
        kind: match cut.kind {
            0 => CutKind::Preparing,
            1 => CutKind::Stopping,
            2 => CutKind::Loss,
            3 => CutKind::Source,
            other => return Err(Status::invalid_argument(format!("unknown kind of cut {other}"))),
        },
        association: (cut.association >= 0).then_some(Association(cut.association)),
        offset: Offset(cut.offset),
        highest_batch_epoch: LeaderEpoch(cut.highest_batch_epoch),
        directory: DirectoryId(uuid(&cut.directory)?),
        only_release: cut.only_release,
        source_cut_id: (cut.source_cut_id > 0).then_some(CutId(cut.source_cut_id)),
    })
}
