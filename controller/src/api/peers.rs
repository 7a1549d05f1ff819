//! Where the other controllers listen for Kafka's protocol. Asked when a client wants to know, kept
//! for a while: addresses rarely change.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

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
    own: i32,
    /// By quorum address.
    channels: Mutex<HashMap<String, Channel>>,
    known: Mutex<BTreeMap<i32, (Instant, Vec<Endpoint>)>>,
}

impl Peers {
    pub fn new(cluster_id: String, own: i32) -> Peers {
        Peers { cluster_id, own, channels: Mutex::default(), known: Mutex::default() }
    }

    /// Endpoints of the others among these members, as far as they answer or answered before.
    pub async fn endpoints(&self, members: &[(i32, String)]) -> BTreeMap<i32, Vec<Endpoint>> {
        let others = || members.iter().filter(|(id, _)| *id != self.own);
        self.channels.lock().retain(|address, _| others().any(|(_, other)| other == address));
        self.known.lock().retain(|id, _| others().any(|(other, _)| other == id));
        let now = Instant::now();
        let ask = others().filter(|(id, _)| {
            self.known.lock().get(id).is_none_or(|(at, _)| now.duration_since(*at) >= KEPT_FOR)
        });
        let ask = ask.filter_map(|(id, address)| Some((*id, self.channel(address)?)));
        let answers = futures::future::join_all(ask.map(|(id, channel)| async move {
            let request = IdentifyRequest { cluster_id: self.cluster_id.clone() };
            (id, timeout(ASK_TIMEOUT, PeersClient::new(channel).identify(request)).await)
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

    fn channel(&self, address: &str) -> Option<Channel> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Some(channel.clone());
        }
        let endpoint = Address::from_shared(format!("http://{address}")).ok()?;
        let channel = endpoint.connect_timeout(ASK_TIMEOUT).tcp_nodelay(true).connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Some(channel)
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
