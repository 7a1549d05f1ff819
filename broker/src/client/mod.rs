//! An asynchronous Kafka client connection: what follower fetchers, mirror sources, the command and
//! the tests speak to brokers with.

mod connection;
mod error;
mod negotiation;

pub use connection::{ConnectOptions, Connection, SOFTWARE_NAME};
pub use error::ClientError;

#[cfg(test)]
mod tests;
