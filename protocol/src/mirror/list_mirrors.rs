//! ListMirrors: the mirrors of this cluster.

use kafka_protocol::protocol::StrBytes;

use crate::wire::structure;

structure! {
    pub struct ListMirrorsRequest {
    }

    pub struct ListMirrorsResponse {
        throttle_time_ms: i32,
        error_code: i16,
        mirrors: Vec<ListedMirror>,
    }
    tagged {
        0 => error_message: Option<StrBytes>,
    }

    pub struct ListedMirror {
        mirror_name: StrBytes,
        source_bootstrap: StrBytes,
        topic_count: i32,
    }
    tagged {
        /// Null before the first contact.
        0 => source_cluster_id: Option<StrBytes>,
    }
}
