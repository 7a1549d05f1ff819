//! Mirror fetchers: one task and one connection for each (slot, broker of the source, mirror), apart
//! from the fetchers between this cluster's own replicas and with a byte budget of their own
//! (decision 23).

pub mod answer;
pub mod budget;
pub mod manager;
pub mod session;
pub mod slot;
#[cfg(test)]
mod tests;
pub mod worker;

pub use budget::FetchBudget;
pub use manager::{FetcherManager, FetcherMetrics};
pub use slot::FetchSlot;
