//! One partition's coordinator state. Operations return records, only `replay` changes state, on
//! loading and in operation alike.

use bytes::Bytes;
use thiserror::Error;

/// A record of a coordinator topic; `None` as value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorRecord {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// The partition cannot be served: what it holds is not understood, and guessing is worse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ReplayError(pub String);

/// What a shard made of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    Taken,
    /// It cannot be read, and the shard has seen to it that nothing is guessed: the rest is served. Told to
    /// the operator, with the reason.
    LeftOut(String),
}

pub trait Shard: Send + 'static {
    /// An empty state, before loading.
    fn empty() -> Self;

    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<Replayed, ReplayError>;
}
