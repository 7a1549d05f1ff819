//! What this broker knows of the mirror partitions it leads: written by the manager alone, read by
//! Describe, metrics and reports.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use common::mirror_state::MirrorState;
use parking_lot::RwLock;

use super::lag::{Lag, LagReading};
use super::state::{MirrorFacts, MirrorReport};

#[derive(Clone, Debug)]
pub struct ViewEntry {
    pub topic: Arc<str>,
    pub mirror: Arc<str>,
    pub association: Association,
    pub leader_epoch: LeaderEpoch,
    pub report: MirrorReport,
    /// The release is in this broker's image, and its replicas know of it.
    pub released: bool,
    pub lag: Arc<Lag>,
}

impl ViewEntry {
    pub fn reading(&self) -> LagReading {
        self.lag.reading()
    }
}

#[derive(Default)]
pub struct MirrorView {
    partitions: RwLock<HashMap<TopicIdPartition, ViewEntry>>,
}

impl MirrorView {
    pub fn set(&self, id: TopicIdPartition, facts: &MirrorFacts, report: &MirrorReport, lag: &Arc<Lag>) {
        let entry = ViewEntry {
            topic: facts.topic.clone(),
            mirror: facts.mirror.clone(),
            association: facts.association,
            leader_epoch: facts.leader_epoch,
            report: report.clone(),
            released: facts.released,
            lag: lag.clone(),
        };
        self.partitions.write().insert(id, entry);
    }

    pub fn remove(&self, id: TopicIdPartition) {
        self.partitions.write().remove(&id);
    }

    pub fn get(&self, id: TopicIdPartition) -> Option<ViewEntry> {
        self.partitions.read().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<(TopicIdPartition, ViewEntry)> {
        self.partitions.read().iter().map(|(id, entry)| (*id, entry.clone())).collect()
    }

    /// Led partitions by mirror and state, for metrics.
    pub fn counts(&self) -> HashMap<(Arc<str>, MirrorState), usize> {
        let mut counts = HashMap::new();
        for entry in self.partitions.read().values() {
            *counts.entry((entry.mirror.clone(), entry.report.state)).or_insert(0) += 1;
        }
        counts
    }

    /// The largest lag of each mirror, in records.
    pub fn largest_lags(&self) -> HashMap<Arc<str>, i64> {
        let mut lags: HashMap<Arc<str>, i64> = HashMap::new();
        for entry in self.partitions.read().values() {
            if let Some(lag) = entry.lag.reading().lag() {
                let largest = lags.entry(entry.mirror.clone()).or_default();
                *largest = lag.max(*largest);
            }
        }
        lags
    }
}
