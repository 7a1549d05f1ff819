//! Watches where the source's leaders are, for the partitions copied here. Errors of fetches tell of
//! most changes at once; this finds a deposed leader that goes on answering.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::fetcher::FetcherManager;
use super::manager::Mirrors;
use super::source::SourceClient;

pub async fn watch_leaders(mirrors: Arc<Mirrors>, fetchers: Arc<FetcherManager>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(mirrors.refresh_interval());
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = interval.tick() => {}
        }
        for client in mirrors.clients() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = look(&client, &fetchers) => {}
            }
        }
    }
}

async fn look(client: &Arc<SourceClient>, fetchers: &FetcherManager) {
    let copied = fetchers.sources_of(&client.mirror);
    if copied.is_empty() {
        return;
    }
    let topics: BTreeSet<Arc<str>> = copied.iter().map(|copied| copied.topic.clone()).collect();
    let topics: Vec<Arc<str>> = topics.into_iter().collect();
    let metadata = match client.metadata(Some(&topics)).await {
        Ok(metadata) => metadata,
        Err(why) => return debug!(mirror = %client.mirror, %why, "source leaders are not refreshed"),
    };
    let mut moved = HashMap::new();
    for copied in copied {
        // What is missing or wrong in the answer is the business of the next question, not of this one.
        if let Ok(leader) = metadata.leader_of(&copied.topic, copied.id)
            && leader.epoch > copied.epoch
        {
            moved.insert(copied.id, leader.epoch);
        }
    }
    for (id, epoch) in moved {
        fetchers.source_moved(id, epoch);
    }
}
