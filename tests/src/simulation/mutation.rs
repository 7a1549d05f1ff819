//! The simulation, tested: each mutation takes one safety rule out, by forging what a machine is told or
//! by leaving out what it says. The run must then find a violation.

use std::borrow::Cow;
use std::sync::Arc;

use broker::mirror::state::{LastMirrored, MirrorEvent, MirrorFacts};
use broker::replica::state::ReplicaEvent;
use common::ids::*;
use common::metadata::MetadataImage;
use controller::control::mirror::last_mirrored::Answer;
use controller::control::mirror::propose::Proposal;
use controller::control::partition::{IsrProposal, Sender};

use super::event::Node;
use super::world::{World, partition_id};

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A rule that is taken out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutation {
            pub const ALL: &[Mutation] = &[$(Mutation::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Mutation::$name => stringify!($name),)* }
            }

            /// What is no longer done.
            pub fn rule(self) -> &'static str {
                match self { $(Mutation::$name => concat!($($doc),*),)* }
            }
        }
    };
}

mutations! {
    /// decision 1: a batch computed on another predecessor is ignored
    StrayEntryApplies,
    /// decision 3: a directory of a deleted topic whose id came back is never live
    StrayDirectoryIsLive,
    /// KIP-101: a follower truncates by leader epoch, not to its high watermark
    TruncatesToHighWatermark,
    /// KIP-595: a leader compares the epoch of the follower's last batch before it sends or counts
    DivergenceIsNotSeen,
    /// only the answer to the fetch under way is applied
    LateAnswerIsApplied,
    /// KIP-320: a fetch under another leader epoch is refused
    FetchEpochIsNotChecked,
    /// the high watermark waits for every member of the maximal ISR
    HighWatermarkDoesNotWait,
    /// the leader counts a proposed ISR until its fate is known
    ProposedIsrIsAssumed,
    /// acks=all waits for min.insync.replicas
    AcksAllBelowMinimum,
    /// the controller takes an ISR only from the leader under the current leader epoch
    IsrOfDeposedLeader,
    /// KIP-903: a member that registered anew since it fetched is not eligible
    IsrOfEarlierProcess,
    /// decision 10 LOSS: a leader elected uncleanly serves nothing before its cut
    RecoveringLeaderServes,
    /// decision 10 LOSS: with the suffix the kept tail holds no open transaction
    LossKeepsUndecidedTail,
    /// decision 10: a cut only under exactly the current leader epoch
    CutOfDeposedLeader,
    /// decision 10: PREPARING at most once per association
    PreparingTwice,
    /// decision 10: PREPARING never once the suffix stands
    PreparingAfterRemove,
    /// decision 10a: waiting produces are answered READ_ONLY_TOPIC
    WaitingProducesStay,
    /// decision 10b: STOPPING cuts where no transaction is open
    StopsAtLastStableOffset,
    /// decision 10d: a replica applies a cut before it fetches or leads
    CutIsNotApplied,
    /// decision 10d: a cut that was applied is not applied again
    CutIsAppliedTwice,
    /// decision 10d: the lowest of the missed cuts counts
    NewestMissedCutCounts,
    /// decision 10e: done only when each member has fetched under the cut's epoch
    ReplicasAreNotAwaited,
    /// decision 11: nothing is cut while the source could not be asked
    CouldNotAskCuts,
    /// decision 12: while the topic is not writable at the source, the asker waits
    ReadOnlySourceAnswers,
    /// decision 12: the answer is lowered to the cuts made there since
    AnswerIsNotLowered,
    /// decision 12: the newest released association counts, never a maximum
    HighestAnswerCounts,
    /// decision 12: released without a cut is not "nothing recorded"
    UncutIsNothing,
    /// decision 12: the asker lowers the offset to its own later cuts
    OwnCutsAreForgotten,
    /// decision 12: a deposed controller does not answer
    DeposedControllerAnswers,
    /// decision 12: what the controllers tell goes with a leader that is not older
    DeposedLeaderIsAsked,
    /// decision 12: an empty source never empties the last copy
    EmptySourceIsFollowed,
    /// decision 14: a release only for the current association and leader epoch
    ReleaseOfDeposedLeader,
    /// decision 14: a client writes only where a release is in the image
    ReadOnlyIsWritable,
    /// decision 16: a state is durable before its action
    ActionBeforeState,
    /// decision 16: state writes are fenced by epoch and association
    StateWritesAreNotFenced,
    /// decision 18: a second add waits until every partition is released
    AddBeforeReleased,
    /// decision 8: a batch above the own leader epoch is not appended
    EpochMayLieAboveOwn,
    /// decision 8: a copy is appended only under the current leader epoch
    MirrorAppendIsNotFenced,
    /// I-M2: nothing above the source's last stable offset is copied
    MirrorsUndecidedData,
    /// decision 10a: the fetcher is gone before a cut
    FetcherOutlivesItsStop,
    /// decision 20: a source that was cut below our end is FAILED
    SourceCutIsNotSeen,
    /// ADR 11: a copy takes note of its source's cuts with a cut of its own
    SourceCutIsNotNoted,
}

impl Mutation {
    pub fn named(name: &str) -> Option<Mutation> {
        Mutation::ALL.iter().copied().find(|mutation| mutation.name().eq_ignore_ascii_case(name))
    }
}

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
        if self.is(Mutation::PreparingAfterRemove) {
            change_topics(changed.to_mut(), |topic| {
                if let Some(mirror) = &topic.mirror {
                    let mut mirror = (**mirror).clone();
                    mirror.removed = false;
                    topic.mirror = Some(Arc::new(mirror));
                }
            });
        }
        changed
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
        facts
    }

    pub fn mutated_source_image<'a>(&self, image: &'a MetadataImage) -> Cow<'a, MetadataImage> {
        let mut changed = Cow::Borrowed(image);
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
