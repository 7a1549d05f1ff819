//! What the mirror does with a partition it leads (decisions 8, 10 and 20): batches keep offsets,
//! epochs and bytes; every call names the leader epoch it was decided under.

use std::sync::Arc;

use common::ids::*;
use protocol::record_batch;

use super::error::{MirrorAppendError, PartitionError};
use super::partition::{Inner, Partition};
use super::state::ReplicaEvent;
use crate::log::{AppendError, AppendInfo, LogConfig, LogError};

impl Partition {
    /// The configuration of its log, and whether that was ever compacted.
    pub fn cleaning(&self) -> (Arc<LogConfig>, bool) {
        let inner = self.lock();
        let log = inner.log.read();
        (log.config().clone(), log.was_compacted())
    }

    /// Appends what the source sent. A batch whose epoch is above the partition's own is refused before
    /// anything is written: the controller has to raise the partition's epoch first.
    pub fn append_mirrored(
        &self,
        under: LeaderEpoch,
        records: &[u8],
    ) -> Result<AppendInfo, MirrorAppendError> {
        let mut inner = self.lock();
        check_mirror_leader(&inner, under)?;
        if let Some(batch) = highest_epoch(records).filter(|batch| *batch > under) {
            return Err(MirrorAppendError::EpochAboveOwn { batch, own: under });
        }
        let now_ms = self.context.clock.now_ms();
        let appended = inner.log.write().append_as_follower(records, now_ms);
        match appended {
            Ok(info) => {
                self.appended(&mut inner);
                Ok(info)
            }
            Err(error) => Err(self.mirror_append_failed(&mut inner, error)),
        }
    }

    fn mirror_append_failed(&self, inner: &mut Inner, error: AppendError) -> MirrorAppendError {
        match error {
            AppendError::Storage(error) => {
                self.fail_storage(inner, &error);
                MirrorAppendError::Storage(error)
            }
            error @ (AppendError::OutOfOrderOffset { .. } | AppendError::LeaderEpochFell { .. }) => {
                MirrorAppendError::OutOfOrder(error)
            }
            error => MirrorAppendError::Corrupt(error),
        }
    }

    /// The source's log starts above our end (retention, DeleteRecords): ours is dropped and starts there.
    pub fn restart_log_at(&self, under: LeaderEpoch, offset: Offset) -> Result<(), MirrorAppendError> {
        let mut inner = self.lock();
        check_mirror_leader(&inner, under)?;
        let restarted = inner.log.write().truncate_fully_and_start_at(offset);
        if let Err(error) = restarted {
            if error.is_exhausted() {
                self.apply(&mut inner, ReplicaEvent::Restarted { offset });
            }
            self.fail_storage(&mut inner, &error);
            return Err(MirrorAppendError::Storage(error));
        }
        self.apply(&mut inner, ReplicaEvent::Restarted { offset });
        self.appended(&mut inner);
        Ok(())
    }

    /// The source's log start moved up, within our log: ours follows, so that both hold the same range.
    pub fn raise_log_start(&self, under: LeaderEpoch, offset: Offset) -> Result<(), MirrorAppendError> {
        let mut inner = self.lock();
        check_mirror_leader(&inner, under)?;
        let target = offset.min(inner.state.high_watermark());
        if inner.log.write().increase_log_start_offset(target) {
            self.visible_change(&mut inner);
        }
        Ok(())
    }

    /// Decision 10b: the highest offset at or below the last stable one at which no transaction is open.
    pub fn decided_cut_point(&self) -> Result<Offset, LogError> {
        let inner = self.lock();
        let log = inner.log.read();
        log.decided_cut_point(log.last_stable_offset(inner.state.high_watermark()))
    }
}

fn check_mirror_leader(inner: &Inner, under: LeaderEpoch) -> Result<(), MirrorAppendError> {
    match Partition::check_leader(inner, Some(under)) {
        Ok(()) if inner.mirroring => Ok(()),
        Ok(()) => Err(MirrorAppendError::NotMirroring),
        Err(
            PartitionError::FencedLeaderEpoch { asked, current }
            | PartitionError::UnknownLeaderEpoch { asked, current },
        ) if inner.state.is_leader() => Err(MirrorAppendError::FencedEpoch { asked, current }),
        Err(_) => Err(MirrorAppendError::NotLeader),
    }
}

/// The newest epoch among the batches, as far as they can be read; the append looks closer.
fn highest_epoch(records: &[u8]) -> Option<LeaderEpoch> {
    let batches = record_batch::batches(records).map_while(Result::ok);
    batches.map(|batch| LeaderEpoch(batch.header.leader_epoch)).max()
}
