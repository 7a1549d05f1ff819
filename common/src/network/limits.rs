//! What a listener and its connections may use.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of one listener. `in_flight_bytes` is meant to be shared by the listeners of a process.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request; `socket.request.max.bytes`.
    pub max_frame_bytes: usize,
    /// Open connections of this listener; `max.connections`.
    pub max_connections: usize,
    /// Open connections of one address; `max.connections.per.ip`.
    pub max_connections_per_ip: usize,
    /// Memory for the requests that are being read or handled.
    pub in_flight_bytes: InFlightBytes,
    /// Requests of one connection that may wait for their answers.
    pub max_in_flight_requests_per_connection: usize,
    /// A connection without traffic is closed after this; `connections.max.idle.ms`. A client that
    /// does not take its answers is closed after it, too.
    pub idle_timeout: Duration,
    /// A request has to arrive whole within this, plus the time that its size takes at 8 KiB/s. Else
    /// a few clients that announce large requests and send little would hold the whole budget.
    pub frame_timeout: Duration,
    pub metrics: NetworkMetrics,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_frame_bytes: 100 << 20,
            max_connections: usize::MAX,
            max_connections_per_ip: usize::MAX,
            in_flight_bytes: InFlightBytes::new(256 << 20),
            max_in_flight_requests_per_connection: 64,
            idle_timeout: Duration::from_secs(600),
            frame_timeout: Duration::from_secs(30),
            metrics: NetworkMetrics::default(),
        }
    }
}

/// A budget of bytes. A request takes its share before its body is read and gives it back when it has
/// been handled; whoever finds too little left waits in line, without reading.
#[derive(Clone, Debug)]
pub struct InFlightBytes {
    semaphore: Arc<Semaphore>,
    total: usize,
}

impl InFlightBytes {
    pub fn new(bytes: usize) -> InFlightBytes {
        // Permits of one request are counted in u32, so more than that is of no use to anyone.
        let total = bytes.clamp(1, u32::MAX as usize);
        InFlightBytes { semaphore: Arc::new(Semaphore::new(total)), total }
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn available(&self) -> usize {
        self.semaphore.available_permits()
    }

    pub(super) fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.semaphore.clone().try_acquire_many_owned(self.permits(bytes)).ok()
    }

    pub(super) async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.semaphore.clone().acquire_many_owned(self.permits(bytes)).await.ok()
    }

    /// A request larger than the budget takes all of it, so that it waits for the others and passes.
    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.total)).unwrap_or(u32::MAX)
    }
}

/// What the connections of one listener count. The default one counts for nobody.
#[derive(Clone, Debug, Default)]
pub struct NetworkMetrics {
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub connections: Gauge,
    pub connections_accepted: Counter,
    pub connections_refused: Counter,
}

/// Open connections, per address and together.
#[derive(Debug, Default)]
pub(super) struct ConnectionCounts {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    per_ip: HashMap<IpAddr, usize>,
}

impl ConnectionCounts {
    /// `None` when a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr, limits: &Limits) -> Option<ConnectionSlot> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        let from_here = counts.per_ip.get(&address).copied().unwrap_or(0);
        if counts.total >= limits.max_connections || from_here >= limits.max_connections_per_ip {
            return None;
        }
        counts.total += 1;
        counts.per_ip.insert(address, from_here + 1);
        Some(ConnectionSlot { counts: self.clone(), address })
    }
}

/// Held while a connection is open.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    counts: Arc<ConnectionCounts>,
    address: IpAddr,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.counts.counts.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(from_here) = counts.per_ip.get_mut(&self.address) {
            *from_here -= 1;
            if *from_here == 0 {
                counts.per_ip.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_per_address_and_together() {
        let limits = Limits { max_connections: 3, max_connections_per_ip: 2, ..Limits::default() };
        let counts = Arc::new(ConnectionCounts::default());
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let there: IpAddr = "::1".parse().unwrap();
        let first = counts.admit(here, &limits).unwrap();
        let _second = counts.admit(mapped, &limits).unwrap();
        assert!(counts.admit(here, &limits).is_none(), "a mapped address is the same client");
        let _third = counts.admit(there, &limits).unwrap();
        assert!(counts.admit(there, &limits).is_none(), "three are open");
        drop(first);
        assert!(counts.admit(here, &limits).is_some());
    }

    #[test]
    fn a_request_above_the_budget_takes_all_of_it() {
        let budget = InFlightBytes::new(100);
        let large = budget.try_take(1_000).unwrap();
        assert!(budget.try_take(1).is_none());
        drop(large);
        assert_eq!(budget.available(), 100);
    }
}
