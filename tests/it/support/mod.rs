//! What the tests share: clusters within a bound on how many run at once, mirrors between two of them, and
//! waiting for what should be so.

mod admin;
mod faults;
mod mirror;
mod reassignment;
mod records;
mod side;
pub mod slots;
mod writer;

use std::time::Duration;

pub use mirror::{MIRROR, Pair, Wanted};
pub use records::{batch, compressed, keyed, now_ms, records_of, values, values_of};
pub use side::{MIRROR_RESOURCE, Side, TOPIC_RESOURCE};
pub use writer::Writer;

/// For anything that should happen; far more than it needs.
pub const LIMIT: Duration = Duration::from_secs(30);
