//! TransferQuorumLeader (ours): the leadership of the controller quorum is handed to a voter, as before
//! maintenance of the machine that has it.

use kafka_protocol::protocol::StrBytes;

use crate::wire::structure;

structure! {
    pub struct TransferQuorumLeaderRequest {
        /// Node id of the voter that is to lead.
        node_id: i32,
        timeout_ms: i32,
    }

    pub struct TransferQuorumLeaderResponse {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<StrBytes>,
    }
}
