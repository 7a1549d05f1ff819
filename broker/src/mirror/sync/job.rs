//! One mirror's refresh: every `mirror.metadata.refresh.interval.ms`, and at once when topics are added.
//! A step that fails is logged, counted and tried again in the next cycle; it stops neither the other
//! steps nor other mirrors.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::fault;
use common::ids::*;
use common::metadata::MetadataImage;
use common::metadata::record::{ConfigResource, ConfigResourceType};
use protocol::proto::controller::{ProposeMirrorRequest, propose_mirror_request as wire};
use protocol::{Request, Response};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::mirror::deps::{ControllerLink, Metadata};
use crate::mirror::manager::Coordination;
use crate::mirror::metrics::MirrorMetrics;
use crate::mirror::source::{SourceClient, SourceMetadata};
use crate::mirror::state::SourceFailure;

use super::configs;
use super::remarks::Remarks;
use super::topics::{self, MissingTopics, TopicPlan};

/// Topics in one DescribeConfigs, and creations in one proposal.
const CHUNK: usize = 100;
/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(20);
/// A refresh that was woken comes at most this often.
const LEAST_INTERVAL: Duration = Duration::from_millis(250);

pub struct SyncJob {
    pub mirror: Arc<str>,
    pub client: Arc<SourceClient>,
    pub metadata: Arc<dyn Metadata>,
    pub controller: Arc<dyn ControllerLink>,
    pub coordination: Arc<dyn Coordination>,
    pub metrics: Arc<MirrorMetrics>,
    pub interval: Duration,
    pub wake: Arc<Notify>,
    pub stop: CancellationToken,
}

fn retry_pause(failures: u32) -> Duration {
    LEAST_INTERVAL.saturating_mul(1 << failures.min(6))
}

type Configs = HashMap<Arc<str>, BTreeMap<String, String>>;

/// What lasts from one cycle to the next.
#[derive(Default)]
struct Memory {
    missing: MissingTopics,
    remarks: Remarks,
}

impl SyncJob {
    pub async fn run(self) {
        let mut memory = Memory::default();
        let mut pending_seen = 0_usize;
        let mut failures = 0_u32;
        loop {
            let done = tokio::select! {
                () = self.stop.cancelled() => return,
                done = self.cycle(&mut memory) => done,
            };
            let cycle_ended = Instant::now();
            failures = if done { 0 } else { failures.saturating_add(1) };
            let pause = if done { self.interval } else { retry_pause(failures).min(self.interval) };
            loop {
                tokio::select! {
                    () = self.stop.cancelled() => return,
                    () = tokio::time::sleep_until(cycle_ended + pause) => break,
                    () = self.wake.notified() => {
                        // Only topics that wait to be created cannot wait for the next cycle.
                        let pending = self.pending();
                        let more = pending > pending_seen;
                        pending_seen = pending;
                        if more {
                            let settle = LEAST_INTERVAL.saturating_sub(cycle_ended.elapsed()).max(SETTLE);
                            tokio::time::sleep(settle).await;
                            break;
                        }
                    }
                }
            }
        }
    }

    fn pending(&self) -> usize {
        let image = self.metadata.image();
        image.pending_mirror_topics.values().filter(|mirror| **mirror == self.mirror).count()
    }

    /// False: the source could not be listed; again soon.
    async fn cycle(&self, memory: &mut Memory) -> bool {
        // Two brokers may believe for a moment that they coordinate; the controller makes each change
        // idempotent, so that costs a request and nothing else.
        if !self.coordination.coordinates(&self.mirror) {
            return true;
        }
        let Memory { missing, remarks } = memory;
        let listing = match self.listing(remarks).await {
            Ok(listing) => listing,
            Err(why) => {
                missing.no_listing();
                self.metrics.topic_metadata_refresh_errors.fetch_add(1, Ordering::Relaxed);
                warn!(mirror = %self.mirror, %why, "source topics are not refreshed");
                return false;
            }
        };
        let image = self.metadata.image();
        let plan = topics::plan(&image, &self.mirror, &listing);
        for complaint in &plan.complaints {
            if remarks.is_new(complaint) {
                warn!(mirror = %self.mirror, complaint, "source topic does not fit");
            }
        }
        // An empty listing is no evidence that anything is gone.
        if listing.topics.is_empty() {
            missing.no_listing();
        } else {
            let confirmed = self.confirm_missing(&image, &plan).await;
            self.report_gone(missing.listed(confirmed), remarks).await;
        }
        self.create_and_grow(&plan, remarks).await;
        self.sync_configs(&plan, remarks).await;
        remarks.next_cycle();
        true
    }

    /// The first contact is recorded before anything is done with what the source says.
    async fn listing(&self, remarks: &mut Remarks) -> Result<SourceMetadata, SourceFailure> {
        let found = self.client.metadata(None).await?;
        let Some(cluster_id) = found.cluster_id.clone() else {
            return Err(SourceFailure::CouldNotAsk("it does not tell its cluster id".to_owned()));
        };
        if self.client.identity().source_cluster_id.is_none() {
            let source =
                wire::MirrorSource { mirror: self.mirror.to_string(), source_cluster_id: cluster_id.clone() };
            let request = ProposeMirrorRequest { sources: vec![source], ..Default::default() };
            self.propose("first contact", &[], request, remarks).await;
            let image = self.metadata.image();
            let recorded =
                image.mirrors.get(&self.mirror).and_then(|mirror| mirror.source_cluster_id.clone());
            if recorded.as_deref() != Some(cluster_id.as_str()) {
                return Err(SourceFailure::CouldNotAsk("its cluster id is being recorded".to_owned()));
            }
        }
        Ok(found)
    }

    /// Each missing topic once more by its name: only a clear answer counts.
    async fn confirm_missing(&self, image: &MetadataImage, plan: &TopicPlan) -> Vec<(TopicId, Association)> {
        if plan.missing.is_empty() {
            return Vec::new();
        }
        let Ok(by_name) = self.client.metadata(Some(&plan.missing)).await else { return Vec::new() };
        plan.missing
            .iter()
            .filter_map(|name| {
                let topic = image.topic(name)?;
                let association = topic.mirror.as_ref()?.association;
                topics::is_gone(topic.id, by_name.topics.get(name)).then_some((topic.id, association))
            })
            .collect()
    }

    async fn report_gone(&self, gone: Vec<(TopicId, Association)>, remarks: &mut Remarks) {
        if gone.is_empty() {
            return;
        }
        let image = self.metadata.image();
        let mut names = Vec::with_capacity(gone.len());
        for (topic_id, association) in &gone {
            let topic =
                image.topic_by_id(*topic_id).map_or_else(|| Arc::from(""), |topic| topic.name.clone());
            names.push(topic.clone());
            info!(mirror = %self.mirror, topic = &*topic, %topic_id, association = association.0, "the topic is gone at the source");
        }
        let source_deleted = gone
            .into_iter()
            .map(|(topic_id, association)| wire::SourceDeleted {
                topic_id: bytes::Bytes::copy_from_slice(topic_id.0.as_bytes()),
                association: association.0,
            })
            .collect();
        fault::point("mirror.source_deleted.send", &self.mirror).await;
        let request = ProposeMirrorRequest { source_deleted, ..Default::default() };
        self.propose("deleted topics", &names, request, remarks).await;
        fault::point("mirror.source_deleted.answered", &self.mirror).await;
    }

    async fn create_and_grow(&self, plan: &TopicPlan, remarks: &mut Remarks) {
        for chunk in plan.creates.chunks(CHUNK) {
            let names: Vec<Arc<str>> = chunk.iter().map(|(name, ..)| name.clone()).collect();
            // Created with its configs, or later: never with the wrong ones.
            let Some(configs) = self.configs_of(&names, remarks).await else { continue };
            let (mut creates, mut created) = (Vec::new(), Vec::new());
            for (name, topic_id, partitions) in chunk {
                let Some(configs) = configs.get(name) else { continue };
                created.push(name.clone());
                creates.push(wire::Create {
                    mirror: self.mirror.to_string(),
                    topic: name.to_string(),
                    topic_id: bytes::Bytes::copy_from_slice(topic_id.0.as_bytes()),
                    partitions: *partitions,
                    configs: configs.clone().into_iter().collect(),
                });
            }
            if creates.is_empty() {
                continue;
            }
            let request = ProposeMirrorRequest { creates, ..Default::default() };
            self.propose("new topics", &created, request, remarks).await;
        }
        if !plan.grows.is_empty() {
            let grows = plan.grows.iter().map(|(_, topic_id, partitions)| wire::Grow {
                mirror: self.mirror.to_string(),
                topic_id: bytes::Bytes::copy_from_slice(topic_id.0.as_bytes()),
                partitions: *partitions,
            });
            let request = ProposeMirrorRequest { grows: grows.collect(), ..Default::default() };
            let names: Vec<Arc<str>> = plan.grows.iter().map(|(name, ..)| name.clone()).collect();
            self.propose("new partitions", &names, request, remarks).await;
        }
    }

    async fn sync_configs(&self, plan: &TopicPlan, remarks: &mut Remarks) {
        let excluded = self.client.settings();
        for chunk in plan.present.chunks(CHUNK) {
            let Some(found) = self.configs_of(chunk, remarks).await else { continue };
            let image = self.metadata.image();
            let (mut changes, mut changed) = (Vec::new(), Vec::new());
            for (name, wanted) in &found {
                let resource =
                    ConfigResource { resource_type: ConfigResourceType::Topic, name: name.clone() };
                let current = image.configs.get(&resource).map(|configs| &**configs);
                let Some(topic) = image.topic(name) else { continue };
                if let Some(change) = configs::difference(wanted, current, &excluded) {
                    changed.push(name.clone());
                    changes.push(wire::Configs {
                        mirror: self.mirror.to_string(),
                        topic_id: bytes::Bytes::copy_from_slice(topic.id.0.as_bytes()),
                        set: change.set.into_iter().collect(),
                        unset: change.unset,
                    });
                }
            }
            if !changes.is_empty() {
                let request = ProposeMirrorRequest { configs: changes, ..Default::default() };
                self.propose("configs", &changed, request, remarks).await;
            }
        }
    }

    /// A topic whose configs the source does not tell is left out: it is not created with the wrong ones.
    async fn configs_of(&self, topics: &[Arc<str>], remarks: &mut Remarks) -> Option<Configs> {
        let excluded = self.client.settings();
        let not_read = |topic: &str, why: String, remarks: &mut Remarks| {
            self.metrics.topic_config_sync_errors.fetch_add(1, Ordering::Relaxed);
            if remarks.is_new(&format!("{topic}: {why}")) {
                warn!(mirror = %self.mirror, topic, %why, "topic configs of the source are not read");
            }
        };
        match self.client.call(Request::DescribeConfigs(configs::request(topics))).await {
            Ok((Response::DescribeConfigs(answer), _)) => {
                let mut found = Configs::new();
                for result in &answer.results {
                    let topic: Arc<str> = Arc::from(result.resource_name.as_str());
                    match configs::refusal(result) {
                        Some(why) => not_read(&topic, why, remarks),
                        None => drop(found.insert(topic, configs::wanted(result, &excluded))),
                    }
                }
                Some(found)
            }
            Ok(_) => None,
            Err(why) => {
                not_read("", why.to_string(), remarks);
                None
            }
        }
    }

    /// One bad item never blocks the rest: each has a result of its own, in the order of `topics`.
    async fn propose(
        &self,
        what: &str,
        topics: &[Arc<str>],
        request: ProposeMirrorRequest,
        remarks: &mut Remarks,
    ) {
        match self.controller.propose(request).await {
            Ok(answer) if answer.error_code == 0 => {
                for (index, result) in answer.results.iter().enumerate() {
                    let (topic, why) = (topics.get(index).map_or("", |topic| topic), &result.error_message);
                    let code = result.error_code;
                    if code == 0 && why.is_empty() || !remarks.is_new(&format!("{what} {topic} {code} {why}"))
                    {
                        continue;
                    }
                    if code != 0 {
                        warn!(mirror = %self.mirror, what, topic, code, why, "mirror change is refused");
                    } else {
                        warn!(mirror = %self.mirror, what, topic, remark = why, "mirror change is incomplete");
                    }
                }
            }
            Ok(answer) => {
                warn!(mirror = %self.mirror, what, code = answer.error_code, "mirror change is refused")
            }
            Err(why) => warn!(mirror = %self.mirror, what, why, "mirror change is not committed"),
        }
    }
}
