//! CreateMirror: a name and the client configuration with which its source is reached.

use kafka_protocol::protocol::StrBytes;

use crate::wire::structure;

structure! {
    pub struct CreateMirrorRequest {
        mirror_name: Option<StrBytes>,
        config: Vec<MirrorConfig>,
    }

    pub struct MirrorConfig {
        name: StrBytes,
        value: Option<StrBytes>,
    }

    pub struct CreateMirrorResponse {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<StrBytes>,
    }
}
