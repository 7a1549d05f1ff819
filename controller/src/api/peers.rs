//! Where the other controllers listen for Kafka's protocol. Asked when a client wants to know, kept
//! for a while: addresses rarely change.

use std::collections::BTreeMap;
use std::time::Duration;

use common::config::QuorumVoter;
use common::metadata::record::Endpoint;
use parking_lot::Mutex;
use protocol::proto::controller::IdentifyRequest;
use protocol::proto::controller::peers_client::PeersClient;
use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint as Address};

const ASK_TIMEOUT: Duration = Duration::from_millis(500);
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Channels to the other controllers, and what they last said.
pub struct Peers {
    cluster_id: String,
    channels: Vec<(i32, Channel)>,
    known: Mutex<BTreeMap<i32, (Instant, Vec<Endpoint>)>>,
}

impl Peers {
    pub fn new(cluster_id: String, own: i32, voters: &[QuorumVoter]) -> Peers {
        let channels = voters
            .iter()
            .filter(|voter| voter.node_id != own)
            .filter_map(|voter| {
                let address = Address::from_shared(format!("http://{}", voter.address)).ok()?;
                let address = address.connect_timeout(ASK_TIMEOUT).tcp_nodelay(true);
                Some((voter.node_id, address.connect_lazy()))
            })
            .collect();
        Peers { cluster_id, channels, known: Mutex::default() }
    }

    /// Endpoints of the others, as far as they answer or answered before.
    pub async fn endpoints(&self) -> BTreeMap<i32, Vec<Endpoint>> {
        let now = Instant::now();
        let ask = self.channels.iter().filter(|(id, _)| {
            self.known.lock().get(id).is_none_or(|(at, _)| now.duration_since(*at) >= KEPT_FOR)
        });
        let answers = futures::future::join_all(ask.map(|(id, channel)| async move {
            let request = IdentifyRequest { cluster_id: self.cluster_id.clone() };
            let answer = timeout(ASK_TIMEOUT, PeersClient::new(channel.clone()).identify(request)).await;
            (*id, answer)
        }))
        .await;
        let mut known = self.known.lock();
        for (id, answer) in answers {
            if let Ok(Ok(answer)) = answer {
                let endpoints = answer.into_inner().endpoints.into_iter().filter_map(endpoint).collect();
                known.insert(id, (now, endpoints));
            }
        }
        known.iter().map(|(id, (_, endpoints))| (*id, endpoints.clone())).collect()
    }
}

fn endpoint(wire: protocol::proto::controller::Endpoint) -> Option<Endpoint> {
    Some(Endpoint {
        name: wire.name,
        host: wire.host,
        port: u16::try_from(wire.port).ok()?,
        security_protocol: i16::try_from(wire.security_protocol).ok()?,
    })
}
