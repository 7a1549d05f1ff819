//! ApiVersions: 3 names the client's software, 5 the cluster and node it means to reach (KIP-1242).

use kafka_protocol::protocol::StrBytes;

use crate::wire::{setters, structure};

structure! {
    pub struct ApiVersionsRequest {
        client_software_name: StrBytes [since 3],
        client_software_version: StrBytes [since 3],
        cluster_id: Option<StrBytes> [since 5],
        /// -1: not known.
        node_id: i32 [since 5] = -1,
    }
}

setters! {
    ApiVersionsRequest {
        with_client_software_name, client_software_name: StrBytes;
        with_client_software_version, client_software_version: StrBytes;
        with_cluster_id, cluster_id: Option<StrBytes>;
        with_node_id, node_id: i32;
    }
}
