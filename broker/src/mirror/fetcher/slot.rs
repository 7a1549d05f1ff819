//! One partition in a fetcher, from one start to its stop. A restart is a new slot, so whatever is
//! still on its way for the old one finds it closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

use bytes::Bytes;
use common::ids::*;
use parking_lot::Mutex;

use crate::mirror::deps::{LocalPartition, MirrorAppendError};
use crate::mirror::lag::Lag;
use crate::mirror::state::{FailureKind, FailureReason, FetchStop, MirrorEvent, Token};

pub type EventSink = Arc<dyn Fn(TopicIdPartition, MirrorEvent) + Send + Sync>;

pub struct FetchSlot {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    pub token: Token,
    /// The source's leader epoch, sent with each fetch.
    pub source_epoch: LeaderEpoch,
    /// Ours; raised under a running fetcher.
    leader_epoch: AtomicI32,
    partition: Arc<dyn LocalPartition>,
    lag: Arc<Lag>,
    events: EventSink,
    open: AtomicBool,
    succeeded: AtomicBool,
    /// The highest log start the source told, and up to where ours followed it.
    source_log_start: AtomicI64,
    followed_log_start: AtomicI64,
    /// Held while appending: who has closed the slot and taken this once knows that nothing of it will
    /// be appended any more (decision 10a).
    appending: Mutex<()>,
}

impl FetchSlot {
    pub fn new(
        id: TopicIdPartition,
        topic: Arc<str>,
        token: Token,
        source_epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch,
        partition: Arc<dyn LocalPartition>,
        lag: Arc<Lag>,
        events: EventSink,
    ) -> FetchSlot {
        FetchSlot {
            id,
            topic,
            token,
            source_epoch,
            leader_epoch: AtomicI32::new(leader_epoch.0),
            partition,
            lag,
            events,
            open: AtomicBool::new(true),
            succeeded: AtomicBool::new(false),
            source_log_start: AtomicI64::new(0),
            followed_log_start: AtomicI64::new(0),
            appending: Mutex::new(()),
        }
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Copying begins at the local log end, whatever was planned before.
    pub fn start_offset(&self) -> Offset {
        self.partition.status().log_end_offset
    }

    pub fn append_under(&self, leader_epoch: LeaderEpoch) {
        self.leader_epoch.store(leader_epoch.0, Ordering::Release);
    }

    /// Returns when no append is under way and none will come.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
        drop(self.appending.lock());
    }

    /// Closes it and tells the state machine why; once.
    pub fn stop(&self, why: FetchStop) {
        if self.open.swap(false, Ordering::AcqRel) {
            (self.events)(self.id, MirrorEvent::FetchStopped { token: self.token, why });
        }
    }

    /// An answer without error arrived.
    pub fn succeeded(&self, source_high_watermark: Offset, source_log_start: Offset) {
        self.lag.source_is_at(source_high_watermark);
        self.source_log_start.fetch_max(source_log_start.0, Ordering::AcqRel);
        self.follow_log_start();
        if !self.succeeded.swap(true, Ordering::AcqRel) && self.is_open() {
            self.lag.destination_is_at(self.partition.status().log_end_offset);
            (self.events)(self.id, MirrorEvent::FetchSucceeded { token: self.token });
        }
    }

    /// What was deleted at the source is deleted here. Only what is committed can be deleted: where the source
    /// told of it before its records were appended here and replicated, the rest follows later.
    pub fn follow_log_start(&self) {
        let wanted = Offset(self.source_log_start.load(Ordering::Acquire));
        if wanted.0 <= self.followed_log_start.load(Ordering::Acquire) {
            return;
        }
        let guard = self.appending.lock();
        if self.is_open() {
            if self.partition.status().log_start_offset < wanted {
                let under = LeaderEpoch(self.leader_epoch.load(Ordering::Acquire));
                self.partition.raise_log_start(under, wanted);
            }
            let reached = self.partition.status().log_start_offset;
            self.followed_log_start.fetch_max(reached.0, Ordering::AcqRel);
        }
        drop(guard);
    }

    /// Appends whole batches that begin at `from`. Nothing is done once the slot is closed.
    pub fn append(&self, from: Offset, records: &Bytes) {
        let guard = self.appending.lock();
        if !self.is_open() {
            return;
        }
        let under = LeaderEpoch(self.leader_epoch.load(Ordering::Acquire));
        let result = self.partition.append_mirrored(under, records);
        drop(guard);
        match result {
            Ok(appended) => {
                self.lag.destination_is_at(appended.log_end_offset);
                self.lag.fetched(records.len() as u64);
            }
            Err(error) => self.stop(self.stop_for(error, from)),
        }
    }

    fn stop_for(&self, error: MirrorAppendError, from: Offset) -> FetchStop {
        let failed = |kind, why: String| FetchStop::Failed(FailureReason::new(kind, why));
        match error {
            MirrorAppendError::NotLeader => FetchStop::NotLeader,
            MirrorAppendError::EpochAboveOwn { batch, .. } => FetchStop::EpochAboveOwn { batch },
            // Something else moved the log's end meanwhile: the source is not to blame.
            MirrorAppendError::OutOfOrder(_) if self.start_offset() != from => FetchStop::NotLeader,
            MirrorAppendError::OutOfOrder(why) => failed(FailureKind::UnexpectedOffset, why),
            MirrorAppendError::Corrupt(why) => failed(FailureKind::CorruptBatch, why),
            MirrorAppendError::Storage(why) => failed(FailureKind::LocalStorage, why),
        }
    }
}
