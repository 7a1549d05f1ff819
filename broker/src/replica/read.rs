//! What is read of a partition: records, offsets by epoch and by time.

use common::ids::*;
use tracing::warn;

use super::error::{PartitionError, ReadFailure};
use super::partition::{Inner, Partition};
use super::position::{FollowerPosition, PositionQuestion, follower_position};
use super::read_replica::nearest;
use super::state::{FollowerFetch, LeaderState, ReplicaEvent};
use crate::fetcher::fetch_state::DivergingEpoch;
use crate::log::{AbortedTransaction, ActiveProducer, LogSlice, TimestampedOffset};

/// How far a consumer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    /// Up to the last stable offset, with the list of aborted transactions.
    ReadCommitted,
}

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    Consumer(Isolation),
    Follower {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        log_start_offset: Offset,
        last_fetched_epoch: Option<LeaderEpoch>,
    },
}

/// Which replica a consumer may read from (KIP-392).
#[derive(Clone, Copy, Debug)]
pub enum ReadFrom<'a> {
    Leader,
    /// Any replica answers; the leader names one in the consumer's rack. An empty rack names none.
    Nearest {
        rack: &'a str,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    pub reader: Reader,
    pub from: ReadFrom<'a>,
    pub fetch_offset: Offset,
    /// The leader epoch that the reader knows.
    pub leader_epoch: Option<LeaderEpoch>,
    pub max_bytes: usize,
    /// Give one batch even if it is larger than `max_bytes`, so that a reader never stands still.
    pub min_one_batch: bool,
}

#[derive(Clone, Debug)]
pub struct ReadResult {
    pub records: Option<LogSlice>,
    pub diverging: Option<DivergingEpoch>,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// For readers of committed data.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// The consumer should ask this replica instead.
    pub preferred_read_replica: Option<BrokerId>,
    /// Nothing was read because of a throttle: worth another look after so many milliseconds.
    pub throttled_ms: Option<u64>,
    /// Of the partition at this read: tells a watch whether anything came between.
    pub(super) version: u64,
}

impl ReadResult {
    pub fn len(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.length)
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_none()
    }
}

impl Partition {
    /// Reads from the leader, or for a consumer that allows it from a follower, up to the high watermark
    /// that it knows: above it nothing comes yet, above its log end it is out of range, and the consumer
    /// asks the leader (as Kafka does it). A follower's fetch tells the state how far it is, before it is answered:
    /// so the answer carries the high watermark that this very fetch may have moved.
    pub fn read(&self, request: &ReadRequest<'_>) -> Result<ReadResult, ReadFailure> {
        let mut inner = self.lock();
        let result = self.read_locked(&mut inner, request);
        result.inspect_err(|failure| self.read_failed(&inner, failure))
    }

    /// A disk that fails under a reader takes its directory offline, as one that fails under a writer does. A
    /// damaged batch costs those who read it an error, and nobody else anything.
    fn read_failed(&self, inner: &Inner, failure: &ReadFailure) {
        if let ReadFailure::Storage(error) = failure {
            warn!(partition = %self, %error, "cannot be read");
            inner.log.directory().report(error);
        }
    }

    fn read_locked(&self, inner: &mut Inner, request: &ReadRequest<'_>) -> Result<ReadResult, ReadFailure> {
        match request.from {
            ReadFrom::Leader => Partition::check_leader(inner, request.leader_epoch)?,
            ReadFrom::Nearest { rack } => {
                Partition::check_readable(inner, request.leader_epoch)?;
                if let Some(nearest) = self.nearest_replica(inner, rack, request.fetch_offset) {
                    return Ok(ReadResult { preferred_read_replica: Some(nearest), ..position(inner) });
                }
            }
        }
        if let Some(diverging) = self.follower_position(inner, request)? {
            return Ok(ReadResult { diverging: Some(diverging), ..position(inner) });
        }
        if let Some(wait_ms) = self.leader_throttle_wait_ms(inner, request) {
            return Ok(ReadResult { throttled_ms: Some(wait_ms), ..position(inner) });
        }
        let mut result = position(inner);
        let upper = match request.reader {
            Reader::Consumer(Isolation::ReadUncommitted) => result.high_watermark,
            Reader::Consumer(Isolation::ReadCommitted) => result.last_stable_offset,
            Reader::Follower { .. } => inner.state.log_end_offset(),
        };
        let log = inner.log.read();
        result.records = log.read(request.fetch_offset, request.max_bytes, upper, request.min_one_batch)?;
        if let Reader::Consumer(Isolation::ReadCommitted) = request.reader {
            result.aborted = Some(match &result.records {
                Some(records) => log.aborted_transactions(request.fetch_offset, records.end_offset)?,
                None => Vec::new(),
            });
        }
        if inner.leader_throttled && matches!(request.reader, Reader::Follower { .. }) {
            let now_ms = self.context.clock.monotonic_ms();
            self.context.leader_throttle.lock().record(result.len(), now_ms);
        }
        Ok(result)
    }

    /// Only a leader sends consumers elsewhere, and only where that is configured.
    fn nearest_replica(&self, inner: &Inner, rack: &str, offset: Offset) -> Option<BrokerId> {
        let leader = inner.state.leader().filter(|_| self.context.config.rack_aware_reads)?;
        let image = self.context.image.load();
        let rack_of =
            |broker: BrokerId| image.brokers.get(&broker).filter(|broker| !broker.fenced)?.rack.as_deref();
        nearest(rack, self.context.local, offset, leader.follower_views(), rack_of)
    }

    fn leader_throttle_wait_ms(&self, inner: &Inner, request: &ReadRequest<'_>) -> Option<u64> {
        match request.reader {
            Reader::Follower { broker_id, .. }
                if inner.leader_throttled && !inner.state.isr().contains(&broker_id) =>
            {
                self.context.leader_throttle.lock().wait_ms(self.context.clock.monotonic_ms())
            }
            _ => None,
        }
    }

    /// Checks that the follower's log is a prefix of ours, and notes how far it is.
    fn follower_position(
        &self,
        inner: &mut Inner,
        request: &ReadRequest<'_>,
    ) -> Result<Option<DivergingEpoch>, ReadFailure> {
        let Reader::Follower { broker_id, broker_epoch, log_start_offset, last_fetched_epoch } =
            request.reader
        else {
            return Ok(None);
        };
        let leader_epoch = inner.state.leader_epoch();
        let is_replica = inner.state.leader().is_some_and(|leader| leader.replicas().contains(&broker_id));
        if !is_replica {
            return Err(PartitionError::NotLeader.into());
        }
        {
            let log = inner.log.read();
            let (start, end) = (log.log_start_offset(), log.log_end_offset());
            let question = PositionQuestion {
                fetch_offset: request.fetch_offset,
                last_fetched_epoch,
                log_start_offset: start,
                log_end_offset: end,
            };
            let position = follower_position(question, |epoch| match inner.mirroring {
                true => Some(log.mirrored_end_offset_for_epoch(epoch)),
                false => log.end_offset_for_epoch(epoch),
            });
            match position {
                FollowerPosition::Prefix => {}
                FollowerPosition::Diverges(diverging) => return Ok(Some(diverging)),
                FollowerPosition::OutOfRange => {
                    return Err(ReadFailure::OutOfRange {
                        offset: request.fetch_offset,
                        log_start_offset: start,
                        log_end_offset: end,
                    });
                }
            }
        }
        let start_of = |inner: &Inner| inner.state.leader()?.follower_log_start_offset(broker_id);
        let start_before = start_of(inner);
        let fetch = FollowerFetch {
            broker_id,
            broker_epoch,
            // Without an epoch it was not checked against ours: it does not count.
            leader_epoch: request.leader_epoch.unwrap_or(LeaderEpoch::UNKNOWN),
            fetch_offset: request.fetch_offset,
            log_start_offset,
            eligible: inner.state.isr().contains(&broker_id)
                || self.context.is_eligible(self.id, broker_id, broker_epoch),
            now_ms: self.context.steady_ms(),
        };
        debug_assert!(request.leader_epoch.is_none_or(|epoch| epoch == leader_epoch));
        let before = inner.state.fetched_under_epoch(leader_epoch);
        self.apply(inner, ReplicaEvent::FollowerFetched(fetch));
        if start_before != start_of(inner) || before != inner.state.fetched_under_epoch(leader_epoch) {
            self.notify_changed();
        }
        Ok(None)
    }

    /// Kafka's OffsetForLeaderEpoch; `None`: nothing is known of that epoch. On an unreleased mirror
    /// partition the answer is never undefined (decision 8).
    pub fn end_offset_for_epoch(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
        asked: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ReadFailure> {
        let inner = self.lock();
        Partition::check_leader(&inner, current_leader_epoch)?;
        let log = inner.log.read();
        Ok(if inner.mirroring {
            Some(log.mirrored_end_offset_for_epoch(asked))
        } else {
            log.end_offset_for_epoch(asked)
        })
    }

    /// Offsets by time, as ListOffsets wants them: nothing above what the reader may see.
    pub fn list_offset(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
        query: OffsetQuery,
        isolation: Isolation,
    ) -> Result<Option<TimestampedOffset>, ReadFailure> {
        let inner = self.lock();
        Partition::check_leader(&inner, current_leader_epoch)?;
        let listed = Partition::list_offset_locked(&inner, query, isolation);
        listed.inspect_err(|failure| self.read_failed(&inner, failure))
    }

    fn list_offset_locked(
        inner: &Inner,
        query: OffsetQuery,
        isolation: Isolation,
    ) -> Result<Option<TimestampedOffset>, ReadFailure> {
        let log = inner.log.read();
        let high_watermark = inner.state.high_watermark();
        let last_fetchable = match isolation {
            Isolation::ReadUncommitted => high_watermark,
            Isolation::ReadCommitted => log.last_stable_offset(high_watermark),
        };
        let untimed = |offset: Offset| {
            let leader_epoch = log.epoch_at(offset).unwrap_or(LeaderEpoch::UNKNOWN);
            Some(TimestampedOffset { timestamp_ms: -1, offset, leader_epoch })
        };
        // A new leader's high watermark may be behind what an earlier one showed to consumers; until it
        // has passed the start of its epoch, offsets could seem to go back (KIP-207).
        let epoch_start = inner.state.leader().map_or(Offset::ZERO, LeaderState::epoch_start_offset);
        let is_known = epoch_start <= high_watermark;
        match query {
            OffsetQuery::Earliest => Ok(untimed(log.log_start_offset())),
            OffsetQuery::Latest if is_known => {
                let leader_epoch = log.latest_epoch().unwrap_or(LeaderEpoch::UNKNOWN);
                Ok(Some(TimestampedOffset { timestamp_ms: -1, offset: last_fetchable, leader_epoch }))
            }
            OffsetQuery::Latest => Err(ReadFailure::OffsetNotAvailable),
            OffsetQuery::MaxTimestamp => {
                Ok(log.offset_of_max_timestamp()?.filter(|found| found.offset < last_fetchable))
            }
            OffsetQuery::Timestamp(timestamp_ms) => {
                let found = log.offset_for_timestamp(timestamp_ms)?;
                match found.filter(|found| found.offset < last_fetchable) {
                    None if !is_known => Err(ReadFailure::OffsetNotAvailable),
                    found => Ok(found),
                }
            }
        }
    }

    pub fn active_producers(&self) -> Result<Vec<ActiveProducer>, PartitionError> {
        let inner = self.lock();
        Partition::check_leader(&inner, None)?;
        Ok(inner.log.read().active_producers())
    }

    /// Size and distance from the high watermark to the log end, for DescribeLogDirs.
    pub fn size_and_lag(&self) -> (u64, i64) {
        let inner = self.lock();
        let size = inner.log.read().size_bytes();
        let lag = inner.state.log_end_offset().0 - inner.state.high_watermark().0;
        (size, if inner.state.is_leader() { 0 } else { lag.max(0) })
    }
}

/// What ListOffsets asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    Earliest,
    Latest,
    MaxTimestamp,
    Timestamp(i64),
}

fn position(inner: &Inner) -> ReadResult {
    let log = inner.log.read();
    let high_watermark = inner.state.high_watermark();
    ReadResult {
        records: None,
        diverging: None,
        high_watermark,
        last_stable_offset: log.last_stable_offset(high_watermark),
        log_start_offset: log.log_start_offset(),
        aborted: None,
        preferred_read_replica: None,
        throttled_ms: None,
        version: inner.version,
    }
}
