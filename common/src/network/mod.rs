//! The socket side of both daemons: Kafka's framing (a 4-byte length, then the request), limits, and
//! replies in the order of requests. Knows nothing of Kafka beyond that length.
//!
//! One task per connection does everything: it reads a frame, polls the handler's future once (so that
//! the requests of one connection take effect in order), keeps what is not answered yet in an ordered
//! queue and writes answers from its head. It reads on while answers are pending, and stops reading
//! while the client does not take its answers.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

mod connection;
mod limits;
mod listener;
mod read;
mod write;

pub use limits::{InFlightBytes, Limits, NetworkMetrics};
pub use listener::{bind, serve};
pub use write::{Chunk, write_chunks};

/// What a request is answered with.
#[derive(Debug)]
pub enum Reply {
    /// The response, without its length: the connection adds that.
    Send(Vec<Chunk>),
    /// No response, as Kafka's produce with acks=0 wants it.
    None,
    /// The connection is closed after the answers of earlier requests.
    Close,
}

impl From<Bytes> for Reply {
    fn from(response: Bytes) -> Reply {
        Reply::Send(vec![Chunk::Bytes(response)])
    }
}

/// Facts of a connection, fixed when it is accepted.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Unique within the process.
    pub id: u64,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub listener_name: Arc<str>,
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// What the handler keeps per connection.
    type Connection: Send + Sync + 'static;

    fn connected(&self, info: ConnectionInfo) -> Self::Connection;

    /// `frame` is the request without its length. What must happen in the order of requests has to
    /// happen before the future first waits.
    fn handle(
        &self,
        connection: &Arc<Self::Connection>,
        frame: BytesMut,
    ) -> impl Future<Output = Reply> + Send + 'static;

    /// The connection is gone; futures that were not finished have been dropped.
    fn disconnected(&self, _connection: &Arc<Self::Connection>) {}
}

#[cfg(test)]
mod tests;
