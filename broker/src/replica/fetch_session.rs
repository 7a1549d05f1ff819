//! The partitions of a fetch, or of a fetch session: what was asked of each, and what was told.
//!
//! A session stays registered with its partitions between requests, so a request looks only at those
//! that it names or that have something new: an idle partition costs nothing.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use parking_lot::Mutex;
use protocol::messages::TopicName;

use super::error::{PartitionError, ReadFailure};
use super::fetch::FetchParams;
use super::manager::ReplicaManager;
use super::partition::Partition;
use super::purgatory::{FetchWatch, Interest};
use super::read::{Isolation, ReadFrom, ReadRequest, ReadResult, Reader};

/// A partition as the client names it: by topic id from Fetch 13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    pub topic_id: TopicId,
    pub topic: Option<TopicName>,
    pub partition: i32,
}

#[derive(Clone, Debug)]
pub struct FetchPartition {
    pub key: PartitionKey,
    pub fetch_offset: Offset,
    pub log_start_offset: Offset,
    pub leader_epoch: Option<LeaderEpoch>,
    pub last_fetched_epoch: Option<LeaderEpoch>,
    pub max_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum FetchReader {
    Consumer(Isolation),
    Follower { broker_id: BrokerId, broker_epoch: BrokerEpoch },
}

impl FetchReader {
    pub(super) fn interest(self) -> Interest {
        match self {
            FetchReader::Consumer(_) => Interest::Committed,
            FetchReader::Follower { .. } => Interest::LogEnd,
        }
    }

    pub(super) fn is_follower(self) -> bool {
        matches!(self, FetchReader::Follower { .. })
    }
}

#[derive(Clone, Debug)]
pub struct FetchedPartition {
    pub key: PartitionKey,
    pub result: Result<ReadResult, ReadFailure>,
}

impl FetchedPartition {
    pub(super) fn len(&self) -> usize {
        self.result.as_ref().map_or(0, ReadResult::len)
    }

    /// An answer that the reader should have at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.result
            .as_ref()
            .map_or(true, |result| result.diverging.is_some() || result.preferred_read_replica.is_some())
    }

    pub(super) fn throttled_ms(&self) -> Option<u64> {
        self.result.as_ref().ok()?.throttled_ms
    }
}

#[derive(Debug)]
pub struct FetchSession {
    pub(super) watch: Arc<FetchWatch>,
    pub(super) state: Mutex<SessionState>,
}

#[derive(Debug)]
pub(super) struct SessionState {
    /// What the next request has to carry.
    pub(super) next_epoch: i32,
    pub(super) uses_topic_ids: bool,
    pub(super) set: FetchSet,
}

#[derive(Debug)]
struct Slot {
    wanted: FetchPartition,
    partition: Option<Arc<Partition>>,
    /// High watermark and log start as last told; `None`: to be told in any case.
    told: Option<(Offset, Offset)>,
    /// At the last read.
    version: u64,
}

#[derive(Debug)]
pub(super) struct FetchSet {
    watch: Arc<FetchWatch>,
    interest: Interest,
    /// Registered with its partitions: a session from the start, a single fetch once it waits.
    registered: bool,
    slots: Vec<Option<Slot>>,
    index: HashMap<PartitionKey, u32>,
    free: Vec<u32>,
}

impl FetchSet {
    pub(super) fn new(watch: Arc<FetchWatch>, interest: Interest, registered: bool) -> FetchSet {
        FetchSet { watch, interest, registered, slots: Vec::new(), index: HashMap::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Sets what is asked of a partition, and queues it.
    pub(super) fn set(&mut self, wanted: FetchPartition) {
        let slot = match self.index.get(&wanted.key) {
            Some(slot) => *slot,
            None => {
                let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
                self.index.insert(wanted.key.clone(), slot);
                slot
            }
        };
        let index = slot as usize;
        if index == self.slots.len() {
            self.slots.push(None);
        }
        match self.slots.get_mut(index) {
            Some(Some(known)) => known.wanted = wanted,
            Some(empty) => *empty = Some(Slot { wanted, partition: None, told: None, version: 0 }),
            None => {}
        }
        self.watch.keep(slot);
    }

    pub(super) fn forget(&mut self, key: &PartitionKey) {
        let Some(slot) = self.index.remove(key) else { return };
        let Some(Some(forgotten)) = self.slots.get_mut(slot as usize).map(Option::take) else { return };
        if let Some(partition) = forgotten.partition.filter(|_| self.registered) {
            partition.unwatch(&self.watch, slot);
        }
        self.free.push(slot);
    }

    /// A single fetch is about to wait: whatever happened since its reads is queued.
    pub(super) fn register(&mut self) {
        if std::mem::replace(&mut self.registered, true) {
            return;
        }
        for (slot, known) in self.slots.iter().enumerate() {
            if let Some(Slot { partition: Some(partition), version, .. }) = known {
                partition.watch(&self.watch, slot as u32, self.interest, Some(*version));
            }
        }
    }

    /// Reads the partition in a slot, at most `max_bytes`.
    pub(super) fn visit(
        &mut self,
        slot: u32,
        manager: &ReplicaManager,
        params: &FetchParams,
        max_bytes: usize,
        min_one_batch: bool,
    ) -> Option<FetchedPartition> {
        let known = self.slots.get_mut(slot as usize)?.as_mut()?;
        let request = ReadRequest {
            from: params.rack.as_ref().map_or(ReadFrom::Leader, |rack| ReadFrom::Nearest { rack }),
            reader: match params.reader {
                FetchReader::Consumer(isolation) => Reader::Consumer(isolation),
                FetchReader::Follower { broker_id, broker_epoch } => Reader::Follower {
                    broker_id,
                    broker_epoch,
                    log_start_offset: known.wanted.log_start_offset,
                    last_fetched_epoch: known.wanted.last_fetched_epoch,
                },
            },
            fetch_offset: known.wanted.fetch_offset,
            leader_epoch: known.wanted.leader_epoch,
            max_bytes: max_bytes.min(known.wanted.max_bytes),
            min_one_batch,
        };
        let mut result = match &known.partition {
            Some(partition) => partition.read(&request),
            None => Err(PartitionError::UnknownTopicOrPartition.into()),
        };
        if let Err(ReadFailure::Partition(_)) = result {
            // Not looked up yet, or it is another one by now: deleted, made again, moved.
            result = manager.resolve(&known.wanted.key).map_err(ReadFailure::from).and_then(|found| {
                let is_new = known.partition.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &found));
                if is_new && self.registered {
                    found.watch(&self.watch, slot, self.interest, None);
                }
                let read = found.read(&request);
                known.partition = Some(found);
                read
            });
        }
        if let Ok(read) = &result {
            known.version = read.version;
        }
        Some(FetchedPartition { key: known.wanted.key.clone(), result })
    }

    /// Whether there is something to tell besides records: high watermark or log start moved.
    pub(super) fn has_news(&self, slot: u32, fetched: &FetchedPartition) -> bool {
        let Some(Some(known)) = self.slots.get(slot as usize) else { return false };
        match &fetched.result {
            Ok(read) => known.told != Some((read.high_watermark, read.log_start_offset)),
            Err(_) => true,
        }
    }

    pub(super) fn tell(&mut self, slot: u32, fetched: &FetchedPartition) {
        let Some(Some(known)) = self.slots.get_mut(slot as usize) else { return };
        known.told = match &fetched.result {
            Ok(read) => Some((read.high_watermark, read.log_start_offset)),
            Err(_) => None,
        };
    }
}

impl Drop for FetchSet {
    fn drop(&mut self) {
        self.watch.close();
    }
}
