//! Fetchers against a scripted source: cases M1, S1, S2, S3 and S5 of the fault list, and what the
//! reference says of each error.

mod answers;
mod copying;
mod frames;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::ids::*;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::*;
use crate::mirror::lag::Lag;
use crate::mirror::source::SourceClient;
use crate::mirror::state::{FailureKind, FetchStop, MirrorEvent, SourceLeader, Token};
use crate::mirror::testing::*;

pub(super) struct Fixture {
    pub source: FakeSource,
    pub client: Arc<SourceClient>,
    pub partition: Arc<FakePartition>,
    pub manager: FetcherManager,
    pub lag: Arc<Lag>,
    events: mpsc::UnboundedReceiver<MirrorEvent>,
}

pub(super) fn token() -> Token {
    Token { leadership: LeaderEpoch(5), association: Association(1), step: 9 }
}

impl Fixture {
    pub fn new(source: FakeSource) -> Fixture {
        let (sender, events) = mpsc::unbounded_channel();
        let sink = Arc::new(move |_, event| {
            let _ = sender.send(event);
        });
        let budget = Arc::new(FetchBudget::new(8 << 20));
        let manager =
            FetcherManager::new(BrokerId(7), Handle::current(), budget, Arc::new(FixedClock), sink, 1);
        let (client, partition) = (source.client(), FakePartition::new(5));
        Fixture { source, client, partition, manager, lag: Arc::default(), events }
    }

    pub fn start(&self) {
        let epoch = LeaderEpoch(self.source.state.lock().epoch);
        let leader = SourceLeader { host: "source".into(), port: 9092, node_id: 1, epoch };
        let under = LeaderEpoch(self.partition.state.lock().leader_epoch);
        let (partition, lag) = (self.partition.clone(), self.lag.clone());
        self.manager.start(
            &self.client,
            partition_id(),
            TOPIC.into(),
            token(),
            &leader,
            under,
            partition,
            lag,
        );
    }

    pub async fn event(&mut self) -> MirrorEvent {
        tokio::time::timeout(Duration::from_secs(10), self.events.recv())
            .await
            .expect("in time")
            .expect("open")
    }

    /// Why the fetch stopped; a success before it is passed over.
    pub async fn stopped(&mut self) -> FetchStop {
        loop {
            match self.event().await {
                MirrorEvent::FetchSucceeded { .. } => {}
                MirrorEvent::FetchStopped { token: stopped, why } => {
                    assert_eq!(stopped, token());
                    return why;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub async fn failed(&mut self) -> FailureKind {
        match self.stopped().await {
            FetchStop::Failed(reason) => reason.kind,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the local log ends there, or fails the test.
    pub async fn copied_to(&self, end: i64) {
        let copied = self.partition.wait_for_end(end);
        tokio::time::timeout(Duration::from_secs(10), copied).await.expect("copied in time");
    }

    /// Waits until something is true, or fails the test.
    pub async fn until(&self, holds: impl Fn(&Fixture) -> bool) {
        let wait = async {
            while !holds(self) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("in time");
    }

    pub fn log(&self) -> Bytes {
        Bytes::copy_from_slice(&self.partition.state.lock().log)
    }
}

pub(super) fn log() -> Vec<Bytes> {
    vec![batch(0, 3, 1), batch(3, 1, 1), batch(4, 5, 2)]
}
