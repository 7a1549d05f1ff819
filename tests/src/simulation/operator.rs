//! What operators do: add, remove, copy anew, delete and recreate with the same id.

use common::metadata::MetadataRecord;
use common::mirror_state::MirrorState;
use controller::control::election::elect_preferred;
use controller::control::mirror::topics::{TopicState, add_topics, remove_topics};
use controller::control::topic::{NewTopic, TopicRef, create_topics, delete_topics};

use common::ids::*;

use super::event::Timer;
use super::mutation::Mutation;
use super::quorum::Reply;
use super::world::{TOPIC, World, cluster_name, mirror_name, topic_id};

impl World {
    pub fn operate(&mut self) {
        if self.healing {
            return;
        }
        let pause = self.random.between(self.profile.operator_ms / 2, self.profile.operator_ms * 2);
        self.after(pause, Timer::Operator);
        if self.drill.is_on() {
            return;
        }
        let cluster = self.random.below(self.clusters.len());
        let image = self.clusters[cluster].image().clone();
        let Some(topic) = image.topic(TOPIC) else { return self.create_topic(cluster) };
        if self.profile.recreates_topics && self.random.chance(60) {
            return self.delete_topic(cluster);
        }
        if self.random.chance(60) {
            return self.prefer_leaders(cluster);
        }
        let others = self.clusters.len() - 1;
        if others == 0 {
            return;
        }
        let source = (cluster + 1 + self.random.below(others)) % self.clusters.len();
        let recopy = self.random.chance(150);
        match &topic.mirror {
            Some(mirror) if !mirror.removed => {
                let from = self.clusters[cluster].mirrors.iter().position(|name| *name == mirror.mirror);
                let from = from.unwrap_or(source);
                let state = self.recorded(cluster, from, 0).map(|record| record.state);
                let settled = state == Some(MirrorState::Mirroring);
                if self.random.chance(if settled { 400 } else { 120 }) {
                    self.remove(cluster, from);
                } else if recopy {
                    self.add(cluster, from, true);
                }
            }
            _ if self.random.chance(600) => {
                let recopy = recopy && self.random.chance(500);
                self.add(cluster, source, recopy);
            }
            _ => {}
        }
    }

    fn run_internal(&mut self, cluster: usize, records: Vec<MetadataRecord>) {
        self.run_operation(cluster, records, None, Reply::Nothing);
    }

    fn topic_state(&self, source: usize) -> TopicState {
        TopicState { topic_id: TopicId::ZERO, name: TOPIC.to_owned(), mirror: Some(mirror_name(source)) }
    }

    pub fn add(&mut self, cluster: usize, source: usize, recopy: bool) {
        let Some(active) = &self.clusters[cluster].active else { return };
        let image = self.mutated_add_image(active.draft.image());
        let outcome = add_topics(&image, &[self.topic_state(source)], recopy);
        self.trace(|| {
            let refused: Vec<_> =
                outcome.response.iter().filter_map(|result| result.as_ref().err()).collect();
            format!("operator adds at {} from {}: {refused:?}", cluster_name(cluster), cluster_name(source))
        });
        self.run_internal(cluster, outcome.records);
    }

    pub fn remove(&mut self, cluster: usize, source: usize) {
        let Some(active) = &self.clusters[cluster].active else { return };
        let image = active.draft.image();
        let settled = |partition| {
            let state = self.recorded(cluster, source, partition).map(|record| record.state);
            state == Some(MirrorState::Mirroring)
        };
        if self.is(Mutation::RemoveIsRefused) && !(0..self.profile.partitions).all(settled) {
            return;
        }
        let outcome = remove_topics(image, &mirror_name(source), &[self.topic_state(source)]);
        self.trace(|| format!("operator removes at {} from {}", cluster_name(cluster), cluster_name(source)));
        if let Ok(outcome) = outcome {
            self.run_internal(cluster, outcome.records);
        }
    }

    pub fn create_topic(&mut self, cluster: usize) {
        let count = self.clusters[cluster].brokers.len();
        let assignments = (0..self.profile.partitions).map(|partition| {
            let replicas = (0..count).map(|n| BrokerId(((n + partition + cluster) % count) as i32 + 1));
            (partition as i32, replicas.collect())
        });
        let topic = NewTopic {
            name: TOPIC.to_owned(),
            partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            configs: Vec::new(),
            mirror_topic_id: Some(topic_id()),
        };
        let mut random = self.random.clone();
        let it = &self.clusters[cluster];
        let Some(active) = &it.active else { return };
        let image = self.mutated_creation_image(active.draft.image());
        let outcome = create_topics(&image, &it.settings, &[topic], false, &mut random);
        self.random = random;
        self.run_internal(cluster, outcome.records);
    }

    pub fn delete_topic(&mut self, cluster: usize) {
        let Some(active) = &self.clusters[cluster].active else { return };
        let outcome = delete_topics(active.draft.image(), &[TopicRef::Name(TOPIC.to_owned())]);
        self.run_internal(cluster, outcome.records);
    }

    fn prefer_leaders(&mut self, cluster: usize) {
        let it = &self.clusters[cluster];
        let Some(active) = &it.active else { return };
        let records = elect_preferred(active.draft.image(), &it.settings);
        self.run_internal(cluster, records);
    }
}
