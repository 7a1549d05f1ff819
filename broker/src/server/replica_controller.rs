//! What replicas ask of the controller: new ISRs, and LOSS cuts after unclean elections.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use common::fault;
use common::ids::*;
use common::task::TaskGroup;
use parking_lot::Mutex;
use protocol::ErrorCode;
use protocol::proto::controller::propose_mirror_request::Cut;
use protocol::proto::controller::{self as wire, AlterPartitionRequest, ProposeMirrorRequest};
use tokio::sync::Notify;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::metadata::ControllerChannel;
use crate::replica::manager::IsrAnswer;
use crate::replica::{IsrProposalItem, LossCut, ReplicaDeps, ReplicaManager};

/// A failed call is repeated with the next tick of the replicas, so it need not wait for long.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// LOSS in the wire's numbering of cut kinds.
const LOSS: i32 = 2;
/// Cuts of one proposal: what fits into a metadata batch with room to spare.
const MAX_CUTS: usize = 500;
/// Replicas of one AssignReplicasToDirs.
const MAX_DIRECTORIES: usize = 500;
const DIRECTORY_RETRY: Duration = Duration::from_millis(500);

pub struct ReplicaController {
    controller: Arc<ControllerChannel>,
    /// Set once the replica manager exists, which needs this first.
    replicas: OnceLock<Weak<ReplicaManager>>,
    tasks: TaskGroup,
    /// The newest wish of each partition; bounded by the partitions led here.
    cuts: Mutex<BTreeMap<TopicIdPartition, LossCut>>,
    cut_wanted: Notify,
    /// Where replicas lie that the controller has yet to hear of.
    directories: Mutex<BTreeMap<TopicIdPartition, DirectoryId>>,
    directory_wanted: Notify,
}

impl ReplicaController {
    pub fn new(controller: Arc<ControllerChannel>, tasks: TaskGroup) -> Arc<ReplicaController> {
        let this = Arc::new(ReplicaController {
            controller,
            replicas: OnceLock::new(),
            tasks,
            cuts: Mutex::default(),
            cut_wanted: Notify::new(),
            directories: Mutex::default(),
            directory_wanted: Notify::new(),
        });
        let assigner = this.clone();
        let shutdown = this.tasks.shutdown_token();
        this.tasks.spawn("replica-directories", async move {
            shutdown.run_until_cancelled(assigner.report_directories()).await;
        });
        let cutter = this.clone();
        let shutdown = this.tasks.shutdown_token();
        this.tasks.spawn("loss-cuts", async move {
            shutdown.run_until_cancelled(cutter.propose_cuts()).await;
        });
        this
    }

    pub fn set_replicas(&self, replicas: &Arc<ReplicaManager>) {
        let _ = self.replicas.set(Arc::downgrade(replicas));
    }

    async fn propose_cuts(&self) {
        loop {
            self.cut_wanted.notified().await;
            let wanted = std::mem::take(&mut *self.cuts.lock());
            let wanted: Vec<LossCut> = wanted.into_values().collect();
            for cuts in wanted.chunks(MAX_CUTS) {
                let request =
                    ProposeMirrorRequest { cuts: cuts.iter().map(loss_cut).collect(), ..Default::default() };
                match self.controller.propose_mirror(request, CALL_TIMEOUT).await {
                    Ok(response) => {
                        let refused = response.results.iter().filter(|result| result.error_code != 0);
                        for result in refused {
                            debug!(reason = %result.error_message, "LOSS cut refused");
                        }
                    }
                    // Each partition that still needs it asks again.
                    Err(error) => warn!(%error, partitions = cuts.len(), "LOSS cuts not proposed"),
                }
            }
        }
    }
}

impl ReplicaController {
    async fn report_directories(&self) {
        loop {
            self.directory_wanted.notified().await;
            let wanted = std::mem::take(&mut *self.directories.lock());
            let wanted: Vec<_> = wanted.into_iter().collect();
            for replicas in wanted.chunks(MAX_DIRECTORIES) {
                let request = wire::AssignReplicasToDirsRequest {
                    replicas: replicas.iter().map(replica_directory).collect(),
                    ..Default::default()
                };
                // A replica that is refused has left this broker meanwhile, or the image says so soon.
                let answer = self.controller.assign_replicas_to_dirs(request, CALL_TIMEOUT).await;
                if answer.as_ref().is_ok_and(|response| response.error_code == 0) {
                    continue;
                }
                debug!(?answer, "the controller has not heard where replicas lie: told again");
                {
                    let mut waiting = self.directories.lock();
                    for (id, directory) in replicas {
                        waiting.entry(*id).or_insert(*directory);
                    }
                }
                self.directory_wanted.notify_one();
                tokio::time::sleep(DIRECTORY_RETRY).await;
            }
        }
    }
}

impl ReplicaDeps for ReplicaController {
    fn alter_partition(&self, proposals: Vec<IsrProposalItem>) {
        let Some(replicas) = self.replicas.get().and_then(Weak::upgrade) else { return };
        let controller = self.controller.clone();
        self.tasks.spawn("alter-partition", async move {
            let request = AlterPartitionRequest {
                partitions: proposals.iter().map(proposal).collect(),
                ..AlterPartitionRequest::default()
            };
            for item in &proposals {
                fault::point("replica.alter_partition.send", item.id).await;
            }
            let answers = match controller.alter_partition(request, CALL_TIMEOUT).await {
                Ok(response) if response.error_code == 0 => {
                    Ok(response.partitions.iter().filter_map(isr_answer).collect())
                }
                Ok(response) => Err(error_code(response.error_code).name().to_owned()),
                Err(error) => Err(error.to_string()),
            };
            replicas.alter_partition_done(answers);
        });
    }

    fn propose_loss_cut(&self, cut: LossCut) {
        self.cuts.lock().insert(cut.id, cut);
        self.cut_wanted.notify_one();
    }

    fn assign_directories(&self, replicas: Vec<(TopicIdPartition, DirectoryId)>) {
        self.directories.lock().extend(replicas);
        self.directory_wanted.notify_one();
    }
}

fn replica_directory(
    (id, directory): &(TopicIdPartition, DirectoryId),
) -> wire::assign_replicas_to_dirs_request::Replica {
    wire::assign_replicas_to_dirs_request::Replica {
        topic_id: topic_id_bytes(id.topic_id),
        partition: id.partition,
        directory: Bytes::copy_from_slice(directory.0.as_bytes()),
    }
}

fn topic_id_bytes(id: TopicId) -> Bytes {
    Bytes::copy_from_slice(id.0.as_bytes())
}

fn proposal(item: &IsrProposalItem) -> wire::alter_partition_request::Partition {
    wire::alter_partition_request::Partition {
        topic_id: topic_id_bytes(item.id.topic_id),
        partition: item.id.partition,
        leader_epoch: item.leader_epoch.0,
        partition_epoch: item.partition_epoch.0,
        new_isr: item
            .new_isr
            .iter()
            .map(|(id, epoch)| wire::IsrMember { broker_id: id.0, broker_epoch: epoch.0 })
            .collect(),
    }
}

/// `None`: not an answer that can be understood; the proposal counts as unanswered.
fn isr_answer(answer: &wire::alter_partition_response::Partition) -> Option<IsrAnswer> {
    let topic_id = TopicId(Uuid::from_slice(&answer.topic_id).ok()?);
    Some(IsrAnswer {
        id: TopicIdPartition::new(topic_id, answer.partition),
        error: error_code(answer.error_code),
        isr: answer.isr.iter().map(|id| BrokerId(*id)).collect(),
        leader_epoch: LeaderEpoch(answer.leader_epoch),
        partition_epoch: PartitionEpoch(answer.partition_epoch),
    })
}

fn loss_cut(cut: &LossCut) -> Cut {
    Cut {
        topic_id: topic_id_bytes(cut.id.topic_id),
        partition: cut.id.partition,
        leader_epoch: cut.leader_epoch.0,
        kind: LOSS,
        association: -1,
        offset: cut.offset.0,
        highest_batch_epoch: cut.highest_batch_epoch.0,
        directory: Bytes::copy_from_slice(cut.directory.0.as_bytes()),
        only_release: false,
        source_cut_id: 0,
    }
}

fn error_code(code: i32) -> ErrorCode {
    i16::try_from(code).ok().and_then(ErrorCode::from_code).unwrap_or(ErrorCode::UnknownServerError)
}
