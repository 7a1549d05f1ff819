//! STOPPING and STOPPED: the steps (a) to (f) of decision 10, then the release of decision 14.

use common::ids::*;
use common::mirror_state::MirrorState;

use crate::mirror::coordinator::record::StateRecord;

use super::failure::Moment;
use super::{Action, Effects, MirrorPartition, Then};

impl MirrorPartition {
    /// The suffix stands: whatever is under way ends, and STOPPING is recorded first. A fetcher goes on
    /// until that is durable; quiescing removes it.
    pub(super) fn stop(&mut self, at: Moment, out: &mut Effects) {
        self.pauses = 0;
        if self.record.is_none() {
            // Nothing is known to be recorded: the coordinator is asked first.
            return self.begin(Action::Read, out);
        }
        self.take_over(at, out);
    }

    pub(super) fn resume_stopping(&mut self, out: &mut Effects) {
        match self.facts.stopping_cut {
            Some(cut) => self.begin(Action::AwaitReplicas(cut), out),
            None => self.begin(Action::Quiesce, out),
        }
    }

    /// The first half of (b), and (a) of both cuts.
    pub(super) fn quiesced(
        &mut self,
        log_end: Offset,
        highest_batch_epoch: LeaderEpoch,
        at: Moment,
        out: &mut Effects,
    ) {
        match self.recorded_state() {
            MirrorState::Preparing => {
                self.begin(Action::AskSource { local_end: log_end, highest_batch_epoch }, out);
            }
            // Without a PREPARING cut the log holds nothing of this association: nothing is cut and no
            // last mirrored offset is recorded (decision 10b).
            _ if self.facts.preparing_cut.is_none() => self.save(MirrorState::Stopped, at, out),
            _ => self.begin(Action::AwaitHighWatermark, out),
        }
    }

    pub(super) fn replicas_aligned(&mut self, log_end: Offset, at: Moment, out: &mut Effects) {
        if self.recorded_state() == MirrorState::Preparing {
            return self.save(MirrorState::Mirroring, at, out);
        }
        let record =
            StateRecord { last_mirrored_offset: Some(log_end), ..self.record_of(MirrorState::Stopped, at) };
        let standing = self.own_record().is_some_and(|own| {
            own.state == MirrorState::Stopped
                && own.last_mirrored_offset == Some(log_end)
                && own.leader_epoch == self.facts.leader_epoch
        });
        if standing {
            return self.begin(Action::Release, out);
        }
        self.save_record(record, Then::Resume, out);
    }

    /// STOPPED is recorded, the release is not in the image. A leader that did not write the record
    /// itself repeats the waiting and the record: an unclean election may have shortened the log.
    pub(super) fn resume_stopped(&mut self, out: &mut Effects) {
        let Some(own) = self.own_record() else { return self.begin(Action::Read, out) };
        let written_here = own.leader_epoch >= self.leadership;
        match self.facts.stopping_cut {
            Some(cut) if !written_here => self.begin(Action::AwaitReplicas(cut), out),
            _ => self.begin(Action::Release, out),
        }
    }
}
