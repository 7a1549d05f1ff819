//! The simulation, tested: each mutation takes one safety rule out, by forging what a machine is told (`forgery.rs`) or
//! by leaving out what it says. The run must then find a violation.

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
    /// decision 10: STOPPING at most once per association
    StoppingTwice,
    /// decision 10: STOPPING only when the suffix stands
    StoppingBeforeRemove,
    /// decision 10: an unclean election stays unsettled through later ones
    RecoveringIsForgotten,
    /// decision 10a: waiting produces are answered READ_ONLY_TOPIC
    WaitingProducesStay,
    /// decision 10b: before STOPPING the high watermark has reached the log end
    StoppingDoesNotWait,
    /// decision 10b: without a PREPARING cut of the association nothing is cut and nothing recorded
    StopsWithoutPreparing,
    /// decision 10b: STOPPING cuts where no transaction is open
    StopsAtLastStableOffset,
    /// decision 10c: nobody truncates before the cut is committed
    TruncatesBeforeCommit,
    /// decision 10d: a replica applies a cut before it fetches or leads
    CutIsNotApplied,
    /// decision 10d: a cut that was applied is not applied again
    CutIsAppliedTwice,
    /// decision 10d: a cut is noted once it is durable
    CutNotedBeforeDurable,
    /// decision 10d: the lowest of the missed cuts counts
    NewestMissedCutCounts,
    /// decision 10e: done only when each member has fetched under the cut's epoch
    ReplicasAreNotAwaited,
    /// decision 11: the cut comes before the first fetch
    FetchesBeforePreparing,
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
    /// decision 12: only what was copied from the asker's cluster is an answer
    AnswersForAnotherCluster,
    /// decision 9: the last mirrored offset is exclusive
    OffsetIsInclusive,
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
    /// decision 14: what was released is never stopped again
    ReleasedIsStoppedAgain,
    /// decision 16: a state is durable before its action
    ActionBeforeState,
    /// decision 16: state writes are fenced by epoch and association
    StateWritesAreNotFenced,
    /// decision 18: a remove is refused for no state that a partition is in
    RemoveIsRefused,
    /// decision 18: a second add waits until every partition is released
    AddBeforeReleased,
    /// decision 8: a batch above the own leader epoch is not appended
    EpochMayLieAboveOwn,
    /// decision 8: a copy is appended only under the current leader epoch
    MirrorAppendIsNotFenced,
    /// decision 8: a mirror's leader answers for epochs that it does not know
    UnknownEpochsAreUndefined,
    /// I-M2: nothing above the source's last stable offset is copied
    MirrorsUndecidedData,
    /// decision 10a: the fetcher is gone before a cut
    FetcherOutlivesItsStop,
    /// decision 20: a source that was cut below our end is FAILED
    SourceCutIsNotSeen,
    /// decision 20: the id of the newest cut that was seen advances only when the check passes
    SeenAdvancesUnchecked,
    /// decision 19: an id that comes back starts above the epochs of the deleted topic
    EpochsStartAnew,
    /// ADR 11: a copy takes note of its source's cuts with a cut of its own
    SourceCutIsNotNoted,
}

impl Mutation {
    pub fn named(name: &str) -> Option<Mutation> {
        Mutation::ALL.iter().copied().find(|mutation| mutation.name().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_rules_names_every_mutation_of_a_decision_and_no_other() {
        let rules = include_str!("../../../docs/rules.md");
        let quoted = |name: &str| rules.contains(&format!("`{name}`"));
        for mutation in Mutation::ALL {
            let of_a_decision = mutation.rule().contains("decision ");
            assert!(!of_a_decision || quoted(mutation.name()), "{} is not in docs/rules.md", mutation.name());
        }
        let names = rules.split('`').skip(1).step_by(2);
        let names = names.filter(|name| name.chars().next().is_some_and(char::is_uppercase));
        for name in names.filter(|name| *name != "CamelCase") {
            assert!(Mutation::named(name).is_some(), "docs/rules.md names {name}");
        }
    }
}
