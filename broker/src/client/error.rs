//! Why a call to another Kafka node failed, in words that say what to do about it.

use std::io;
use std::time::Duration;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("cannot resolve {address}: {source}; check the host name")]
    Resolve { address: String, source: io::Error },

    #[error("cannot connect to {address}: {source}; check that a broker listens there")]
    Connect { address: String, source: io::Error },

    #[error("no connection to {address} within {} ms; check the address and what lies between", .timeout.as_millis())]
    ConnectTimeout { address: String, timeout: Duration },

    #[error("{address} did not answer {api} within {} ms; the connection is given up, connect again", .timeout.as_millis())]
    Timeout { address: String, api: &'static str, timeout: Duration },

    #[error("{address} closed the connection before it answered {api}; connect again")]
    Closed { address: String, api: &'static str },

    #[error("connection to {address} failed during {api}: {source}; connect again")]
    Io { address: String, api: &'static str, source: io::Error },

    #[error(
        "{address} claims an answer of {claimed} bytes to {api}, allowed are {allowed}; it may not be a Kafka broker"
    )]
    ResponseSize { address: String, api: &'static str, claimed: i64, allowed: usize },

    #[error(
        "{address} answered correlation id {received} where {expected} was asked; it may not be a Kafka broker"
    )]
    Correlation { address: String, expected: i32, received: i32 },

    #[error("answer of {address} to {api} version {version} cannot be read: {reason}")]
    Decode { address: String, api: &'static str, version: i16, reason: String },

    #[error("request {api} version {version} cannot be written: {reason}")]
    Encode { api: &'static str, version: i16, reason: String },

    #[error(
        "{address} and this program have no version of {api} in common (there: {theirs}); upgrade the older one"
    )]
    UnsupportedApi { address: String, api: &'static str, theirs: String },

    #[error("{address} refused the version negotiation with error code {error_code}")]
    Negotiation { address: String, error_code: i16 },

    #[error("{address} answered {api} with something else")]
    UnexpectedResponse { address: String, api: &'static str },

    #[error("the connection to {address} is unusable after an earlier failure; connect again")]
    Broken { address: String },
}

impl ClientError {
    /// Whether the connection can carry further calls.
    pub fn connection_is_usable(&self) -> bool {
        matches!(self, ClientError::Encode { .. } | ClientError::UnsupportedApi { .. })
    }
}
