//! The committed image: replays what the quorum commits, on active and inactive controllers alike.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use common::metadata::{ApplyError, MetadataDelta, MetadataImage, codec, snapshot};
use parking_lot::Mutex;
use raft_log::{Leadership, Listener};
use tokio_util::sync::CancellationToken;

use super::publisher::Publisher;

/// Outcomes of so many entries are kept: more than can be in flight.
const KEPT_OUTCOMES: usize = 1024;

/// Shared by the log, which calls it, and everybody who reads the committed image.
pub struct MetadataListener {
    committed: ArcSwap<MetadataImage>,
    publisher: Publisher,
    state: Mutex<State>,
    failed: CancellationToken,
}

#[derive(Default)]
struct State {
    /// (index, whether all its batches were applied) of the newest entries.
    outcomes: VecDeque<(u64, bool)>,
    failure: Option<String>,
}

impl MetadataListener {
    pub fn new() -> Arc<MetadataListener> {
        Arc::new(MetadataListener {
            committed: ArcSwap::default(),
            publisher: Publisher::new(),
            state: Mutex::default(),
            failed: CancellationToken::new(),
        })
    }

    pub fn image(&self) -> Arc<MetadataImage> {
        self.committed.load_full()
    }

    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Whether the entry at `index` had an effect. `None`: not known any more.
    pub fn applied(&self, index: u64) -> Option<bool> {
        let state = self.state.lock();
        state.outcomes.iter().rev().find(|(at, _)| *at == index).map(|(_, applied)| *applied)
    }

    /// Waits until the metadata log turns out not to be readable, and says why: the process must stop,
    /// since its image would differ from everybody else's.
    pub async fn failed(&self) -> String {
        self.failed.cancelled().await;
        self.state.lock().failure.clone().unwrap_or_default()
    }

    fn fail(&self, reason: String) {
        tracing::error!("the metadata log cannot be replayed: {reason}");
        self.state.lock().failure.get_or_insert(reason);
        self.failed.cancel();
    }
}

impl Listener for MetadataListener {
    fn commit(&self, index: u64, term: u64, payload: Bytes) {
        if self.failed.is_cancelled() {
            return;
        }
        let batches = match codec::decode_batches(&payload) {
            Ok(batches) => batches,
            Err(error) => return self.fail(format!("entry {index}: {error}")),
        };
        let mut image = (*self.image()).clone();
        let mut applied_all = true;
        let mut applied = Vec::with_capacity(batches.len());
        for batch in batches {
            match image.apply(&batch, &mut MetadataDelta::default()) {
                Ok(()) => applied.push(batch),
                Err(error @ ApplyError::NotSuccessor { .. }) => {
                    // Computed on a draft that never became true (decision 1).
                    tracing::info!(index, term, "batch ignored: {error}");
                    applied_all = false;
                }
                Err(error @ ApplyError::Contradiction { .. }) => {
                    return self.fail(format!("entry {index}: {error}"));
                }
            }
        }
        if !applied.is_empty() {
            self.committed.store(Arc::new(image));
            self.publisher.publish(&applied);
        }
        let mut state = self.state.lock();
        if state.outcomes.len() == KEPT_OUTCOMES {
            state.outcomes.pop_front();
        }
        state.outcomes.push_back((index, applied_all));
    }

    fn load_snapshot(&self, index: u64, term: u64, data: &[u8]) -> Result<(), String> {
        let image = snapshot::read(data).map_err(|error| error.to_string())?;
        tracing::info!(index, term, offset = image.offset.0, "metadata snapshot loaded");
        let (offset, last_term) = (image.offset, image.term);
        self.committed.store(Arc::new(image));
        self.publisher.reset(offset, last_term);
        Ok(())
    }

    fn snapshot(&self) -> Vec<u8> {
        snapshot::write(&self.image())
    }

    fn snapshot_work(&self) -> Box<dyn FnOnce() -> Vec<u8> + Send> {
        // The image is fixed now and written elsewhere, while commits go on.
        let image = self.image();
        Box::new(move || snapshot::write(&image))
    }

    fn leader_change(&self, _leadership: Leadership) {
        // The writer watches leadership itself, in order with its own events.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::register;
    use crate::quorum::state::Draft;
    use common::ids::{MetadataOffset, Term};

    #[test]
    fn a_batch_of_a_dropped_draft_has_no_effect_and_is_reported() {
        let listener = MetadataListener::new();
        let mut draft = Draft::new(Term(1), MetadataImage::default());
        let lost = draft.batch(vec![register(1, None)], 0);
        draft.replay(&lost).unwrap();
        let after = draft.batch(vec![register(2, None)], 0);
        listener.commit(5, 1, codec::encode_batches(&[after]));
        assert_eq!(listener.applied(5), Some(false));
        assert_eq!(listener.image().offset, MetadataOffset::ZERO);
        listener.commit(6, 1, codec::encode_batches(&[lost]));
        assert_eq!(listener.applied(6), Some(true));
        assert_eq!(listener.image().offset, MetadataOffset(1));
        assert_eq!(listener.applied(4), None);
    }

    #[test]
    fn snapshots_carry_the_image() {
        let listener = MetadataListener::new();
        let draft = Draft::new(Term(1), MetadataImage::default());
        listener.commit(1, 1, codec::encode_batches(&[draft.batch(vec![register(1, None)], 0)]));
        let data = listener.snapshot_work()();
        assert_eq!(data, listener.snapshot());
        let other = MetadataListener::new();
        other.load_snapshot(1, 1, &data).unwrap();
        assert_eq!(other.image().digest(), listener.image().digest());
        assert!(other.load_snapshot(1, 1, &data[..data.len() / 2]).is_err());
    }

    #[tokio::test]
    async fn b05_metadata_of_a_later_version_stops_the_process_and_is_not_skipped() {
        let listener = MetadataListener::new();
        let mut draft = Draft::new(Term(1), MetadataImage::default());
        let mut entries = Vec::new();
        for broker in 1..=3 {
            let batch = draft.batch(vec![register(broker, None)], 0);
            draft.replay(&batch).unwrap();
            entries.push(codec::encode_batches(&[batch]));
        }
        let mut later = entries[1].to_vec();
        later[0] = 99;
        listener.commit(1, 1, entries[0].clone());
        listener.commit(2, 1, later.into());
        // What comes after it would fit, were the second one there.
        listener.commit(3, 1, entries[2].clone());
        let reason = listener.failed().await;
        assert!(reason.contains("entry 2") && reason.contains("version 99"), "{reason}");
        assert_eq!(listener.image().offset, MetadataOffset(1));
        assert_eq!(listener.applied(3), None);
    }
}
