//! Who leads instead, in answers of NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951): a client
//! goes there without asking for metadata first.

use std::collections::BTreeSet;

use common::ids::*;
use common::metadata::MetadataImage;
use protocol::messages::BrokerId as WireBrokerId;
use protocol::{ErrorCode, StrBytes};

/// Errors that carry the leader.
pub fn leads_elsewhere(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch)
}

/// The leaders named in one response, each once, with its address on the client's listener.
#[derive(Debug, Default)]
pub struct CurrentLeaders {
    named: BTreeSet<i32>,
    endpoints: Vec<(WireBrokerId, StrBytes, i32, Option<StrBytes>)>,
}

impl CurrentLeaders {
    /// The partition's leader and its epoch, where one is known.
    pub fn of(
        &mut self,
        image: &MetadataImage,
        id: TopicIdPartition,
        listener_name: &str,
    ) -> Option<(WireBrokerId, i32)> {
        let registration = &image.partition(id)?.registration;
        let leader = registration.leader?;
        if self.named.insert(leader.0)
            && let Some(broker) = image.brokers.get(&leader)
            && let Some(endpoint) = broker.endpoint(listener_name)
        {
            self.endpoints.push((
                WireBrokerId(leader.0),
                StrBytes::from_string(endpoint.host.clone()),
                i32::from(endpoint.port),
                broker.rack.clone().map(StrBytes::from_string),
            ));
        }
        Some((WireBrokerId(leader.0), registration.leader_epoch.0))
    }

    /// As the response's own type of node endpoint.
    pub fn endpoints<T>(self, make: impl Fn(WireBrokerId, StrBytes, i32, Option<StrBytes>) -> T) -> Vec<T> {
        self.endpoints.into_iter().map(|(id, host, port, rack)| make(id, host, port, rack)).collect()
    }
}
