//! Changes of the voters, on the leader: one at a time, and only those that leave a majority which
//! answers. A controller becomes an observer first (a learner of the consensus) by announcing itself,
//! catches up, and is made a voter when an operator asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::{Instant as _, WatchReceiver as _};
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::impls::BasicNode;
use openraft::type_config::TypeConfigExt as _;
use openraft::{ChangeMembers, LogIdOptionExt as _, RaftMetrics, ServerState, alias};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::config::VoterId;
use crate::error::MembershipError;
use crate::type_config::{Raft, TypeConfig, Types};

/// An observer this close to the leader's end becomes a voter: the rest comes with the next appends.
const CAUGHT_UP_ENTRIES: u64 = 256;
const POLL: Duration = Duration::from_millis(20);
/// Observers that may be there at a time: each costs the leader a stream.
const MAX_OBSERVERS: usize = 16;
/// As Kafka forgets an observer.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(300);
const TEND_INTERVAL: Duration = Duration::from_millis(200);

type Changes = ChangeMembers<VoterId, BasicNode>;
type Instant<C> = alias::InstantOf<C>;

/// The one place that changes the membership. Clones share it.
#[derive(Clone)]
pub(crate) struct Changer<C: Types = TypeConfig> {
    raft: Raft<C>,
    me: VoterId,
    /// Who has not been heard of for this long does not answer.
    silence: Duration,
    /// Held by an operator's change from its beginning to its end: there is one at a time.
    operation: Arc<Mutex<()>>,
    /// Held while a membership is being written. Observers that come and go take it for a moment, and an
    /// operator's change waits for them.
    turn: Arc<Mutex<()>>,
}

/// What the leader knows of the members.
struct View {
    /// Of the newest configuration.
    voters: BTreeSet<VoterId>,
    joint: bool,
    nodes: BTreeMap<VoterId, String>,
    silent_for: BTreeMap<VoterId, Option<Duration>>,
    lag: BTreeMap<VoterId, u64>,
}

impl View {
    fn of<C: Types>(metrics: &RaftMetrics<C>) -> View {
        let membership = metrics.membership_config.membership();
        let configs = membership.get_joint_config();
        let end = metrics.last_log_index.map_or(0, |index| index + 1);
        let heard = metrics.heartbeat.clone().unwrap_or_default();
        let matched = metrics.replication.clone().unwrap_or_default();
        View {
            voters: configs.last().cloned().unwrap_or_default(),
            joint: configs.len() > 1,
            nodes: membership.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
            silent_for: heard.iter().map(|(id, at)| (*id, at.as_ref().map(|at| at.elapsed()))).collect(),
            lag: matched.iter().map(|(id, at)| (*id, end.saturating_sub(at.next_index()))).collect(),
        }
    }

    fn answers(&self, voter: VoterId, me: VoterId, silence: Duration) -> bool {
        voter == me || self.silent_for.get(&voter).copied().flatten().is_some_and(|for_| for_ <= silence)
    }

    /// The set after a change must have a majority that answers now, or nothing could be committed
    /// any more, not even the way back.
    fn check_majority(
        &self,
        voters: &BTreeSet<VoterId>,
        me: VoterId,
        silence: Duration,
    ) -> Result<(), MembershipError> {
        let answering = voters.iter().filter(|voter| self.answers(**voter, me, silence)).count();
        if answering * 2 > voters.len() {
            return Ok(());
        }
        Err(MembershipError::NoMajority { answering, voters: voters.len() })
    }

    fn has_caught_up(&self, voter: VoterId) -> bool {
        self.lag.get(&voter).is_some_and(|lag| *lag <= CAUGHT_UP_ENTRIES)
    }
}

impl<C: Types> Changer<C> {
    pub fn new(raft: Raft<C>, me: VoterId, silence: Duration) -> Changer<C> {
        Changer { raft, me, silence, operation: Arc::default(), turn: Arc::default() }
    }

    fn view(&self) -> Result<View, MembershipError> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.running_state.is_err() {
            return Err(MembershipError::Shutdown);
        }
        if metrics.state != ServerState::Leader || metrics.current_leader != Some(self.me) {
            return Err(MembershipError::NotLeader);
        }
        Ok(View::of(&metrics))
    }

    fn begin_operation(&self) -> Result<OwnedMutexGuard<()>, MembershipError> {
        self.operation.clone().try_lock_owned().map_err(|_| MembershipError::InProgress)
    }

    async fn wait_turn(&self, deadline: Instant<C>) -> Result<OwnedMutexGuard<()>, MembershipError> {
        let turn = C::timeout_at(deadline, self.turn.clone().lock_owned()).await;
        turn.map_err(|_| MembershipError::InProgress)
    }

    fn take_turn(&self) -> Result<OwnedMutexGuard<()>, MembershipError> {
        self.turn.clone().try_lock_owned().map_err(|_| MembershipError::InProgress)
    }

    /// Makes an observer a voter. A voter of the same node that does not answer, and so has lost its
    /// directory, is replaced in the same step.
    pub async fn add_voter(&self, voter: VoterId, patience: Duration) -> Result<(), MembershipError> {
        let deadline = C::now() + patience;
        let operation = self.begin_operation()?;
        // One that was wiped a moment ago was heard of a moment ago.
        let presence_known = C::now() + self.silence * 2;
        // It may have been started a moment ago.
        loop {
            let view = self.view()?;
            if view.voters.contains(&voter) {
                return Err(MembershipError::AlreadyAVoter(voter));
            }
            if let Some(known) = view.voters.iter().find(|known| known.node_id == voter.node_id)
                && view.answers(*known, self.me, self.silence)
            {
                if C::now() >= presence_known.min(deadline) {
                    return Err(MembershipError::NodeIsAVoter { known: *known });
                }
                C::sleep(POLL).await;
                continue;
            }
            if view.nodes.contains_key(&voter) {
                break;
            }
            if C::now() >= deadline {
                return Err(MembershipError::NotAnObserver(voter));
            }
            C::sleep(POLL).await;
        }
        let turn = self.wait_turn(deadline).await?;
        let voters = loop {
            let view = self.view()?;
            if view.joint {
                return Err(MembershipError::InProgress);
            }
            if view.has_caught_up(voter) && view.answers(voter, self.me, self.silence) {
                let mut voters = view.voters.clone();
                voters.retain(|known| known.node_id != voter.node_id);
                voters.insert(voter);
                view.check_majority(&voters, self.me, self.silence)?;
                break voters;
            }
            if C::now() >= deadline {
                return Err(MembershipError::NotCaughtUp(voter));
            }
            C::sleep(POLL).await;
        };
        tracing::info!(%voter, "voter is being added");
        self.change((turn, Some(operation)), ChangeMembers::ReplaceAllVoters(voters), deadline).await
    }

    /// Removes a voter. The leader hands over first, and the next one removes it.
    pub async fn remove_voter(&self, voter: VoterId, patience: Duration) -> Result<(), MembershipError> {
        let deadline = C::now() + patience;
        let operation = self.begin_operation()?;
        let turn = self.wait_turn(deadline).await?;
        let view = self.view()?;
        if view.joint {
            return Err(MembershipError::InProgress);
        }
        let mut left = view.voters.clone();
        if !left.remove(&voter) {
            return Err(MembershipError::NotAVoter(voter));
        }
        if left.is_empty() {
            return Err(MembershipError::LastVoter);
        }
        if voter == self.me {
            view.check_majority(&left, self.me, self.silence)?;
            return self.hand_over(&view, &left, deadline).await;
        }
        view.check_majority(&left, self.me, self.silence)?;
        tracing::info!(%voter, "voter is being removed");
        self.change((turn, Some(operation)), ChangeMembers::ReplaceAllVoters(left), deadline).await
    }

    /// Asks another voter to lead. The leader itself goes on as it is: openraft would take nothing more from
    /// anybody until the next leader is there, and that one never comes.
    pub async fn begin_hand_over(&self, next: VoterId) -> Result<(), MembershipError> {
        if next == self.me {
            return Ok(());
        }
        self.raft.trigger().transfer_leader(next).await.map_err(|_| MembershipError::Shutdown)
    }

    async fn hand_over(
        &self,
        view: &View,
        left: &BTreeSet<VoterId>,
        deadline: Instant<C>,
    ) -> Result<(), MembershipError> {
        let answering = left.iter().filter(|voter| view.answers(**voter, self.me, self.silence));
        let next = answering.min_by_key(|voter| view.lag.get(voter).copied().unwrap_or(u64::MAX));
        let next = *next.ok_or(MembershipError::NotHandedOver)?;
        tracing::info!(to = %next, "the leader is to be removed: leadership is handed over");
        self.begin_hand_over(next).await?;
        let limit = deadline.min(C::now() + self.silence * 2);
        let wait = self.raft.wait(Some(limit.saturating_duration_since(C::now())));
        match wait.metrics(|metrics| metrics.current_leader == Some(next), "hand over").await {
            Ok(_) => Err(MembershipError::HandedOver(next)),
            Err(_) => Err(MembershipError::NotHandedOver),
        }
    }

    /// Gives a member another address.
    pub async fn update_address(
        &self,
        member: VoterId,
        address: &str,
        patience: Duration,
    ) -> Result<(), MembershipError> {
        let deadline = C::now() + patience;
        let turn = self.take_turn()?;
        let view = self.view()?;
        match view.nodes.get(&member) {
            None => return Err(MembershipError::NotAVoter(member)),
            Some(known) if known == address => return Ok(()),
            Some(known) => tracing::info!(%member, from = known, to = address, "address of a controller"),
        }
        let node = BTreeMap::from([(member, BasicNode::new(address))]);
        self.change((turn, None), ChangeMembers::SetNodes(node), deadline).await
    }

    /// A controller has announced itself.
    pub async fn announced(&self, member: VoterId, address: &str) -> Result<(), MembershipError> {
        let deadline = C::now() + self.silence * 4;
        let view = self.view()?;
        if view.nodes.get(&member).is_some_and(|known| known == address) || view.joint {
            return Ok(());
        }
        if view.nodes.contains_key(&member) {
            return self.update_address(member, address, self.silence * 4).await;
        }
        let turn = self.take_turn()?;
        let observers = || view.nodes.keys().filter(|id| !view.voters.contains(id));
        // The same node with an earlier directory, which is gone.
        let former: BTreeSet<VoterId> =
            observers().filter(|id| id.node_id == member.node_id).copied().collect();
        if observers().count() - former.len() >= MAX_OBSERVERS {
            return Err(MembershipError::Refused(format!("there are {MAX_OBSERVERS} observers already")));
        }
        tracing::info!(controller = %member, address, "a controller observes the quorum");
        let node = BTreeMap::from([(member, BasicNode::new(address))]);
        let changes = vec![ChangeMembers::RemoveNodes(former), ChangeMembers::AddNodes(node)];
        self.change((turn, None), ChangeMembers::Batch(changes), deadline).await
    }

    /// Runs to its end even where nobody waits any more: half a change is worse than a late one.
    async fn change(
        &self,
        turns: (OwnedMutexGuard<()>, Option<OwnedMutexGuard<()>>),
        changes: Changes,
        deadline: Instant<C>,
    ) -> Result<(), MembershipError> {
        let raft = self.raft.clone();
        let task = C::spawn(async move {
            let outcome = raft.change_membership(changes, false).await;
            drop(turns);
            outcome
        });
        match C::timeout_at(deadline, task).await {
            Err(_) => Err(MembershipError::TimedOut),
            Ok(Err(_)) => Err(MembershipError::Shutdown),
            Ok(Ok(Ok(_))) => Ok(()),
            Ok(Ok(Err(RaftError::Fatal(_)))) => Err(MembershipError::Shutdown),
            Ok(Ok(Err(RaftError::APIError(error)))) => Err(match error {
                ClientWriteError::ForwardToLeader(_) => MembershipError::Lost,
                ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => {
                    MembershipError::InProgress
                }
                error => MembershipError::Refused(error.to_string()),
            }),
        }
    }

    /// Finishes what a leader before left half done, and forgets observers that are gone. Ends with the
    /// consensus.
    pub async fn tend(self) {
        loop {
            C::sleep(TEND_INTERVAL).await;
            let view = match self.view() {
                Ok(view) => view,
                Err(MembershipError::Shutdown) => return,
                Err(_) => continue,
            };
            let deadline = C::now() + self.silence * 4;
            let Ok(turn) = self.take_turn() else { continue };
            let changes = if view.joint {
                tracing::info!("a change of the voters that was begun is finished");
                ChangeMembers::AddVoterIds(BTreeSet::new())
            } else {
                let gone = view.nodes.keys().filter(|id| !view.voters.contains(id)).filter(|id| {
                    view.silent_for.get(id).copied().flatten().is_some_and(|for_| for_ > OBSERVER_TIMEOUT)
                });
                let gone: BTreeSet<VoterId> = gone.copied().collect();
                if gone.is_empty() {
                    continue;
                }
                tracing::info!(?gone, "observers that are gone are forgotten");
                ChangeMembers::RemoveNodes(gone)
            };
            if let Err(error) = self.change((turn, None), changes, deadline).await {
                tracing::debug!(%error, "membership not changed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn voter(node_id: u64) -> VoterId {
        VoterId { node_id, directory_id: Uuid::nil() }
    }

    #[test]
    fn a_set_without_a_majority_that_answers_is_refused() {
        let silence = Duration::from_secs(1);
        let view = View {
            voters: (1..=3).map(voter).collect(),
            joint: false,
            nodes: BTreeMap::new(),
            silent_for: BTreeMap::from([
                (voter(2), Some(Duration::from_millis(10))),
                (voter(3), Some(Duration::from_secs(9))),
                (voter(4), None),
            ]),
            lag: BTreeMap::from([(voter(2), CAUGHT_UP_ENTRIES), (voter(3), CAUGHT_UP_ENTRIES + 1)]),
        };
        let check =
            |ids: &[u64]| view.check_majority(&ids.iter().copied().map(voter).collect(), voter(1), silence);
        assert_eq!(check(&[1, 2, 3]), Ok(()));
        assert_eq!(check(&[1]), Ok(()));
        assert_eq!(check(&[1, 3]), Err(MembershipError::NoMajority { answering: 1, voters: 2 }));
        assert_eq!(check(&[1, 2, 3, 4]), Err(MembershipError::NoMajority { answering: 2, voters: 4 }));
        assert!(view.has_caught_up(voter(2)));
        assert!(!view.has_caught_up(voter(3)) && !view.has_caught_up(voter(4)));
    }
}
