//! Deleting records below an offset, on a client's request.

use common::ids::*;
use protocol::ErrorCode;

use super::error::PartitionError;
use super::partition::Partition;
use super::state::ReplicaEvent;

/// Why DeleteRecords was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRecordsFailure {
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// What a mirror holds is the source's business until it is released.
    #[error("the topic is a read-only mirror")]
    ReadOnlyTopic,
    #[error("cleanup.policy does not contain delete")]
    NotDeletable,
    #[error("the offset is above the high watermark or negative")]
    OutOfRange,
}

impl DeleteRecordsFailure {
    pub fn code(self) -> ErrorCode {
        match self {
            DeleteRecordsFailure::Partition(error) => error.code(),
            DeleteRecordsFailure::ReadOnlyTopic => ErrorCode::ReadOnlyTopic,
            DeleteRecordsFailure::NotDeletable => ErrorCode::PolicyViolation,
            DeleteRecordsFailure::OutOfRange => ErrorCode::OffsetOutOfRange,
        }
    }
}

/// "Up to the high watermark".
const HIGH_WATERMARK: Offset = Offset(-1);

impl Partition {
    /// Raises the log start; returns the offset that the low watermark has to reach.
    pub fn delete_records(&self, before: Offset) -> Result<Offset, DeleteRecordsFailure> {
        let mut inner = self.lock();
        Partition::check_leader(&inner, None)?;
        if !inner.writable {
            return Err(DeleteRecordsFailure::ReadOnlyTopic);
        }
        if !inner.log.read().config().delete {
            return Err(DeleteRecordsFailure::NotDeletable);
        }
        let high_watermark = inner.state.high_watermark();
        let target = if before == HIGH_WATERMARK { high_watermark } else { before };
        if target.0 < 0 || target > high_watermark {
            return Err(DeleteRecordsFailure::OutOfRange);
        }
        if inner.log.write().increase_log_start_offset(target) {
            let log_start_offset = inner.log.read().log_start_offset();
            self.apply(&mut inner, ReplicaEvent::LogStartRaised { log_start_offset });
            // Followers are told in their next answer, which goes out now.
            self.visible_change(&mut inner);
        }
        Ok(target)
    }

    /// The lowest log start over the replicas that are alive; `None`: not known yet.
    pub fn low_watermark(&self) -> Result<Option<Offset>, PartitionError> {
        let inner = self.lock();
        Partition::check_leader(&inner, None)?;
        let own = inner.log.read().log_start_offset();
        let is_alive = |follower| self.context.is_alive(self.id, follower);
        Ok(inner.state.leader().map_or(Some(own), |leader| leader.low_watermark(own, is_alive)))
    }
}
