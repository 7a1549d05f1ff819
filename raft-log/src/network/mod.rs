//! Raft between controllers, over gRPC.

pub(crate) mod client;
pub(crate) mod probe;
pub mod server;
mod silence;

use bytes::Bytes;
use openraft::LogIdOptionExt as _;
use openraft::entry::RaftEntry as _;
use protocol::proto::raft as wire;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::config::VoterId;
use crate::type_config::{Entry, LogId};

/// Room beside the payload of one entry: batches are capped at 1 MiB, a single entry is not.
const MESSAGE_OVERHEAD_BYTES: usize = 4 << 20;
const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;

/// The largest message, both ways.
fn message_limit_bytes(max_payload_bytes: usize) -> usize {
    max_payload_bytes.saturating_add(MESSAGE_OVERHEAD_BYTES)
}

pub(crate) fn to_wire(voter: VoterId) -> wire::Voter {
    let directory_id = Bytes::copy_from_slice(voter.directory_id.as_bytes());
    wire::Voter { node_id: voter.node_id, directory_id }
}

fn from_wire(voter: &wire::Voter) -> Option<VoterId> {
    let directory_id = Uuid::from_slice(&voter.directory_id).ok()?;
    Some(VoterId { node_id: voter.node_id, directory_id })
}

pub(crate) fn encode(message: &impl Serialize) -> Result<Bytes, postcard::Error> {
    postcard::to_allocvec(message).map(Bytes::from)
}

pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, postcard::Error> {
    postcard::from_bytes(body)
}

/// Entries of one append follow each other and what they are appended to. A leader that purges while it reads for a
/// stream that it has given up already would send what is left, and openraft's follower does not look for the hole.
pub(crate) fn check_entries(previous: Option<LogId>, entries: &[Entry]) -> Result<(), String> {
    let expected = previous.next_index()..;
    match expected.zip(entries).find(|(index, entry)| entry.log_id().index != *index) {
        Some((index, entry)) => Err(format!("entry {} where {index} follows", entry.log_id().index)),
        None => Ok(()),
    }
}
