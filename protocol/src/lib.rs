//! Bytes and messages: everything that Kagami speaks on a wire. No I/O, no state, no clock.
//!
//! Kafka's own messages come from `kafka-protocol`, which nothing outside this crate names: its codec is
//! generic and would be compiled again by each crate that calls it, and its decoders trust the counts
//! they read. Here each decoder is bounded by the bytes at hand.

pub mod api;
pub mod error;
pub mod error_code;
pub mod fetch;
pub mod frame;
mod guard;
pub mod message;
pub mod messages;
pub mod mirror;
pub mod produce;
pub mod quorum;
pub mod record_batch;
mod wire;

pub use api::{ApiKey, ApiSpec};
pub use error::{DecodeError, EncodeError};
pub use error_code::ErrorCode;
pub use frame::RequestHeader;
pub use kafka_protocol::protocol::StrBytes;
pub use message::{
    Request, Response, decode_request, decode_response, encode_request, encode_response,
    encode_response_frame,
};

/// Messages and services between our own daemons, generated from `proto/`.
pub mod proto {
    // Generated code is not ours to lint.
    #![allow(clippy::all)]
    pub mod raft {
        tonic::include_proto!("kagami.raft");
    }
    pub mod controller {
        tonic::include_proto!("kagami.controller");
    }
    pub mod metadata {
        tonic::include_proto!("kagami.metadata");
    }
}
