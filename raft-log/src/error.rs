//! Errors that callers act on.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::config::VoterId;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("quorum configuration: {0}")]
    Config(String),
    #[error("the quorum's store in {path} is in use by another process")]
    InUse { path: PathBuf },
    #[error(
        "the quorum's store in {path} is damaged: {reason}; it is not used, because a voter that forgot \
         its log or its vote can make the quorum lose acknowledged changes"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "the quorum was recovered without this controller (recovery {recovery}), and what is in {path} counts \
         no more: format its directory anew, start it, and `kagami quorum add` it"
    )]
    GivenUp { path: PathBuf, recovery: u64 },
    #[error("the quorum's store in {path} belongs to voter {stored} of cluster {stored_cluster_id}")]
    NotOurs { path: PathBuf, stored: VoterId, stored_cluster_id: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("consensus: {0}")]
    Consensus(String),
}

/// Why an append was not confirmed. Only [`AppendError::Unknown`] and [`AppendError::Shutdown`] leave
/// open whether the entry is, or will be, in the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    #[error("not the leader of the quorum (leader: {leader:?})")]
    NotLeader { leader: Option<VoterId> },
    /// This node leads, but in another term than the entry was computed under.
    #[error("the term has changed")]
    TermChanged,
    #[error("a payload of {bytes} bytes is above the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("leadership was lost before the entry was committed; it may or may not be in the log")]
    Unknown,
    #[error("the log was shut down")]
    Shutdown,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadIndexError {
    #[error("not the leader of the quorum (leader: {leader:?})")]
    NotLeader { leader: Option<VoterId> },
    #[error("no majority of the quorum answers")]
    NoQuorum,
    #[error("the log was shut down")]
    Shutdown,
}

/// Why the set of voters was not changed. Only after [`MembershipError::TimedOut`],
/// [`MembershipError::Lost`] and [`MembershipError::Shutdown`] the change may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MembershipError {
    #[error("not the leader of the quorum")]
    NotLeader,
    #[error("another change of the voters is under way")]
    InProgress,
    #[error(
        "controller {0} is not an observer of this quorum: it must run, with a voter's address in \
         controller.quorum.voters"
    )]
    NotAnObserver(VoterId),
    #[error("controller {0} is a voter already")]
    AlreadyAVoter(VoterId),
    #[error("node {} is a voter with another directory, and answers: {known}", .known.node_id)]
    NodeIsAVoter { known: VoterId },
    #[error("controller {0} is not a voter")]
    NotAVoter(VoterId),
    #[error("the last voter cannot be removed")]
    LastVoter,
    #[error("only {answering} of the {voters} voters that there would be answer: the quorum would be lost")]
    NoMajority { answering: usize, voters: usize },
    #[error("controller {0} has not caught up in time")]
    NotCaughtUp(VoterId),
    #[error("leadership was handed to controller {0}, which can remove this one")]
    HandedOver(VoterId),
    #[error("leadership could not be handed over, which the removal of the leader begins with")]
    NotHandedOver,
    #[error("timed out; the change may still happen")]
    TimedOut,
    #[error("leadership was lost; the change may still happen")]
    Lost,
    #[error("{0}")]
    Refused(String),
    #[error("the log was shut down")]
    Shutdown,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RaftLogError {
    #[error("node {0} is not a voter")]
    NotAVoter(u64),
    #[error("not the leader of the quorum")]
    NotLeader,
    #[error("timed out")]
    TimedOut,
    #[error("the log was shut down")]
    Shutdown,
}
