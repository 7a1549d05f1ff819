//! Asks a listed voter who it is: the first start.

use std::time::Duration;

use protocol::proto::raft as wire;

use crate::config::VoterId;
use crate::network::client::{Peers, Use};
use crate::network::{from_wire, to_wire};

const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAnswer {
    pub voter: VoterId,
    pub has_log: bool,
    pub founding: Vec<VoterId>,
}

/// An error says why there is no answer; it is for people.
pub(crate) async fn probe(peers: &Peers, address: &str) -> Result<ProbeAnswer, String> {
    let identity = peers.identity();
    let request =
        wire::ProbeRequest { cluster_id: identity.cluster_id.clone(), sender: Some(to_wire(identity.voter)) };
    let mut client = peers.client(address, Use::Messages).map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(TIMEOUT, client.probe(request))
        .await
        .map_err(|_| "no answer in time".to_owned())?
        .map_err(|status| status.message().to_owned())?
        .into_inner();
    if answer.cluster_id != identity.cluster_id {
        return Err(format!("it belongs to cluster {}", answer.cluster_id));
    }
    let voter = answer.voter.as_ref().and_then(from_wire);
    let founding: Option<Vec<VoterId>> = answer.founding.iter().map(from_wire).collect();
    match (voter, founding) {
        (Some(voter), Some(founding)) => Ok(ProbeAnswer { voter, has_log: answer.has_log, founding }),
        _ => Err("its answer is malformed".into()),
    }
}
