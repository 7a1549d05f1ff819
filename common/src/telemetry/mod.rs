//! Logs, metrics, and the small HTTP server that shows them.

mod http;
mod logging;
mod metrics;
mod reason;

pub use http::{Status, serve_http};
pub use logging::{LogFormat, init_logging};
pub use metrics::{Metrics, RequestMetrics};
pub use reason::reason;
