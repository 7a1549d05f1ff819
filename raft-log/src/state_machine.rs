//! From the consensus to the listener.

use std::io;

use futures::{Stream, StreamExt as _};
use openraft::entry::RaftEntry as _;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, alias};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::gate::Gate;
use crate::listener::SnapshotWork;
use crate::snapshot::{SnapshotFile, Snapshots};
use crate::type_config::{LogId, SnapshotMeta, StoredMembership, Types};

/// State lives in the listener and in memory: it is rebuilt from the snapshot and the committed log.
pub(crate) struct StateMachine {
    gate: Gate,
    snapshots: Snapshots,
    applied: watch::Sender<Option<LogId>>,
    membership: StoredMembership,
}

impl StateMachine {
    pub fn new(gate: Gate, snapshots: Snapshots, applied: watch::Sender<Option<LogId>>) -> StateMachine {
        StateMachine { gate, snapshots, applied, membership: StoredMembership::default() }
    }
}

impl<C: Types> RaftStateMachine<C> for StateMachine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((*self.applied.borrow(), self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let log_id = entry.log_id();
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(payload) => {
                    let term = **log_id.committed_leader_id();
                    self.gate
                        .call(|listener| listener.commit(log_id.index(), term, payload.0))
                        .ok_or_else(shut_down)?;
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(log_id), membership);
                }
            }
            self.applied.send_replace(Some(log_id));
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let meta =
            SnapshotMeta { last_log_id: *self.applied.borrow(), last_membership: self.membership.clone() };
        // Taken between two commits; encoded and written while further ones are applied.
        let work = self.gate.call(|listener| listener.snapshot_work());
        SnapshotBuilder { snapshots: self.snapshots.clone(), meta, work: Mutex::new(work) }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotFile) -> io::Result<()> {
        let (stored, data) = self.snapshots.read(&snapshot).await?;
        if stored != *meta {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "snapshot and its description differ"));
        }
        if let Some(log_id) = meta.last_log_id {
            let term = **log_id.committed_leader_id();
            self.gate
                .call(|listener| listener.load_snapshot(log_id.index(), term, &data))
                .ok_or_else(shut_down)?
                .map_err(io::Error::other)?;
        }
        let known = self.snapshots.current().is_some_and(|(_, current)| current.name == snapshot.name);
        if !known {
            self.snapshots.take_in(meta.clone(), snapshot.name, data).await?;
        }
        self.membership = meta.last_membership.clone();
        self.applied.send_replace(meta.last_log_id);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<alias::SnapshotOf<C, SnapshotFile>>> {
        Ok(self.snapshots.current().map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

/// A snapshot to be written: openraft runs it as a task of its own.
pub(crate) struct SnapshotBuilder {
    snapshots: Snapshots,
    meta: SnapshotMeta,
    /// Locked only because openraft wants the builder to be shareable.
    work: Mutex<Option<SnapshotWork>>,
}

impl<C: Types> RaftSnapshotBuilder<C> for SnapshotBuilder {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> io::Result<alias::SnapshotOf<C, SnapshotFile>> {
        let work = self.work.get_mut().take().ok_or_else(shut_down)?;
        let snapshot = self.snapshots.save(self.meta.clone(), work).await?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot })
    }
}

fn shut_down() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the log was shut down")
}
