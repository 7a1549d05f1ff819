//! What brokers ask of their controllers, decided by the product's `control` on the draft.

use broker::mirror::state::ProposalError;
use broker::replica::alter_partition::{self, IsrQueue};
use broker::replica::manager::IsrAnswer;
use common::ids::*;
use common::metadata::record::Endpoint;
use controller::control::broker::{Heartbeat, Registration, heartbeat, register};
use controller::control::mirror::propose::{Proposal, propose};
use controller::control::partition::{IsrProposal, Sender, alter_partitions};
use controller::control::{ControlError, ControllerResult};
use protocol::ErrorCode;

use super::event::{Node, Request, Response};
use super::quorum::{Reply, connection, directory_of};
use super::world::World;

impl World {
    pub fn controller_request(&mut self, from: Node, process: u32, request: Request) {
        let cluster = from.cluster;
        if self.clusters[cluster].active.is_none() {
            return;
        }
        match request {
            Request::Register { previous_broker_epoch } => {
                self.register(from, process, previous_broker_epoch);
            }
            Request::Heartbeat { broker_epoch, metadata_offset, want_shutdown } => {
                self.take_heartbeat(from, process, broker_epoch, metadata_offset, want_shutdown);
            }
            Request::AlterPartition { broker_epoch, number, proposals } => {
                self.take_alter_partition(from, process, broker_epoch, number, proposals);
            }
            Request::Propose { broker_epoch, partition, token, proposal } => {
                let sender = Sender { broker_id: from.id(), broker_epoch };
                let leads = self.is_from_leader(from, &proposal);
                let (sender, proposal) = self.mutated_proposal(from, sender, proposal);
                let mut random = self.random.clone();
                let it = &self.clusters[cluster];
                let Some(active) = &it.active else { return };
                let image = self.mutated_image(active.draft.image());
                let outcome = propose(&image, &it.settings, sender, &[proposal], &mut random);
                self.random = random;
                let first =
                    outcome.map(|ControllerResult { records, mut response }| (records, response.pop()));
                match first {
                    Ok((records, Some(Ok(_)))) => {
                        if !leads && !records.is_empty() {
                            self.violate("invariant 9: a deposed leader changes nothing", || {
                                from.to_string()
                            });
                        }
                        let reply = Reply::Proposed { partition, token };
                        self.run_operation(cluster, records, Some((from, process)), reply);
                    }
                    Ok((_, Some(Err(error)))) | Err(error) => {
                        self.trace(|| format!("{from} proposal refused: {error}"));
                        if let Some(token) = token {
                            let result = Err(proposal_error(&error));
                            self.respond(from, process, Response::Proposed { partition, token, result });
                        }
                    }
                    Ok((_, None)) => {}
                }
            }
        }
    }

    /// For the oracle: cuts, raises and releases come from who leads under exactly that epoch.
    fn is_from_leader(&self, from: Node, proposal: &Proposal) -> bool {
        let (id, leader_epoch) = match proposal {
            Proposal::Cut(cut) => (cut.id, cut.leader_epoch),
            Proposal::Release(release) => (release.id, release.leader_epoch),
            Proposal::Raise(raise) => (raise.id, raise.leader_epoch),
            _ => return true,
        };
        let Some(active) = &self.clusters[from.cluster].active else { return false };
        active.draft.image().partition(id).is_some_and(|partition| {
            let registration = &partition.registration;
            registration.leader == Some(from.id()) && registration.leader_epoch == leader_epoch
        })
    }

    fn register(&mut self, from: Node, process: u32, previous_broker_epoch: Option<BrokerEpoch>) {
        let cluster = from.cluster;
        let now_ms = self.now_ms as u64;
        let request = Registration {
            broker_id: from.id(),
            incarnation_id: IncarnationId(uuid::Uuid::from_u64_pair(from.broker as u64 + 1, process.into())),
            endpoints: vec![Endpoint {
                name: "PLAINTEXT".to_owned(),
                host: from.to_string(),
                port: 9092,
                security_protocol: 0,
            }],
            inter_broker_endpoint: 0,
            rack: None,
            directories: vec![directory_of(from)],
            previous_broker_epoch,
        };
        let it = &mut self.clusters[cluster];
        let Some(active) = it.active.as_mut() else { return };
        let image = active.draft.image();
        let existing = image.brokers.get(&from.id()).map(|broker| broker.broker_epoch);
        let liveness = active.heartbeats.liveness(from.id(), existing.unwrap_or(BrokerEpoch(-1)), now_ms);
        let outcome = register(image, &it.settings, &request, &[], liveness);
        if let Ok(ControllerResult { records, response: epoch }) = outcome {
            active.heartbeats.heard(from.id(), epoch, Some(connection(from, process)), now_ms);
            self.run_operation(cluster, records, Some((from, process)), Reply::Registered(epoch));
        }
    }

    fn take_heartbeat(
        &mut self,
        from: Node,
        process: u32,
        broker_epoch: BrokerEpoch,
        metadata_offset: i64,
        want_shutdown: bool,
    ) {
        let cluster = from.cluster;
        let now_ms = self.now_ms as u64;
        let it = &mut self.clusters[cluster];
        let Some(active) = it.active.as_mut() else { return };
        let request = Heartbeat {
            sender: Sender { broker_id: from.id(), broker_epoch },
            metadata_offset: MetadataOffset(metadata_offset),
            want_fence: false,
            offline_directories: Vec::new(),
            want_shutdown,
        };
        match heartbeat(active.draft.image(), &it.settings, request) {
            Ok(ControllerResult { records, response }) => {
                active.heartbeats.heard(from.id(), broker_epoch, Some(connection(from, process)), now_ms);
                let reply = Reply::Heartbeat { should_shut_down: response.should_shut_down };
                self.run_operation(cluster, records, Some((from, process)), reply);
            }
            Err(error) if error.code == ErrorCode::StaleBrokerEpoch => {
                self.respond(from, process, Response::Stale);
            }
            Err(_) => {}
        }
        // The stream is opened again where it broke, and goes on from the broker's offset.
        let offset = self.clusters[cluster].offset();
        if metadata_offset < offset {
            self.push_metadata(from, offset);
        }
    }

    fn take_alter_partition(
        &mut self,
        from: Node,
        process: u32,
        broker_epoch: BrokerEpoch,
        number: u64,
        items: Vec<broker::replica::IsrProposalItem>,
    ) {
        let cluster = from.cluster;
        let it = &self.clusters[cluster];
        let Some(active) = &it.active else { return };
        let sender = Sender { broker_id: from.id(), broker_epoch };
        let proposals: Vec<IsrProposal> = items
            .iter()
            .map(|item| IsrProposal {
                topic_id: item.id.topic_id,
                partition: item.id.partition,
                leader_epoch: item.leader_epoch,
                partition_epoch: item.partition_epoch,
                new_isr: item
                    .new_isr
                    .iter()
                    .map(|(id, epoch)| (*id, (epoch.0 >= 0).then_some(*epoch)))
                    .collect(),
            })
            .collect();
        let proposals = self.mutated_isr(from, proposals);
        match alter_partitions(active.draft.image(), &it.settings, sender, &proposals) {
            Ok(ControllerResult { records, response }) => {
                let image = active.draft.image();
                let registered_anew = items.iter().zip(&response).any(|(item, result)| {
                    result.is_ok()
                        && item.new_isr.iter().any(|(id, epoch)| {
                            epoch.0 >= 0
                                && image.brokers.get(id).is_some_and(|broker| broker.broker_epoch != *epoch)
                        })
                });
                if registered_anew {
                    self.violate("KIP-903: who registered anew joins by a fetch of its own", || {
                        from.to_string()
                    });
                }
                let answers = items.iter().zip(response).map(|(item, result)| isr_answer(item.id, result));
                let reply = Reply::AlterPartition { number, answers: answers.collect() };
                self.run_operation(cluster, records, Some((from, process)), reply);
            }
            Err(error) => {
                let answers = Err(error.to_string());
                self.respond(from, process, Response::AlterPartition { number, answers });
            }
        }
    }
}

fn isr_answer(
    id: TopicIdPartition,
    result: Result<common::metadata::record::PartitionRegistration, ControlError>,
) -> IsrAnswer {
    match result {
        Ok(next) => IsrAnswer {
            id,
            error: ErrorCode::None,
            isr: next.isr,
            leader_epoch: next.leader_epoch,
            partition_epoch: next.partition_epoch,
        },
        Err(error) => IsrAnswer {
            id,
            error: error.code,
            isr: Vec::new(),
            leader_epoch: LeaderEpoch(-1),
            partition_epoch: PartitionEpoch(-1),
        },
    }
}

fn proposal_error(error: &ControlError) -> ProposalError {
    if error.code.retriable() {
        ProposalError::Unavailable(error.to_string())
    } else {
        ProposalError::Refused(error.to_string())
    }
}

/// The proposals of one broker's partitions: the product's queue.
pub fn take_answers(queue: &IsrQueue, answers: Result<Vec<IsrAnswer>, String>) -> Vec<IsrAnswered> {
    let finished = queue.answered(answers.is_ok());
    let Ok(mut answers) = answers else { return Vec::new() };
    let mut taken = Vec::new();
    for item in finished {
        let place = answers.iter().position(|answer| answer.id == item.id);
        let outcome = place.and_then(|place| alter_partition::isr_outcome(answers.swap_remove(place)));
        match outcome {
            Some(outcome) => taken.push(IsrAnswered { item, outcome }),
            None => queue.again(item),
        }
    }
    taken
}

pub struct IsrAnswered {
    pub item: broker::replica::IsrProposalItem,
    pub outcome: broker::replica::state::IsrOutcome,
}
