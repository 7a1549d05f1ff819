//! What a fetcher does with a partition that follows.

use std::time::Duration;

use common::ids::*;
use tracing::{debug, info, warn};

use super::partition::{Inner, Partition};
use super::state::{ReplicaEvent, Role};
use crate::fetcher::fetch_state::{
    DivergingEpoch, FollowerAction, LeaderAnswer, LocalLog, action, truncation_offset,
};
use crate::fetcher::session::PartitionRequest;
use crate::log::{AppendError, LogError};

/// What the fetcher does with the partition next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerOutcome {
    /// Fetch on from here.
    Continue(PartitionRequest),
    /// Fetch again from here after a pause.
    Pause(PartitionRequest),
    /// The same, because a throttle says so.
    Throttled(Duration),
    /// It no longer follows under that epoch, or its directory failed: metadata says what is next.
    Stop,
}

impl Partition {
    /// Where to fetch from, while it follows under this epoch.
    pub fn fetch_position(&self, under: LeaderEpoch) -> Option<PartitionRequest> {
        let inner = self.lock();
        follows(&inner, under).then(|| request(&inner))
    }

    /// Applies the leader's answer to a fetch from `fetched_from`. An answer that arrives after the
    /// epoch changed, or after the log was cut, is dropped.
    pub fn apply_fetched(
        &self,
        under: LeaderEpoch,
        fetched_from: Offset,
        answer: &LeaderAnswer,
        records: &[u8],
    ) -> FollowerOutcome {
        let mut inner = self.lock();
        if !follows(&inner, under) {
            return FollowerOutcome::Stop;
        }
        if inner.state.log_end_offset() != fetched_from {
            return FollowerOutcome::Continue(request(&inner));
        }
        let local = local_log(&inner);
        let applied = match action(answer, &local) {
            FollowerAction::Append => self.append_fetched(&mut inner, answer, records),
            FollowerAction::Truncate(diverging) => self.truncate_diverged(&mut inner, diverging, &local),
            FollowerAction::RestartAt(offset) => self.restart(&mut inner, offset),
            FollowerAction::Pause => {
                debug!(partition = %self, error = answer.error.name(), "fetch refused");
                Ok(Progress::Pause)
            }
        };
        match applied {
            Ok(Progress::Continue) => match self.follower_throttle_wait(&inner, answer, records.len()) {
                Some(wait) => FollowerOutcome::Throttled(wait),
                None => FollowerOutcome::Continue(request(&inner)),
            },
            Ok(Progress::Pause) => FollowerOutcome::Pause(request(&inner)),
            Err(error) => {
                self.fail_storage(&mut inner, &error);
                // On a full disk the fetcher backs off and tries again.
                if inner.offline { FollowerOutcome::Stop } else { FollowerOutcome::Pause(request(&inner)) }
            }
        }
    }

    /// Counts what came; one that has all that is committed does not wait.
    fn follower_throttle_wait(&self, inner: &Inner, answer: &LeaderAnswer, bytes: usize) -> Option<Duration> {
        if !inner.follower_throttled {
            return None;
        }
        let now_ms = self.context.clock.monotonic_ms();
        let mut throttle = self.context.follower_throttle.lock();
        throttle.record(bytes, now_ms);
        if inner.state.log_end_offset() >= answer.high_watermark {
            return None;
        }
        throttle.wait_ms(now_ms).map(Duration::from_millis)
    }

    fn append_fetched(
        &self,
        inner: &mut Inner,
        answer: &LeaderAnswer,
        records: &[u8],
    ) -> Result<Progress, LogError> {
        let mut progress = Progress::Continue;
        if !records.is_empty() {
            let appended = inner.log.write().append_as_follower(records, self.context.clock.now_ms());
            match appended {
                Ok(_) => {}
                Err(AppendError::Storage(error)) => return Err(error),
                Err(error) => {
                    warn!(partition = %self, %error, "cannot append what the leader sent");
                    progress = Progress::Pause;
                }
            }
        }
        let log_end_offset = inner.log.read().log_end_offset();
        let leader_high_watermark = answer.high_watermark;
        let before = inner.state.log_end_offset();
        self.apply(inner, ReplicaEvent::Replicated { log_end_offset, leader_high_watermark });
        if log_end_offset != before {
            inner.version += 1;
            self.notify_changed();
        }
        let target = answer.log_start_offset.min(inner.state.high_watermark());
        if target > inner.log.read().log_start_offset() {
            inner.log.write().increase_log_start_offset(target);
            self.visible_change(inner);
        }
        Ok(progress)
    }

    fn truncate_diverged(
        &self,
        inner: &mut Inner,
        diverging: DivergingEpoch,
        local: &LocalLog,
    ) -> Result<Progress, LogError> {
        let own_end = {
            let log = inner.log.read();
            if inner.mirroring {
                Some(log.mirrored_end_offset_for_epoch(diverging.epoch))
            } else {
                log.end_offset_for_epoch(diverging.epoch)
            }
        };
        let target = truncation_offset(diverging, own_end, local);
        if target >= local.log_end_offset {
            // No record to cut. What differs may be an epoch in which we led and wrote nothing: it stands at
            // our end, and the leader has never heard of it.
            let forgotten = inner.log.write().forget_empty_epochs()?;
            return Ok(if forgotten { Progress::Continue } else { Progress::Pause });
        }
        info!(partition = %self, ?diverging, log_end_offset = %local.log_end_offset, %target,
            high_watermark = %local.high_watermark, "log diverges from the leader's: truncates");
        let cut = inner.log.cut(|log| log.truncate_to(target));
        let log_end_offset = inner.log.read().log_end_offset();
        self.apply(inner, ReplicaEvent::Truncated { log_end_offset });
        cut.map(|_| Progress::Continue)
    }

    fn restart(&self, inner: &mut Inner, offset: Offset) -> Result<Progress, LogError> {
        info!(partition = %self, log_end_offset = %inner.state.log_end_offset(), %offset,
            "the leader's log starts elsewhere: drops all, starts there");
        let restarted = inner.log.cut(|log| log.truncate_fully_and_start_at(offset));
        // What runs out there is space for the new files, after the old ones went.
        if restarted.as_ref().err().is_none_or(LogError::is_exhausted) {
            self.apply(inner, ReplicaEvent::Restarted { offset });
        }
        restarted.map(|()| Progress::Continue)
    }
}

enum Progress {
    Continue,
    Pause,
}

fn follows(inner: &Inner, under: LeaderEpoch) -> bool {
    !inner.offline
        && matches!(inner.state.role(), Role::Follower { .. })
        && inner.state.leader_epoch() == under
}

fn local_log(inner: &Inner) -> LocalLog {
    let log = inner.log.read();
    LocalLog {
        log_start_offset: log.log_start_offset(),
        log_end_offset: log.log_end_offset(),
        high_watermark: inner.state.high_watermark(),
    }
}

fn request(inner: &Inner) -> PartitionRequest {
    let log = inner.log.read();
    PartitionRequest {
        fetch_offset: log.log_end_offset(),
        log_start_offset: log.log_start_offset(),
        leader_epoch: inner.state.leader_epoch(),
        last_fetched_epoch: log.latest_epoch(),
    }
}
