//! Why bytes are no message, or a message cannot be written.

use crate::api::ApiKey;

/// Why bytes are no message. What a peer sends is untrusted: each of these is an answer or a closed
/// connection, never a panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{} version {version} is not supported", .key.name())]
    UnsupportedVersion { key: ApiKey, version: i16 },
    #[error("{needed} bytes wanted where {left} are left")]
    Truncated { needed: usize, left: usize },
    #[error("a count or length of {count} where {left} bytes are left")]
    Count { count: i64, left: usize },
    #[error("a variable-length number of more than 32 bits")]
    Varint,
    #[error("text that is not UTF-8")]
    Utf8,
    #[error("a null where none is allowed")]
    Null,
    #[error("more than {limit} tagged fields in one structure")]
    TooManyTags { limit: u32 },
    #[error("more than {limit} values in one message")]
    TooManyValues { limit: u32 },
    #[error("a tagged field whose length is not that of its content")]
    TagLength,
    #[error("{0} bytes follow the message")]
    TrailingBytes(usize),
    #[error("{0}")]
    Malformed(String),
}

/// Why a message cannot be written: a fault of ours, not of the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{} version {version} is not supported", .key.name())]
    UnsupportedVersion { key: ApiKey, version: i16 },
    #[error("{} where {} was to be written", .found.name(), .wanted.name())]
    WrongMessage { wanted: ApiKey, found: ApiKey },
    #[error("a message of {0} bytes is too long for a frame")]
    TooLong(usize),
    #[error("{0}")]
    Invalid(String),
}
