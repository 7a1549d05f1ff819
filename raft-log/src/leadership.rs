//! Who leads the quorum, as seen from here.

use std::collections::{BTreeMap, BTreeSet};

use openraft::ServerState;
use openraft::async_runtime::{Select2, WatchReceiver as _};
use openraft::type_config::TypeConfigExt as _;
use openraft::vote::RaftLeaderId as _;
use tokio::sync::watch;

use crate::config::VoterId;
use crate::gate::Gate;
use crate::type_config::{LogId, Raft, Types};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub term: u64,
    pub leader: Option<VoterId>,
    pub is_leader: bool,
    /// This node leads and has applied the first entry of its own term, and so every entry that any
    /// earlier leader had acknowledged. Nothing may be decided before.
    pub ready: bool,
}

/// Tells every change to the watch and the listener, until the log is shut down.
pub(crate) async fn follow<C: Types>(
    raft: Raft<C>,
    mut applied: watch::Receiver<Option<LogId>>,
    leadership: watch::Sender<Leadership>,
    gate: Gate,
    set_members: impl Fn(BTreeMap<VoterId, String>, BTreeSet<VoterId>),
) {
    let mut server = raft.server_metrics();
    loop {
        let now = {
            let metrics = server.borrow_and_update();
            let membership = metrics.membership_config.membership();
            let members = membership.nodes().map(|(id, node)| (*id, node.addr.clone()));
            set_members(members.collect(), membership.voter_ids().collect());
            let term = metrics.vote.leader_id.term();
            let is_leader =
                metrics.state == ServerState::Leader && metrics.current_leader == Some(metrics.id);
            let applied_term =
                applied.borrow_and_update().as_ref().map(|log_id| **log_id.committed_leader_id());
            let ready = is_leader && applied_term == Some(term);
            Leadership { term, leader: metrics.current_leader, is_leader, ready }
        };
        if publish(&leadership, now) {
            tracing::info!(
                term = now.term,
                leader = now.leader.map(|leader| leader.node_id),
                ready = now.ready,
                "quorum leadership"
            );
            gate.call(|listener| listener.leader_change(now));
        }
        let alive = match C::select2(server.changed(), applied.changed()).await {
            Select2::First(changed) => changed.is_ok(),
            Select2::Second(changed) => changed.is_ok(),
        };
        if !alive {
            break;
        }
    }
    // Whoever waits for leadership must see that this node has none any more.
    let last = Leadership { leader: None, is_leader: false, ready: false, ..*leadership.borrow() };
    if publish(&leadership, last) {
        gate.call(|listener| listener.leader_change(last));
    }
}

fn publish(leadership: &watch::Sender<Leadership>, now: Leadership) -> bool {
    leadership.send_if_modified(|current| {
        let changed = *current != now;
        *current = now;
        changed
    })
}
