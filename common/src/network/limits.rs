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

/// Requests up to this take their share of a part of the budget that is theirs alone, so that they pass
/// while large ones wait for each other.
const SMALL_REQUEST_BYTES: usize = 64 << 10;
/// The small requests' part of the budget, beside the rest.
const SMALL_PART: usize = 8;

/// A budget of bytes. A request takes its share as its bytes arrive and gives it back when it has been
/// handled; whoever finds too little left waits in line, without reading.
///
/// A length that is only announced costs nothing. Requests that have arrived in part could wait for each
/// other for ever; one of them at a time may therefore go beyond the budget and be read to its end.
#[derive(Clone, Debug)]
pub struct InFlightBytes {
    large: Arc<Semaphore>,
    small: Arc<Semaphore>,
    beyond: Arc<Semaphore>,
    total: usize,
}

impl InFlightBytes {
    pub fn new(bytes: usize) -> InFlightBytes {
        // Permits of one request are counted in u32, so more than that is of no use to anyone.
        let total = bytes.clamp(1, u32::MAX as usize);
        InFlightBytes {
            large: Arc::new(Semaphore::new(total)),
            small: Arc::new(Semaphore::new((total / SMALL_PART).max(SMALL_REQUEST_BYTES))),
            beyond: Arc::new(Semaphore::new(1)),
            total,
        }
    }

    pub fn total(&self) -> usize {
        self.total
    }

    /// What large requests have left.
    pub fn available(&self) -> usize {
        self.large.available_permits()
    }

    /// The first part of a request of `length` bytes.
    pub(super) fn try_begin(&self, length: usize) -> Option<Share> {
        let first = self.first(length);
        let permit = self.pool(length).clone().try_acquire_many_owned(permits(first)).ok()?;
        Some(Share { pool: Some(permit), beyond: None, bytes: first })
    }

    pub(super) async fn begin(self, length: usize) -> Option<Share> {
        let first = self.first(length);
        let permit = self.pool(length).clone().acquire_many_owned(permits(first)).await.ok()?;
        Some(Share { pool: Some(permit), beyond: None, bytes: first })
    }

    /// More for a request of which all that was paid for has arrived: three times as much again, and all
    /// where little would be left. A buffer that grows with it copies a third of a large request at most.
    pub(super) fn try_extend(&self, share: &mut Share, length: usize) -> bool {
        if share.beyond.is_some() {
            share.bytes = length;
            return true;
        }
        let more = share.step(length);
        let Ok(permit) = self.large.clone().try_acquire_many_owned(permits(more)) else { return false };
        share.add(permit, more);
        true
    }

    pub(super) async fn extend(self, mut share: Share, length: usize) -> Option<Share> {
        let more = share.step(length);
        tokio::select! {
            biased;
            permit = self.large.clone().acquire_many_owned(permits(more)) => share.add(permit.ok()?, more),
            beyond = self.beyond.clone().acquire_owned() => {
                share.beyond = Some(beyond.ok()?);
                share.bytes = length;
            }
        }
        Some(share)
    }

    fn first(&self, length: usize) -> usize {
        let first = length.min(SMALL_REQUEST_BYTES);
        if length <= SMALL_REQUEST_BYTES { first } else { first.min(self.total) }
    }

    fn pool(&self, length: usize) -> &Arc<Semaphore> {
        if length <= SMALL_REQUEST_BYTES { &self.small } else { &self.large }
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What a request holds of the budget, given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    pool: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
    /// Bytes that may be here.
    pub bytes: usize,
}

impl Share {
    fn step(&self, length: usize) -> usize {
        let (left, more) = (length - self.bytes.min(length), self.bytes.saturating_mul(3));
        if left <= more.saturating_mul(2) { left } else { more }
    }

    fn add(&mut self, permit: OwnedSemaphorePermit, bytes: usize) {
        match &mut self.pool {
            Some(pool) => pool.merge(permit),
            None => self.pool = Some(permit),
        }
        self.bytes += bytes;
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
    fn an_announced_length_costs_only_what_has_arrived() {
        let budget = InFlightBytes::new(1 << 20);
        let length = 900 << 10;
        let mut share = budget.try_begin(length).unwrap();
        assert_eq!((share.bytes, budget.available()), (64 << 10, (1 << 20) - (64 << 10)));
        assert!(budget.try_extend(&mut share, length));
        assert_eq!(share.bytes, 256 << 10, "three times as much again");
        while share.bytes < length {
            assert!(budget.try_extend(&mut share, length));
        }
        assert_eq!(budget.available(), (1 << 20) - length);
        drop(share);
        assert_eq!(budget.available(), 1 << 20);
    }

    #[test]
    fn small_requests_pass_while_large_ones_hold_the_budget() {
        let budget = InFlightBytes::new(1 << 20);
        let holders: Vec<_> = std::iter::from_fn(|| budget.try_begin(1 << 20)).collect();
        assert_eq!((holders.len(), budget.available()), (16, 0));
        assert!(budget.try_begin(100).is_some());
    }

    /// Two requests that are here in part, and nothing left for either: one of them is read to its end.
    #[tokio::test]
    async fn requests_never_wait_for_each_other_for_ever() {
        let budget = InFlightBytes::new(128 << 10);
        let length = 100 << 10;
        let (mut one, mut other) = (budget.try_begin(length).unwrap(), budget.try_begin(length).unwrap());
        assert!(!budget.try_extend(&mut one, length) && !budget.try_extend(&mut other, length));
        let one = budget.clone().extend(one, length).await.unwrap();
        assert_eq!(one.bytes, length);
        let waiting = budget.clone().extend(other, length);
        tokio::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending(), "one at a time");
        drop(one);
        assert_eq!(waiting.await.unwrap().bytes, length);
    }
}
