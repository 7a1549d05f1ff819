//! Who does not answer, told once: the consensus calls a voter that is gone twenty times a second.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::config::VoterId;

/// Calls in a row without an answer, about a second of a leader's heartbeats: fewer are a busy machine.
const PATIENCE_CALLS: u32 = 20;

#[derive(Default)]
pub(crate) struct Silence {
    unanswered: Mutex<BTreeMap<VoterId, Unanswered>>,
}

#[derive(Default)]
struct Unanswered {
    calls: u32,
    reason: String,
}

impl Silence {
    /// A call begins.
    pub(crate) fn called(&self, target: VoterId) {
        let mut unanswered = self.unanswered.lock();
        let entry = unanswered.entry(target).or_default();
        entry.calls = entry.calls.saturating_add(1);
        if entry.calls == PATIENCE_CALLS {
            tracing::warn!(
                controller = target.node_id,
                reason = entry.reason,
                "controller does not answer; it is asked on"
            );
        }
    }

    /// It has failed; a call that is given up says nothing.
    pub(crate) fn failed(&self, target: VoterId, reason: &str) {
        self.unanswered.lock().entry(target).or_default().reason = reason.to_owned();
    }

    /// Whether its silence had been told.
    pub(crate) fn answered(&self, target: VoterId) -> bool {
        let was = self.unanswered.lock().remove(&target);
        let told = was.is_some_and(|was| was.calls >= PATIENCE_CALLS);
        if told {
            tracing::info!(controller = target.node_id, "controller answers again");
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_a_long_silence_is_told_and_once() {
        let silence = Silence::default();
        let voter = |node_id| VoterId { node_id, directory_id: Uuid::nil() };
        for _ in 1..PATIENCE_CALLS {
            silence.called(voter(1));
            silence.failed(voter(1), "refused");
            silence.called(voter(2));
            assert!(!silence.answered(voter(2)), "an answer ends the count");
        }
        assert_eq!(silence.unanswered.lock()[&voter(1)].calls, PATIENCE_CALLS - 1);
        assert_eq!(silence.unanswered.lock()[&voter(1)].reason, "refused");
        silence.called(voter(1));
        silence.called(voter(1));
        assert!(silence.answered(voter(1)));
        assert!(!silence.answered(voter(1)));
    }
}
