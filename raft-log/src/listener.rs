//! The one who builds state from the log.

use bytes::Bytes;

use crate::leadership::Leadership;

/// Makes a snapshot's bytes, away from the thread that applies entries.
pub type SnapshotWork = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Sees the committed log. Calls of `commit`, `load_snapshot` and `snapshot` come one at a time and in
/// the order of the log; they run on the consensus' own task, so they must be quick and never wait.
pub trait Listener: Send + Sync + 'static {
    /// A committed payload. Indices rise, with gaps: the quorum has entries of its own in the log.
    fn commit(&self, index: u64, term: u64, payload: Bytes);

    /// Replaces all state. An error stops this node: it must not go on with half a state.
    fn load_snapshot(&self, index: u64, term: u64, data: &[u8]) -> Result<(), String>;

    /// The state as of the last `commit`.
    fn snapshot(&self) -> Vec<u8>;

    /// Holds on to the state as of the last `commit` and encodes it later. Worth overriding where the
    /// state is large and shared, since `commit` waits while this runs.
    fn snapshot_work(&self) -> SnapshotWork {
        let data = self.snapshot();
        Box::new(move || data)
    }

    /// Leadership changed. It is told apart from the commits: an entry of a new term may come first.
    fn leader_change(&self, leadership: Leadership);
}
