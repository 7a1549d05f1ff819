//! The first start: no voter founds a quorum before all of them are known to be empty (decision
//! "Voters").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{InitializeError, RaftError};
use openraft::impls::BasicNode;
use tokio::task::JoinSet;

use crate::config::VoterId;
use crate::network::client::Peers;
use crate::network::probe::{ProbeAnswer, probe};
use crate::store::Store;
use crate::type_config::{Raft, TypeConfig};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A founding that waits says so once in this many attempts.
const ATTEMPTS_PER_WARNING: u32 = 20;

pub(crate) struct Founding {
    pub me: VoterId,
    pub voters: Vec<(u64, String)>,
    pub raft: Raft,
    pub store: Store,
    pub peers: Arc<Peers>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Not all have answered, or not all have made the membership durable.
    Wait(String),
    Persist(Vec<VoterId>),
    Initialise(Vec<VoterId>),
    /// There is a quorum: whoever is in it will be told by its leader.
    Observe,
    /// People have to look at it; nothing is founded.
    Conflict(String),
}

impl Founding {
    /// Returns once this voter has a log or is known to be an observer.
    pub async fn run(self) {
        let mut pause = FIRST_PAUSE;
        for attempt in 0u32.. {
            if self.store.has_log() {
                return;
            }
            let answers = self.ask().await;
            let reason = match decide(self.me, &self.store.founding(), &self.voters, &answers) {
                Step::Observe => {
                    tracing::info!(
                        "this controller founds no quorum: there is one already, or it is not listed in \
                         controller.quorum.voters; it observes until it is added"
                    );
                    return;
                }
                Step::Persist(voters) => match self.store.save_founding(voters).await {
                    Ok(()) => continue,
                    Err(error) => error.to_string(),
                },
                Step::Initialise(voters) => match self.initialise(&voters).await {
                    Ok(()) => return,
                    Err(error) => error,
                },
                Step::Wait(reason) | Step::Conflict(reason) => reason,
            };
            if attempt % ATTEMPTS_PER_WARNING == ATTEMPTS_PER_WARNING - 1 {
                tracing::warn!(reason, "the quorum is not founded yet");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 5 / 4).min(LONGEST_PAUSE);
        }
    }

    /// Asks all listed voters at once; one that is silent does not hold up the others.
    async fn ask(&self) -> BTreeMap<u64, Result<ProbeAnswer, String>> {
        let mut probes = JoinSet::new();
        for (node_id, address) in
            self.voters.iter().filter(|(node_id, _)| *node_id != self.me.node_id).cloned()
        {
            let peers = self.peers.clone();
            probes.spawn(async move { (node_id, probe(&peers, &address).await) });
        }
        let mut answers = BTreeMap::new();
        while let Some(answer) = probes.join_next().await {
            answers.extend(answer);
        }
        answers
    }

    async fn initialise(&self, voters: &[VoterId]) -> Result<(), String> {
        let members: BTreeMap<VoterId, BasicNode> = voters
            .iter()
            .filter_map(|voter| {
                let (_, address) = self.voters.iter().find(|(node_id, _)| *node_id == voter.node_id)?;
                Some((*voter, BasicNode::new(address)))
            })
            .collect();
        match self.raft.initialize(members).await {
            // The election has begun with it.
            Ok(()) => tracing::info!(voters = voters.len(), "quorum founded"),
            // A vote or a log has come meanwhile: there is a quorum.
            Err(RaftError::APIError(InitializeError::<TypeConfig>::NotAllowed(_))) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}

/// PURE: what follows from the answers of the others.
fn decide(
    me: VoterId,
    own_founding: &[VoterId],
    listed: &[(u64, String)],
    answers: &BTreeMap<u64, Result<ProbeAnswer, String>>,
) -> Step {
    if !listed.iter().any(|(node_id, _)| *node_id == me.node_id) {
        return Step::Observe;
    }
    if answers.values().flatten().any(|answer| answer.has_log) {
        return Step::Observe;
    }
    let mut voters = vec![me];
    for (node_id, answer) in answers {
        match answer {
            Err(reason) => return Step::Wait(format!("controller {node_id}: {reason}")),
            Ok(answer) if answer.voter.node_id != *node_id => {
                return Step::Conflict(format!("controller {} answers for {node_id}", answer.voter.node_id));
            }
            Ok(answer) => voters.push(answer.voter),
        }
    }
    voters.sort_unstable();
    if voters.len() != listed.len() {
        return Step::Wait("not all controllers have been asked".into());
    }
    let foundings = answers.values().flatten().map(|answer| (answer.voter, answer.founding.as_slice()));
    let foundings: Vec<_> = foundings.chain([(me, own_founding)]).collect();
    if let Some((other, _)) =
        foundings.iter().find(|(_, founding)| !founding.is_empty() && *founding != voters.as_slice())
    {
        // One of the voters it has agreed on was replaced before the quorum began to work. Who knows
        // what that one had seen.
        return Step::Conflict(format!("{other} has agreed on other voters; one of them was formatted anew"));
    }
    if own_founding.is_empty() {
        return Step::Persist(voters);
    }
    if let Some((other, _)) = foundings.iter().find(|(_, founding)| founding.is_empty()) {
        return Step::Wait(format!("{other} has not stored the membership yet"));
    }
    if voters.first() == Some(&me) {
        Step::Initialise(voters)
    } else {
        Step::Wait("the lowest id founds the quorum".into())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn voter(node_id: u64) -> VoterId {
        VoterId { node_id, directory_id: Uuid::from_u128(u128::from(node_id) + 100) }
    }

    fn listed() -> Vec<(u64, String)> {
        (1..=3).map(|node_id| (node_id, String::new())).collect()
    }

    fn says(node_id: u64, has_log: bool, founding: &[VoterId]) -> (u64, Result<ProbeAnswer, String>) {
        (node_id, Ok(ProbeAnswer { voter: voter(node_id), has_log, founding: founding.to_vec() }))
    }

    fn step(me: u64, own: &[VoterId], answers: &[(u64, Result<ProbeAnswer, String>)]) -> Step {
        decide(voter(me), own, &listed(), &answers.iter().cloned().collect())
    }

    #[test]
    fn nothing_is_founded_before_all_are_known_to_be_empty() {
        let all = [voter(1), voter(2), voter(3)];
        let silent = (3, Err("silent".to_owned()));
        assert!(matches!(step(1, &[], &[says(2, false, &[]), silent.clone()]), Step::Wait(_)));
        assert!(matches!(step(1, &[], &[says(2, false, &[])]), Step::Wait(_)));
        assert_eq!(step(1, &[], &[says(2, false, &[]), says(3, false, &[])]), Step::Persist(all.to_vec()));
        assert_eq!(step(3, &[], &[says(1, false, &all), says(2, false, &[])]), Step::Persist(all.to_vec()));
        assert!(matches!(step(1, &all, &[says(2, false, &all), says(3, false, &[])]), Step::Wait(_)));
        assert_eq!(
            step(1, &all, &[says(2, false, &all), says(3, false, &all)]),
            Step::Initialise(all.to_vec())
        );
        assert!(matches!(step(2, &all, &[says(1, false, &all), says(3, false, &all)]), Step::Wait(_)));
    }

    #[test]
    fn an_empty_voter_beside_a_log_observes() {
        let all = [voter(1), voter(2), voter(3)];
        let silent = (3, Err("silent".to_owned()));
        assert_eq!(step(1, &[], &[says(2, true, &all), silent]), Step::Observe);
        assert_eq!(step(1, &all, &[says(2, true, &all), says(3, false, &all)]), Step::Observe);
        assert_eq!(step(9, &[], &[says(1, false, &[])]), Step::Observe);
    }

    #[test]
    fn a_voter_formatted_anew_during_the_founding_stops_it() {
        let replaced = VoterId { node_id: 3, directory_id: Uuid::from_u128(7) };
        let old = [voter(1), voter(2), replaced];
        assert!(matches!(step(1, &old, &[says(2, false, &old), says(3, false, &[])]), Step::Conflict(_)));
        assert!(matches!(step(3, &[], &[says(1, false, &old), says(2, false, &[])]), Step::Conflict(_)));
        let wrong = (3, Ok(ProbeAnswer { voter: voter(2), has_log: false, founding: vec![] }));
        assert!(matches!(step(1, &[], &[says(2, false, &[]), wrong]), Step::Conflict(_)));
    }

    #[test]
    fn a_single_voter_founds_at_once() {
        let alone = [(1, String::new())];
        assert_eq!(decide(voter(1), &[], &alone, &BTreeMap::new()), Step::Persist(vec![voter(1)]));
        assert_eq!(decide(voter(1), &[voter(1)], &alone, &BTreeMap::new()), Step::Initialise(vec![voter(1)]));
    }
}
