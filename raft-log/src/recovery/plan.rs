//! What an operator wants of a recovery, and what stands against it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::VoterId;
use crate::error::OpenError;

/// From the highest term known to that of the recovery: lost voters may have counted on for a while.
const TERM_STEP: u64 = 1000;
/// From which a recovery's number is drawn, above that: of two recoveries that know nothing of each other
/// one must be the later one, and their leaders must not share terms.
const NUMBERS: u64 = 100_000;
/// Kafka's leader epoch shows no higher one; some are left for what comes after.
const LAST_NUMBER: u64 = i32::MAX as u64 - TERM_STEP;

/// How far a voter's log reaches: `NODE@TERM:END`. Of two the one with the higher term has more, and with
/// the same term the longer one, as in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub node_id: u64,
    /// Of the last entry; 0: there is none.
    pub last_term: u64,
    /// First index that the log does not have.
    pub end_index: u64,
}

impl Position {
    fn has_more_than(&self, other: &Position) -> bool {
        (self.last_term, self.end_index) > (other.last_term, other.end_index)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.node_id, self.last_term, self.end_index)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Position, ()> {
        let (node_id, rest) = text.split_once('@').ok_or(())?;
        let (last_term, end_index) = rest.split_once(':').ok_or(())?;
        let number = |text: &str| text.parse().map_err(drop);
        Ok(Position {
            node_id: number(node_id)?,
            last_term: number(last_term)?,
            end_index: number(end_index)?,
        })
    }
}

/// What the store of a stopped voter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedVoter {
    pub voter: VoterId,
    pub position: Position,
    /// The term that it voted in last.
    pub term: u64,
    /// First index that it does not know to be committed.
    pub committed_end_index: u64,
    /// Of the newest membership in its log, with their addresses.
    pub voters: Vec<(VoterId, String)>,
    /// The same as sets of which each decides; more than one, the newest last, where the voters were being
    /// changed.
    pub configurations: Vec<BTreeSet<VoterId>>,
    /// Number of the last recovery; 0: there was none.
    pub recovery: u64,
    /// Number of the recovery that gave it up; 0: none did.
    pub given_up: u64,
}

/// What the operator wants: every voter is either kept, lost or a survivor that is given up as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub keep: u64,
    pub lost: BTreeSet<u64>,
    /// Survivors beside the one that is kept, and how far they reach.
    pub survivors: Vec<Position>,
}

#[derive(Debug, Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("there is no quorum's store in {0}: this controller never belonged to a quorum")]
    NoStore(std::path::PathBuf),
    #[error("the quorum's store holds no membership: this controller never belonged to a quorum")]
    NoMembership,
    #[error("this is controller {0}; the one to keep is {1}")]
    NotKept(u64, u64),
    #[error("controller {0} is no voter of the quorum: the voters are {1}")]
    NotAVoter(u64, String),
    #[error(
        "the voters are {voters}, and {named} are named: exactly one is kept, and each of the others is lost \
         or another survivor"
    )]
    OtherVoters { voters: String, named: String },
    #[error(
        "{survivors} of {voters} voters survive, which is a majority: start them, and they go on by themselves"
    )]
    MajoritySurvives { survivors: usize, voters: usize },
    #[error("controller {} has more ({theirs}) than this one ({ours}): recover from that one", .theirs.node_id)]
    LessThanAnother { ours: Position, theirs: Position },
    #[error("no term is left for a recovery: {0} is known, and the last is {last}", last = i32::MAX)]
    NoTermLeft(u64),
    #[error("the quorum's store: {0}")]
    Io(#[from] std::io::Error),
}

/// PURE: what stands against the plan.
pub fn check(found: &StoppedVoter, plan: &Plan) -> Result<(), RecoveryError> {
    let list = |ids: &BTreeSet<u64>| ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let voters: BTreeSet<u64> = found.voters.iter().map(|(voter, _)| voter.node_id).collect();
    let me = found.voter.node_id;
    if plan.keep != me {
        return Err(RecoveryError::NotKept(me, plan.keep));
    }
    if !found.voters.iter().any(|(voter, _)| *voter == found.voter) {
        return Err(RecoveryError::NotAVoter(me, list(&voters)));
    }
    let mut named = BTreeSet::from([me]);
    let others = plan.lost.iter().copied().chain(plan.survivors.iter().map(|position| position.node_id));
    let repeated = others.filter(|id| !named.insert(*id)).count();
    if repeated > 0 || named != voters {
        return Err(RecoveryError::OtherVoters { voters: list(&voters), named: list(&named) });
    }
    // One that was given up never goes on by itself.
    if found.given_up == 0 {
        check_majority(found, plan)?;
    }
    let ours = found.position;
    match plan.survivors.iter().find(|theirs| theirs.has_more_than(&ours)) {
        Some(theirs) => Err(RecoveryError::LessThanAnother { ours, theirs: *theirs }),
        None => Ok(()),
    }
}

/// They go on by themselves if they are a majority of each configuration.
fn check_majority(found: &StoppedVoter, plan: &Plan) -> Result<(), RecoveryError> {
    // A node with two directories has the newer one: the older one was replaced because it is gone.
    let newest_first = || found.configurations.iter().rev().flatten();
    let voter = |node_id: u64| newest_first().find(|voter| voter.node_id == node_id).copied();
    let mut surviving: BTreeSet<VoterId> =
        plan.survivors.iter().filter_map(|position| voter(position.node_id)).collect();
    surviving.insert(found.voter);
    let survivors_of = |voters: &BTreeSet<VoterId>| voters.intersection(&surviving).count();
    let all_have_one = found.configurations.iter().all(|voters| survivors_of(voters) * 2 > voters.len());
    match found.configurations.last() {
        Some(voters) if all_have_one => {
            Err(RecoveryError::MajoritySurvives { survivors: survivors_of(voters), voters: voters.len() })
        }
        _ => Ok(()),
    }
}

/// PURE: the recovery's number, above all that is known and unlike any other. `random` says which.
pub(super) fn number(found: &StoppedVoter, plan: &Plan, random: u64) -> Result<u64, RecoveryError> {
    let known = plan.survivors.iter().map(|survivor| survivor.last_term);
    let known = known.chain([found.term, found.position.last_term, found.recovery, found.given_up]);
    let highest = known.max().unwrap_or_default();
    let number = highest.saturating_add(TERM_STEP + random % NUMBERS);
    if number > LAST_NUMBER { Err(RecoveryError::NoTermLeft(highest)) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn voter(node_id: u64) -> VoterId {
        VoterId { node_id, directory_id: Uuid::from_u128(u128::from(node_id) + 100) }
    }

    fn at(node_id: u64, last_term: u64, end_index: u64) -> Position {
        Position { node_id, last_term, end_index }
    }

    fn found(me: u64, voters: &[u64]) -> StoppedVoter {
        StoppedVoter {
            voter: voter(me),
            position: at(me, 7, 100),
            term: 8,
            committed_end_index: 98,
            voters: voters.iter().map(|id| (voter(*id), String::new())).collect(),
            configurations: vec![voters.iter().map(|id| voter(*id)).collect()],
            recovery: 0,
            given_up: 0,
        }
    }

    fn refused(me: u64, voters: &[u64], lost: &[u64], survivors: &[Position]) -> Option<String> {
        let plan = Plan { keep: me, lost: lost.iter().copied().collect(), survivors: survivors.to_vec() };
        check(&found(me, voters), &plan).err().map(|error| error.to_string())
    }

    #[test]
    fn only_the_exact_set_of_voters_is_accepted() {
        assert_eq!(refused(1, &[1, 2, 3], &[2, 3], &[]), None);
        assert_eq!(refused(1, &[1, 2, 3, 4, 5], &[3, 4, 5], &[at(2, 7, 99)]), None);
        for (lost, survivors) in [
            (&[2][..], &[][..]),
            (&[2, 3, 4], &[]),
            (&[], &[]),
            (&[1, 2, 3], &[]),
            // One that is named twice.
            (&[2, 3], &[at(3, 1, 1)]),
        ] {
            let error = refused(1, &[1, 2, 3], lost, survivors).unwrap();
            assert!(error.contains("the voters are 1, 2, 3"), "{error}");
        }
        assert!(refused(4, &[1, 2, 3], &[1, 2, 3], &[]).unwrap().contains("no voter"));
        let plan = Plan { keep: 2, ..Plan::default() };
        assert!(check(&found(1, &[1, 2, 3]), &plan).unwrap_err().to_string().contains("controller 1"));
        // The same node with a directory of its own is another voter.
        let mut wiped = found(1, &[1, 2, 3]);
        wiped.voter.directory_id = Uuid::nil();
        let plan = Plan { keep: 1, lost: BTreeSet::from([2, 3]), survivors: Vec::new() };
        assert!(matches!(check(&wiped, &plan), Err(RecoveryError::NotAVoter(1, _))));
    }

    #[test]
    fn a_majority_needs_no_recovery() {
        for (voters, lost, survivors) in [
            (&[1][..], &[][..], &[][..]),
            (&[1, 2, 3], &[3], &[at(2, 1, 1)]),
            (&[1, 2, 3, 4, 5], &[4, 5], &[at(2, 1, 1), at(3, 1, 1)]),
        ] {
            assert!(refused(1, voters, lost, survivors).unwrap().contains("a majority"));
        }
        assert_eq!(refused(1, &[1, 2], &[2], &[]), None);
        let given_up = StoppedVoter { given_up: 9, ..found(1, &[1, 2, 3]) };
        let plan = Plan { keep: 1, lost: BTreeSet::from([3]), survivors: vec![at(2, 1, 1)] };
        assert!(check(&given_up, &plan).is_ok(), "they would not start");
    }

    #[test]
    fn while_voters_are_changed_each_set_needs_its_majority() {
        let wiped = VoterId { node_id: 3, directory_id: Uuid::from_u128(7) };
        let set = |ids: &[u64]| ids.iter().copied().map(voter).collect::<BTreeSet<_>>();
        let anew = BTreeSet::from([voter(1), voter(2), wiped]);
        for (configurations, me, lost, survivors, stuck) in [
            (vec![set(&[1, 2]), set(&[1, 2, 3])], voter(1), &[2][..], &[3][..], true),
            (vec![set(&[1, 2]), set(&[1, 2, 3])], voter(1), &[3], &[2], false),
            (vec![set(&[1, 2, 3]), set(&[1, 2, 3, 4])], voter(1), &[3, 4], &[2], true),
            (vec![set(&[1, 2, 3]), set(&[1, 2, 3, 4])], voter(1), &[3], &[2, 4], false),
            // The earlier directory of 3 is gone, whoever is kept.
            (vec![set(&[1, 2, 3]), anew.clone()], voter(1), &[2], &[3], true),
            (vec![set(&[1, 2, 3]), anew.clone()], wiped, &[2], &[1], true),
            (vec![set(&[1, 2, 3]), anew.clone()], voter(1), &[3], &[2], false),
        ] {
            let all: BTreeSet<VoterId> = configurations.iter().flatten().copied().collect();
            let found = StoppedVoter {
                voter: me,
                voters: all.into_iter().map(|id| (id, String::new())).collect(),
                configurations,
                ..found(me.node_id, &[])
            };
            let survivors: Vec<Position> = survivors.iter().map(|id| at(*id, 1, 1)).collect();
            let plan = Plan { keep: me.node_id, lost: lost.iter().copied().collect(), survivors };
            let refused = check(&found, &plan).err();
            assert_eq!(refused.is_none(), stuck, "{:?} {plan:?}: {refused:?}", found.configurations);
        }
    }

    #[test]
    fn the_survivor_with_the_most_is_kept() {
        for (theirs, less) in [
            (at(2, 7, 101), true),
            (at(2, 8, 1), true),
            (at(2, 7, 100), false),
            (at(2, 6, 500), false),
            (at(2, 7, 99), false),
        ] {
            let error = refused(1, &[1, 2, 3, 4, 5], &[3, 4, 5], &[theirs]);
            assert_eq!(error.is_some(), less, "{theirs}: {error:?}");
            assert!(error.is_none_or(|error| error.contains(&format!("controller 2 has more ({theirs})"))));
        }
    }

    #[test]
    fn a_recovery_is_above_all_that_is_known_and_unlike_another() {
        let plan = Plan { survivors: vec![at(2, 20, 9)], ..Plan::default() };
        let known = |recovery| StoppedVoter { recovery, ..found(1, &[1, 2, 3]) };
        assert_eq!(number(&known(0), &plan, 0).unwrap(), 1_020);
        assert_eq!(number(&known(50), &plan, 0).unwrap(), 1_050);
        let given_up = StoppedVoter { given_up: 70, ..known(50) };
        assert_eq!(number(&given_up, &plan, 0).unwrap(), 1_070);
        assert_ne!(number(&known(50), &plan, 1).unwrap(), number(&known(50), &plan, 2).unwrap());
        assert!(number(&known(50), &plan, u64::MAX).unwrap() < 200_000);
        for last in [i32::MAX as u64, u64::MAX] {
            assert!(matches!(number(&known(last), &plan, 0), Err(RecoveryError::NoTermLeft(_))), "{last}");
        }
    }

    #[test]
    fn positions_are_read_as_they_are_written() {
        let position = at(103, 7, 1234);
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "103", "103@7", "103@7:", "@7:1", "a@7:1", "/data/103@7:x"] {
            assert_eq!(wrong.parse::<Position>(), Err(()), "{wrong}");
        }
    }
}
