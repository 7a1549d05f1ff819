//! Safety rules of the store and of the voters, each taken out in turn: the simulation must notice.

use tokio::sync::oneshot;

use crate::store::keys;
use crate::store::writer::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    VoteNotDurable,
    AppendNotDurable,
    TruncationNotAwaited,
    SnapshotMarkNotDurable,
    SnapshotNameNotSynced,
    WipedVoterKeepsItsId,
    SnapshotOfALaterState,
    LeaderRestored,
    HandedToItself,
}

impl Mutation {
    pub const ALL: &[Mutation] = &[
        Mutation::VoteNotDurable,
        Mutation::AppendNotDurable,
        Mutation::TruncationNotAwaited,
        Mutation::SnapshotMarkNotDurable,
        Mutation::SnapshotNameNotSynced,
        Mutation::WipedVoterKeepsItsId,
        Mutation::SnapshotOfALaterState,
        Mutation::LeaderRestored,
        Mutation::HandedToItself,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Mutation::VoteNotDurable => "quorum-vote-not-durable",
            Mutation::AppendNotDurable => "quorum-append-not-durable",
            Mutation::TruncationNotAwaited => "quorum-truncation-late",
            Mutation::SnapshotMarkNotDurable => "quorum-snapshot-mark",
            Mutation::SnapshotNameNotSynced => "quorum-snapshot-name",
            Mutation::WipedVoterKeepsItsId => "quorum-wiped-keeps-id",
            Mutation::SnapshotOfALaterState => "quorum-snapshot-later",
            Mutation::LeaderRestored => "quorum-leader-restored",
            Mutation::HandedToItself => "quorum-handed-to-itself",
        }
    }

    /// The rule that is taken out.
    pub fn rule(self) -> &'static str {
        match self {
            Mutation::VoteNotDurable => "a vote is durable before it is answered",
            Mutation::AppendNotDurable => "entries are durable before they are acknowledged",
            Mutation::TruncationNotAwaited => "a truncation is done before entries are appended after it",
            Mutation::SnapshotMarkNotDurable => {
                "a snapshot counts durably before the one before it is removed"
            }
            Mutation::SnapshotNameNotSynced => "a snapshot's name is durable before it counts",
            Mutation::WipedVoterKeepsItsId => "a voter with an empty disk is not the old voter",
            Mutation::SnapshotOfALaterState => "a snapshot holds the state of its last entry",
            Mutation::LeaderRestored => "a leader that starts anew does not go on in its old term",
            Mutation::HandedToItself => "a leader is not asked to hand over to itself",
        }
    }

    pub fn named(name: &str) -> Option<Mutation> {
        Mutation::ALL.iter().copied().find(|mutation| mutation.name() == name)
    }
}

/// Tampers with what the store hands to its writer. `held`: a truncation that comes too late.
pub fn tamper(mutation: Option<Mutation>, job: Job, held: &mut Option<Job>) -> Vec<Job> {
    let late = held.take();
    let job = match (mutation, job) {
        (Some(Mutation::AppendNotDurable), Job::Append { writes, first_index, end_index, done }) => {
            done(Ok(()));
            Job::Append { writes, first_index, end_index, done: Box::new(|_| {}) }
        }
        (Some(Mutation::VoteNotDurable), Job::Put { name, value, done }) if name == keys::VOTE => {
            Job::Put { name, value, done: answered(done) }
        }
        (Some(Mutation::SnapshotMarkNotDurable), Job::Put { name, value, done })
            if name == keys::SNAPSHOT =>
        {
            Job::Put { name, value, done: answered(done) }
        }
        (Some(Mutation::TruncationNotAwaited), Job::Truncate { from, done }) => {
            *held = Some(Job::Truncate { from, done: answered(done) });
            return late.into_iter().collect();
        }
        (_, job) => job,
    };
    std::iter::once(job).chain(late).collect()
}

/// Whoever asked hears at once that it is done.
fn answered(done: oneshot::Sender<std::io::Result<()>>) -> oneshot::Sender<std::io::Result<()>> {
    drop(done.send(Ok(())));
    oneshot::channel().0
}
