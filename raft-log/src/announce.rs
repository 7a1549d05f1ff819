//! A controller that the membership lacks, or has at another address, tells the leader of itself until
//! it is there: so an observer joins, and a voter may move. A recovered one that is still alone calls where
//! the others were: another survivor may have been recovered as well, and the earlier of the two must end.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use protocol::proto::raft as wire;
use tokio::time::{sleep, timeout};

use crate::config::VoterId;
use crate::contact::Contact;
use crate::network::client::{Peers, Use};
use crate::network::to_wire;
use crate::type_config::Raft;

const INTERVAL: Duration = Duration::from_millis(250);
const TIMEOUT: Duration = Duration::from_secs(1);
/// Of intervals: nobody waits for what one finds that is alone.
const ROUNDS_ALONE: u32 = 4;

pub(crate) struct Announcer {
    pub me: VoterId,
    pub address: String,
    pub raft: Raft,
    pub peers: Arc<Peers>,
    pub contact: Contact,
    /// A leader that was not heard for so long may have dropped this one from the membership.
    pub silence: Duration,
}

impl Announcer {
    pub async fn run(self) {
        let mut round = 0;
        loop {
            sleep(INTERVAL).await;
            round = (round + 1) % ROUNDS_ALONE;
            if self.is_needed() || (round == 0 && self.is_alone()) {
                self.announce().await;
            }
        }
    }

    fn is_needed(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let known = metrics.membership_config.get_node(&self.me).map(|node| node.addr.as_str());
        known != Some(self.address.as_str())
            || (metrics.state != ServerState::Leader && !self.contact.within(self.silence))
    }

    /// The only voter, by a recovery.
    fn is_alone(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        self.peers.lineage().number() > 0 && metrics.membership_config.membership().voter_ids().eq([self.me])
    }

    /// To whomever this one knows of; the leader is among them, or is named by them.
    async fn announce(&self) {
        let mut addresses = self.peers.all_addresses();
        let mut next = 0;
        while let Some(address) = addresses.get(next).cloned() {
            next += 1;
            if address == self.address {
                continue;
            }
            let Ok(mut client) = self.peers.client(&address, Use::Messages) else { continue };
            let request = wire::AnnounceRequest {
                cluster_id: self.peers.identity().cluster_id.clone(),
                sender: Some(to_wire(self.me)),
                address: self.address.clone(),
                has_log: self.peers.lineage().has_log(),
                recovery: self.peers.lineage().number(),
            };
            match timeout(TIMEOUT, client.announce(request)).await {
                Ok(Ok(answer)) => {
                    let leader = answer.into_inner().leader_address;
                    if !leader.is_empty() && !addresses.contains(&leader) {
                        addresses.push(leader);
                    }
                }
                Ok(Err(status)) => {
                    self.peers.lineage().heed(&status);
                    tracing::debug!(address, reason = status.message(), "not announced");
                }
                Err(_) => tracing::debug!(address, "no answer to an announcement"),
            }
        }
    }
}
