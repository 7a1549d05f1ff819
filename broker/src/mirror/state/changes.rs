//! The image went on, or time did.

use common::ids::LeaderEpoch;
use common::mirror_state::MirrorState;

use super::effect::MirrorEffect;
use super::facts::MirrorFacts;
use super::failure::Moment;
use super::{Action, Awaited, Effects, MirrorPartition, Phase};

impl MirrorPartition {
    /// The image changed. What is under way goes on unless the change makes it wrong: a raised epoch
    /// without a change of leader starts nothing anew (decision 10f).
    pub(super) fn facts_changed(&mut self, facts: MirrorFacts, at: Moment, out: &mut Effects) {
        let before = std::mem::replace(&mut self.facts, facts);
        if self.facts == before {
            return;
        }
        if self.facts.association != before.association
            || self.facts.recovering != before.recovering
            || (self.facts.released && !before.released)
        {
            self.drop_fetcher(out);
            self.attempt = 0;
            self.doubted_epoch = None;
            if self.facts.association != before.association {
                // It may be with another source, whose epochs say nothing about the earlier one's.
                self.tracked_epoch = LeaderEpoch::UNKNOWN;
                self.bounds_wanted = false;
                // What was shown is of the earlier one; of this one nothing is recorded yet.
                self.show(MirrorState::Unknown, String::new(), at, out);
            }
            if self.facts.recovering != before.recovering {
                // An unclean election is a new leadership even where the same broker won it: what was
                // recorded before it may be of a longer log (decision 14).
                self.leadership = self.facts.leader_epoch;
            }
            return self.enter(at, out);
        }
        if self.facts.removed && !before.removed {
            match self.phase {
                // The answer decides what is recorded; the stop follows it.
                Phase::Doing(Action::Read | Action::Save(_)) | Phase::Released | Phase::Recovering => {}
                Phase::Pausing { action: Action::Read, .. } => {}
                _ => return self.stop(at, out),
            }
        }
        let cut_appeared = (before.preparing_cut.is_none() && self.facts.preparing_cut.is_some())
            || (before.stopping_cut.is_none() && self.facts.stopping_cut.is_some())
            || self.facts.checked_source_cut > before.checked_source_cut;
        match self.phase.clone() {
            Phase::Recovering | Phase::Released => {}
            // What is written, or read, goes on from the image when it is answered.
            Phase::Doing(Action::Read | Action::Save(_))
            | Phase::Pausing { action: Action::Read | Action::Save(_), .. } => {}
            Phase::ImageBehind => self.begin(Action::Read, out),
            // Ours, or that of a request that seemed lost: it stands, and is completed.
            _ if cut_appeared => {
                self.drop_fetcher(out);
                self.resume(at, out);
            }
            Phase::Fetching { .. } if self.facts.leader_epoch != before.leader_epoch => {
                out.push(MirrorEffect::AppendUnder { leader_epoch: self.facts.leader_epoch });
            }
            Phase::AwaitingImage(Awaited::Raise { source })
            | Phase::Doing(Action::Raise { source, .. })
            | Phase::Pausing { action: Action::Raise { source, .. }, .. }
                if self.facts.leader_epoch >= source.epoch =>
            {
                self.start_fetcher(source, out);
            }
            // The operator allowed what the partition waits for.
            Phase::Pausing { action: Action::AskSource { .. }, .. }
                if self.facts.recopy && !before.recopy =>
            {
                self.resume(at, out);
            }
            _ => {}
        }
    }

    /// Begins from what the image says, forgetting what was under way.
    pub(super) fn enter(&mut self, at: Moment, out: &mut Effects) {
        self.pauses = 0;
        self.step = self.step.wrapping_add(1);
        if self.facts.released {
            self.phase = Phase::Released;
            return self.show(MirrorState::Stopped, String::new(), at, out);
        }
        if self.facts.recovering {
            self.phase = Phase::Recovering;
            let reason = "waits until the unclean election is settled".to_owned();
            return self.show(self.shown.state, reason, at, out);
        }
        self.begin(Action::Read, out);
    }

    /// Connections are rebuilt, states stay; whoever waits for a better time has come to it.
    pub(super) fn settings_changed(&mut self, phase: Phase, at: Moment, out: &mut Effects) {
        match phase {
            Phase::Fetching { .. } => {
                out.push(MirrorEffect::StopFetcher);
                self.begin(Action::CheckSource, out);
            }
            Phase::Pausing { .. } | Phase::Failed { .. } => {
                self.attempt = 0;
                self.pauses = 0;
                self.try_again(phase, at, out);
            }
            _ => {}
        }
    }

    pub(super) fn tick(&mut self, phase: Phase, at: Moment, out: &mut Effects) {
        match phase {
            Phase::Pausing { until_ms, .. } | Phase::Failed { until_ms } if at.now_ms >= until_ms => {
                self.try_again(phase, at, out);
            }
            _ => {}
        }
    }

    fn try_again(&mut self, phase: Phase, at: Moment, out: &mut Effects) {
        match phase {
            Phase::Pausing { action, .. } => match action {
                Action::Read => self.begin(Action::Read, out),
                Action::Save(mut save) => {
                    save.record.leader_epoch = self.facts.leader_epoch;
                    self.begin(Action::Save(save), out);
                }
                // Whatever it was: what has to be done follows from record and image.
                _ => self.resume(at, out),
            },
            Phase::Failed { .. } => {
                let failed = self.own_record().and_then(|record| record.failed_state);
                let back = match failed {
                    Some(MirrorState::Mirroring) if self.facts.preparing_cut.is_some() => {
                        MirrorState::Mirroring
                    }
                    _ => MirrorState::Preparing,
                };
                self.save(back, at, out);
            }
            _ => {}
        }
    }
}
