//! What machines are told where a mutation has taken a rule out.

use std::borrow::Cow;
use std::sync::Arc;

use broker::mirror::state::{CutFact, LastMirrored, MirrorEvent, MirrorFacts};
use broker::replica::state::ReplicaEvent;
use common::ids::*;
use common::metadata::record::{Cut, CutKind, LeaderRecoveryState};
use common::metadata::{MetadataImage, MetadataRecord};
use controller::control::mirror::last_mirrored::Answer;
use controller::control::mirror::propose::Proposal;
use controller::control::partition::{IsrProposal, Sender};

use super::event::Node;
use super::mutation::Mutation;
use super::world::{World, cluster_name, partition_id};

impl World {
    /// The leader epoch that the controllers would accept from anybody.
    fn current_epoch(&self, cluster: usize, partition: i32) -> Option<LeaderEpoch> {
        let active = self.clusters[cluster].active.as_ref()?;
        let image = active.draft.image().partition(partition_id(partition as usize))?;
        Some(image.registration.leader_epoch)
    }

    /// As if the one who leads now had sent it.
    fn leading_sender(&self, cluster: usize, partition: i32) -> Option<Sender> {
        let image = self.clusters[cluster].active.as_ref()?.draft.image();
        let broker_id = image.partition(partition_id(partition as usize))?.registration.leader?;
        Some(Sender { broker_id, broker_epoch: image.brokers.get(&broker_id)?.broker_epoch })
    }

    pub fn mutated_proposal(
        &self,
        from: Node,
        mut sender: Sender,
        mut proposal: Proposal,
    ) -> (Sender, Proposal) {
        match &mut proposal {
            Proposal::Cut(cut) if self.is(Mutation::CutOfDeposedLeader) => {
                if let Some(epoch) = self.current_epoch(from.cluster, cut.id.partition) {
                    cut.leader_epoch = epoch;
                }
                sender = self.leading_sender(from.cluster, cut.id.partition).unwrap_or(sender);
            }
            Proposal::Release(release) if self.is(Mutation::ReleaseOfDeposedLeader) => {
                if let Some(epoch) = self.current_epoch(from.cluster, release.id.partition) {
                    release.leader_epoch = epoch;
                }
                sender = self.leading_sender(from.cluster, release.id.partition).unwrap_or(sender);
            }
            _ => {}
        }
        (sender, proposal)
    }

    /// The image on which a proposal is decided.
    pub fn mutated_image<'a>(&self, image: &'a MetadataImage) -> Cow<'a, MetadataImage> {
        let mut changed = Cow::Borrowed(image);
        if self.is(Mutation::PreparingTwice) {
            change_partitions(changed.to_mut(), |_, partition| partition.mirror.preparing_cut = None);
        }
        if self.is(Mutation::PreparingAfterRemove) || self.is(Mutation::StoppingBeforeRemove) {
            let removed = self.is(Mutation::StoppingBeforeRemove);
            change_topics(changed.to_mut(), |topic| {
                if let Some(mirror) = &topic.mirror {
                    let mut mirror = (**mirror).clone();
                    mirror.removed = removed;
                    topic.mirror = Some(Arc::new(mirror));
                }
            });
        }
        if self.is(Mutation::StoppingTwice) {
            change_partitions(changed.to_mut(), |_, partition| partition.mirror.stopping_cut = None);
        }
        if self.is(Mutation::ReleasedIsStoppedAgain) {
            change_partitions(changed.to_mut(), |_, partition| {
                partition.mirror.stopping_cut = None;
                partition.mirror.release = None;
            });
        }
        if self.is(Mutation::StopsWithoutPreparing) {
            change_topics(changed.to_mut(), |topic| {
                let association = topic.mirror.as_ref().map(|mirror| mirror.association);
                for partition in topic.partitions.iter_mut() {
                    let partition = Arc::make_mut(partition);
                    partition.mirror.preparing_cut.get_or_insert(Cut {
                        id: CutId(association.map_or(0, |association| association.0)),
                        kind: CutKind::Preparing,
                        association,
                        offset: Offset::ZERO,
                        leader_epoch: partition.registration.leader_epoch,
                        broker_id: BrokerId(1),
                        directory: DirectoryId::ZERO,
                        leader_keeps_tail: false,
                    });
                }
            });
        }
        changed
    }

    /// The image on which a topic is created.
    pub fn mutated_creation_image<'a>(&self, image: &'a MetadataImage) -> Cow<'a, MetadataImage> {
        let mut changed = Cow::Borrowed(image);
        if self.is(Mutation::EpochsStartAnew) {
            changed.to_mut().topics.deleted_epochs.clear();
        }
        changed
    }

    /// What the controllers are about to write.
    pub fn mutated_records(&self, mut records: Vec<MetadataRecord>) -> Vec<MetadataRecord> {
        if self.is(Mutation::RecoveringIsForgotten) {
            for record in &mut records {
                if let MetadataRecord::PartitionChange { change, .. } = record
                    && change.leader.is_some()
                {
                    change.leader_recovery_state.get_or_insert(LeaderRecoveryState::Recovered);
                }
            }
        }
        records
    }

    pub fn mutated_add_image<'a>(&self, image: &'a MetadataImage) -> Cow<'a, MetadataImage> {
        let mut changed = Cow::Borrowed(image);
        if self.is(Mutation::AddBeforeReleased) {
            change_topics(changed.to_mut(), |topic| {
                if topic.mirror.as_ref().is_some_and(|mirror| mirror.removed) {
                    topic.mirror = None;
                }
            });
        }
        changed
    }

    pub fn mutated_isr(&self, from: Node, mut proposals: Vec<IsrProposal>) -> Vec<IsrProposal> {
        for proposal in &mut proposals {
            if self.is(Mutation::IsrOfEarlierProcess) {
                proposal.new_isr.iter_mut().for_each(|(_, epoch)| *epoch = None);
            }
            if self.is(Mutation::IsrOfDeposedLeader)
                && let Some(active) = &self.clusters[from.cluster].active
                && let Some(image) = active.draft.image().partition(partition_id(proposal.partition as usize))
            {
                proposal.leader_epoch = image.registration.leader_epoch;
                proposal.partition_epoch = image.registration.partition_epoch;
                if let Some(leader) = image.registration.leader
                    && proposal.new_isr.iter().all(|(id, _)| *id != leader)
                {
                    proposal.new_isr.push((leader, None));
                }
            }
        }
        proposals
    }

    pub fn mutated_event(&self, node: Node, _partition: usize, event: ReplicaEvent) -> ReplicaEvent {
        match event {
            ReplicaEvent::Assigned { mut assignment, now_ms }
                if self.is(Mutation::HighWatermarkDoesNotWait) =>
            {
                if assignment.leader == Some(node.id()) {
                    assignment.isr.retain(|id| *id == node.id());
                }
                ReplicaEvent::Assigned { assignment, now_ms }
            }
            event => event,
        }
    }

    pub fn mutated_facts(&self, mut facts: MirrorFacts) -> MirrorFacts {
        if self.is(Mutation::OwnCutsAreForgotten) {
            facts.cut_log.clear();
            facts.created_at = MetadataOffset(0);
        }
        if self.is(Mutation::PreparingTwice) {
            facts.preparing_cut = facts.preparing_cut.filter(|_| facts.removed);
        }
        let leader_epoch = facts.leader_epoch;
        let imagined = CutFact { id: CutId(facts.association.0), offset: Offset::ZERO, leader_epoch };
        if self.is(Mutation::FetchesBeforePreparing) && !facts.removed
            || self.is(Mutation::StopsWithoutPreparing) && facts.removed
        {
            facts.preparing_cut.get_or_insert(imagined);
        }
        if self.is(Mutation::StoppingBeforeRemove) {
            facts.removed |= facts.preparing_cut.is_some();
        }
        if self.is(Mutation::StoppingTwice) && !facts.released || self.is(Mutation::ReleasedIsStoppedAgain) {
            facts.stopping_cut = None;
        }
        if self.is(Mutation::ReleasedIsStoppedAgain) {
            facts.released = false;
        }
        facts
    }

    pub fn mutated_source_image<'a>(&self, image: &'a MetadataImage, asker: usize) -> Cow<'a, MetadataImage> {
        let mut changed = Cow::Borrowed(image);
        if self.is(Mutation::AnswersForAnotherCluster) {
            change_partitions(changed.to_mut(), |_, partition| {
                let mirror = &mut partition.mirror;
                for release in mirror.history.iter_mut().chain(&mut mirror.release) {
                    release.source_cluster_id = cluster_name(asker);
                }
            });
        }
        if self.is(Mutation::ReadOnlySourceAnswers) {
            change_topics(changed.to_mut(), |topic| topic.mirror = None);
        }
        if self.is(Mutation::AnswerIsNotLowered) {
            change_partitions(changed.to_mut(), |_, partition| partition.mirror.cuts.clear());
        }
        if self.is(Mutation::HighestAnswerCounts) {
            change_partitions(changed.to_mut(), |_, partition| {
                let mirror = &mut partition.mirror;
                mirror.cuts.clear();
                let highest = mirror.history.iter().chain(&mirror.release).filter_map(|r| r.offset).max();
                for release in mirror.history.iter_mut().chain(&mut mirror.release) {
                    release.offset = release.offset.and(highest);
                }
            });
        }
        changed
    }

    pub fn mutated_answer(&self, mut answer: Answer) -> Answer {
        if self.is(Mutation::UncutIsNothing)
            && answer.error.as_ref().is_some_and(|error| error.code == protocol::ErrorCode::ResourceNotFound)
        {
            answer.error = None;
        }
        if self.is(Mutation::OffsetIsInclusive) {
            answer.offset = answer.offset.map(|offset| Offset(offset.0 + 1));
        }
        answer
    }

    pub fn mutated_mirror_event(&self, node: Node, partition: usize, event: MirrorEvent) -> MirrorEvent {
        match event {
            MirrorEvent::SourceAnswered { token, result: Ok(mut position) } => {
                if self.is(Mutation::EmptySourceIsFollowed) && position.log_end <= Offset::ZERO {
                    position.log_end = Offset(1);
                    if position.last_mirrored != LastMirrored::Nothing {
                        position.last_mirrored = LastMirrored::Recorded(Offset::ZERO);
                    }
                }
                MirrorEvent::SourceAnswered { token, result: Ok(position) }
            }
            MirrorEvent::SourceAnswered { token, result: Err(_) } if self.is(Mutation::CouldNotAskCuts) => {
                let position = broker::mirror::state::SourcePosition {
                    log_end: Offset(1),
                    last_mirrored: LastMirrored::Nothing,
                    newest_cut: None,
                    checked_own_cut: None,
                };
                MirrorEvent::SourceAnswered { token, result: Ok(position) }
            }
            MirrorEvent::SourceChecked { token, result: Ok(mut check) } => {
                if self.is(Mutation::EpochMayLieAboveOwn)
                    && let Some(facts) = self.machine_facts(node, partition)
                {
                    check.leader.epoch = check.leader.epoch.min(facts.leader_epoch);
                }
                if self.is(Mutation::SourceCutIsNotSeen)
                    && let Some(cuts) = &mut check.cuts
                {
                    cuts.lowest_since = None;
                    check.end_of_last_epoch = broker::mirror::state::EpochEnd::NotAsked;
                }
                if self.is(Mutation::SourceCutIsNotNoted)
                    && let Some(cuts) = &mut check.cuts
                {
                    cuts.lowest_since = cuts.lowest_since.filter(|cut| *cut < check.local_end);
                }
                MirrorEvent::SourceChecked { token, result: Ok(check) }
            }
            event => event,
        }
    }
}

fn change_topics(image: &mut MetadataImage, change: impl Fn(&mut common::metadata::image::TopicImage)) {
    if let Some(topic) = image.topics.by_id.get_mut(&super::world::topic_id()) {
        change(Arc::make_mut(topic));
    }
}

fn change_partitions(
    image: &mut MetadataImage,
    change: impl Fn(usize, &mut common::metadata::image::PartitionImage),
) {
    change_topics(image, |topic| {
        for (index, partition) in topic.partitions.iter_mut().enumerate() {
            change(index, Arc::make_mut(partition));
        }
    });
}
