//! What runs for each mirror on this broker: a client of its source, the queue of questions, the watch
//! over its leaders, and, where this broker is the mirror's coordinator, the refresh of topics and
//! configs. Started when first needed, stopped with the mirror.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::metadata::MetadataImage;
use common::metadata::record::{ConfigResource, ConfigResourceType};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::mirror::metrics::MirrorMetrics;
use crate::mirror::source::asker::{Answer, Answers};
use crate::mirror::source::{Asker, SourceClient, SourceIdentity, SourceSettings};
use crate::mirror::sync::job::SyncJob;

use super::{Message, MirrorDeps, MirrorManagerConfig};

pub struct Mirrors {
    config: MirrorManagerConfig,
    deps: MirrorDeps,
    runtime: Handle,
    messages: mpsc::UnboundedSender<Message>,
    metrics: Arc<MirrorMetrics>,
    stop: CancellationToken,
    running: Mutex<HashMap<Arc<str>, RunningMirror>>,
}

struct RunningMirror {
    client: Arc<SourceClient>,
    asker: Asker,
    stop: CancellationToken,
    /// The refresh, while this broker coordinates the mirror.
    sync: Option<SyncHandle>,
}

struct SyncHandle {
    stop: CancellationToken,
    wake: Arc<tokio::sync::Notify>,
}

fn settings_of(image: &MetadataImage, mirror: &Arc<str>) -> SourceSettings {
    let resource = ConfigResource { resource_type: ConfigResourceType::Mirror, name: mirror.clone() };
    match image.configs.get(&resource) {
        Some(config) => SourceSettings::of(config),
        None => SourceSettings::of(&Default::default()),
    }
}

impl Mirrors {
    pub(super) fn new(
        config: MirrorManagerConfig,
        deps: MirrorDeps,
        runtime: Handle,
        messages: mpsc::UnboundedSender<Message>,
        metrics: Arc<MirrorMetrics>,
        stop: CancellationToken,
    ) -> Mirrors {
        Mirrors { config, deps, runtime, messages, metrics, stop, running: Mutex::default() }
    }

    fn identity_of(&self, image: &MetadataImage, mirror: &str) -> SourceIdentity {
        SourceIdentity {
            own_cluster_id: self.config.cluster_id.clone(),
            source_cluster_id: image.mirrors.get(mirror).and_then(|mirror| mirror.source_cluster_id.clone()),
        }
    }

    pub fn client_for(&self, mirror: &str, image: &MetadataImage) -> Option<Arc<SourceClient>> {
        let name = image.mirrors.get(mirror)?.name.clone();
        let mut running = self.running.lock();
        Some(self.ensure(&mut running, &name, image).client.clone())
    }

    pub fn asker(&self, mirror: &str, image: &MetadataImage) -> Option<Asker> {
        let name = image.mirrors.get(mirror)?.name.clone();
        let mut running = self.running.lock();
        Some(self.ensure(&mut running, &name, image).asker.clone())
    }

    fn ensure<'a>(
        &self,
        running: &'a mut HashMap<Arc<str>, RunningMirror>,
        name: &Arc<str>,
        image: &MetadataImage,
    ) -> &'a mut RunningMirror {
        running.entry(name.clone()).or_insert_with(|| {
            let client = Arc::new(SourceClient::new(
                name.clone(),
                self.config.broker,
                self.deps.connector.clone(),
                settings_of(image, name),
                self.identity_of(image, name),
            ));
            let stop = self.stop.child_token();
            let asker = Asker::start(&self.runtime, client.clone(), self.answers(name), stop.clone());
            RunningMirror { client, asker, stop, sync: None }
        })
    }

    fn answers(&self, mirror: &Arc<str>) -> Answers {
        let (messages, mirror) = (self.messages.clone(), mirror.clone());
        Arc::new(move |answer| {
            let message = match answer {
                Answer::Event(id, event) => Message::Event(id, event),
                Answer::FirstContact(cluster_id) => {
                    Message::FirstContact { mirror: mirror.clone(), cluster_id }
                }
            };
            // Closed only at shutdown.
            let _ = messages.send(message);
        })
    }

    /// Brings what runs in line with the image; returns the mirrors whose settings changed.
    pub fn reconcile(&self, image: &MetadataImage) -> Vec<Arc<str>> {
        let mut running = self.running.lock();
        running.retain(|name, mirror| {
            let there = image.mirrors.contains_key(name);
            if !there {
                mirror.stop.cancel();
            }
            there
        });
        let mut changed = Vec::new();
        for (name, mirror) in running.iter() {
            let (settings, identity) = (settings_of(image, name), self.identity_of(image, name));
            if *mirror.client.settings() != settings {
                info!(mirror = %name, "mirror configuration changed, connections are rebuilt");
                changed.push(name.clone());
            }
            mirror.client.reconfigure(settings, identity);
        }
        for name in image.mirrors.keys() {
            let wanted = self.deps.coordination.coordinates(name) && has_topics(image, name);
            if !wanted {
                if let Some(sync) = running.get_mut(name).and_then(|mirror| mirror.sync.take()) {
                    sync.stop.cancel();
                }
                continue;
            }
            let mirror = self.ensure(&mut running, name, image);
            match &mirror.sync {
                Some(sync) => sync.wake.notify_one(),
                None => mirror.sync = Some(self.start_sync(name, mirror)),
            }
        }
        changed
    }

    fn start_sync(&self, name: &Arc<str>, mirror: &RunningMirror) -> SyncHandle {
        let stop = mirror.stop.child_token();
        let wake = Arc::new(tokio::sync::Notify::new());
        let job = SyncJob {
            mirror: name.clone(),
            client: mirror.client.clone(),
            metadata: self.deps.metadata.clone(),
            controller: self.deps.controller.clone(),
            coordination: self.deps.coordination.clone(),
            metrics: self.metrics.clone(),
            interval: self.config.refresh_interval,
            wake: wake.clone(),
            stop: stop.clone(),
        };
        info!(mirror = %name, "this broker coordinates the mirror");
        self.runtime.spawn(job.run());
        SyncHandle { stop, wake }
    }

    /// Every client that has been needed here, for the watch over source leaders.
    pub fn clients(&self) -> Vec<Arc<SourceClient>> {
        self.running.lock().values().map(|mirror| mirror.client.clone()).collect()
    }

    pub fn refresh_interval(&self) -> Duration {
        self.config.refresh_interval
    }

    pub fn shutdown(&self) {
        for (_, mirror) in self.running.lock().drain() {
            mirror.stop.cancel();
        }
    }
}

/// A mirror without topics contacts nobody.
fn has_topics(image: &MetadataImage, mirror: &str) -> bool {
    image.pending_mirror_topics.values().any(|pending| &**pending == mirror)
        || image.topics.by_id.values().any(|topic| {
            topic.mirror.as_ref().is_some_and(|topic| &*topic.mirror == mirror && !topic.removed)
        })
}
