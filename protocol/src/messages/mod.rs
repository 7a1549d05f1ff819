//! Kafka's messages. Those whose newest version `kafka-protocol` doesn't know yet, or to which we add a
//! version, are ours and stand in front of its own: same names, same fields, same setters.

pub use kafka_protocol::messages::*;

pub mod api_versions_request;
pub mod create_topics_request;
pub mod describe_log_dirs_response;

pub use api_versions_request::ApiVersionsRequest;
pub use create_topics_request::CreateTopicsRequest;
pub use describe_log_dirs_response::DescribeLogDirsResponse;
