//! What a mirror asks its source: Metadata, then LastMirroredOffsets at the controllers, then offsets and
//! epochs at the partition's leader. Between two stations anything may happen.

use broker::mirror::source::position::interpret;
use broker::mirror::state::{
    EpochEnd, LastMirrored, MirrorEvent, SourceBounds, SourceCheck, SourceFailure, SourceLeader,
    SourcePosition, Token,
};
use broker::replica::state::LeaderState;
use common::ids::*;
use common::mirror_state::MirrorState;
use controller::api::forward::last_mirrored_offsets::partition_answer;
use controller::control::mirror::last_mirrored::{Asker, Question, last_mirrored_offset};
use controller::control::mirror::propose::Proposal;

use super::event::{Ask, AskKind, Event, Node, Station, Timer};
use super::mutation::Mutation;
use super::network::Path;
use super::world::{TOPIC, World, cluster_name, mirror_name, partition_id, topic_id};

const TIMEOUT_MS: i64 = 2_000;

fn could_not_ask<T>(why: &str) -> Result<T, SourceFailure> {
    Err(SourceFailure::CouldNotAsk(why.to_owned()))
}

impl World {
    pub fn ask(
        &mut self,
        node: Node,
        partition: usize,
        token: Token,
        source: usize,
        seen: Option<CutId>,
        kind: AskKind,
    ) {
        let number = self.number();
        let process = self.broker(node).process;
        if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
            mirror.asking = number;
        }
        let ask = Ask {
            asker: node,
            process,
            partition,
            token,
            number,
            source,
            seen,
            kind,
            station: Station::Metadata,
            leader: None,
            recorded: None,
        };
        self.after(TIMEOUT_MS, Timer::AskExpired { node, process, partition, number });
        let image = self.broker(node).mirror_image.clone();
        let known = image.and_then(|image| image.mirrors.get(mirror_name(source).as_str()).cloned());
        if known.is_some_and(|mirror| mirror.source_cluster_id.is_none()) {
            // First contact: stored before anything else is asked of that source.
            let source_cluster_id = cluster_name(source);
            self.propose(
                node,
                partition,
                None,
                Proposal::Source { mirror: mirror_name(source), source_cluster_id },
            );
            return self.ask_ends(ask, could_not_ask("its cluster id is being recorded"));
        }
        let any = self.random.below(self.clusters[source].brokers.len());
        self.send(
            Path::Brokers(node, Node { cluster: source, broker: any }),
            Event::Ask { ask: Box::new(ask) },
        );
    }

    pub fn ask_expired(&mut self, node: Node, partition: usize, number: u64) {
        let Some(mirror) = &self.broker(node).mirrors[partition] else { return };
        if mirror.asking != number {
            return;
        }
        // Which of the two it was does not matter to a machine that waits for either.
        let Some(token) = mirror.machine.as_ref().map(|machine| machine.current_token()) else { return };
        let why = SourceFailure::CouldNotAsk("timed out".to_owned());
        self.mirror_event(node, partition, MirrorEvent::SourceAnswered { token, result: Err(why.clone()) });
        self.mirror_event(node, partition, MirrorEvent::SourceChecked { token, result: Err(why) });
    }

    fn ask_ends(&mut self, ask: Ask, failure: Result<(), SourceFailure>) {
        let Err(why) = failure else { return };
        let token = ask.token;
        let event = match ask.kind {
            AskKind::Position { .. } => MirrorEvent::SourceAnswered { token, result: Err(why) },
            AskKind::Check { .. } => MirrorEvent::SourceChecked { token, result: Err(why) },
        };
        self.ask_answered(&ask, event);
    }

    fn ask_answered(&mut self, ask: &Ask, event: MirrorEvent) {
        let (to, process, partition) = (ask.asker, ask.process, ask.partition);
        if self.runs(to, process)
            && let Some(mirror) = &mut self.broker_mut(to).mirrors[partition]
            && mirror.asking == ask.number
        {
            mirror.asking = 0;
        }
        let path = Path::Wan(ask.source, to.cluster);
        self.send(path, Event::Mirror { to, process, partition, event: Box::new(event) });
    }

    pub fn ask_arrived(&mut self, mut ask: Ask) {
        let outcome = match ask.station {
            Station::Metadata => self.ask_metadata(&mut ask),
            Station::Controller => self.ask_controller(&mut ask),
            Station::Leader => return self.ask_leader(ask),
        };
        if outcome.is_err() {
            return self.ask_ends(ask, outcome);
        }
        let path = Path::Wan(ask.source, ask.asker.cluster);
        self.send(path, Event::Ask { ask: Box::new(ask) });
    }

    /// Any broker that runs tells the leader as its own image has it.
    fn ask_metadata(&mut self, ask: &mut Ask) -> Result<(), SourceFailure> {
        let brokers = &self.clusters[ask.source].brokers;
        let first = (ask.number % brokers.len() as u64) as usize;
        let broker = brokers[first..].iter().chain(&brokers[..first]).find(|broker| broker.up);
        let Some(image) = broker.and_then(|broker| broker.applied.as_ref()) else {
            return could_not_ask("no broker of it answers");
        };
        let Some(topic) = image.topic(TOPIC).filter(|topic| topic.id == topic_id()) else {
            return could_not_ask("it has no such topic");
        };
        let registration = topic.partitions.get(ask.partition).map(|partition| &partition.registration);
        let Some((leader, registration)) = registration.and_then(|r| Some((r.leader?, r))) else {
            return could_not_ask("no leader");
        };
        ask.leader = Some(SourceLeader {
            host: "source".into(),
            port: 9092,
            node_id: leader.0,
            epoch: registration.leader_epoch,
        });
        ask.station = Station::Controller;
        Ok(())
    }

    /// The active controller, after the quorum has confirmed it.
    fn ask_controller(&mut self, ask: &mut Ask) -> Result<(), SourceFailure> {
        let it = &self.clusters[ask.source];
        let image = match (&it.active, it.deposed) {
            (None, Some(deposed)) if self.is(Mutation::DeposedControllerAnswers) => {
                &it.history[deposed / 2].image
            }
            (None, _) => return could_not_ask("NOT_CONTROLLER"),
            (Some(_), _) => it.image(),
        };
        let asker = Asker::Cluster(cluster_name(ask.asker.cluster));
        let newest = || {
            let partition = image.partition(partition_id(ask.partition))?;
            partition.mirror.newest_cut().map(|cut| cut.id)
        };
        let seen = if self.is(Mutation::SeenAdvancesUnchecked) { ask.seen.max(newest()) } else { ask.seen };
        let question = Question {
            topic: TOPIC.to_owned(),
            topic_id: topic_id(),
            partition: ask.partition as i32,
            last_seen_cut_id: seen.map_or(-1, |id| id.0),
        };
        let image = self.mutated_source_image(image, ask.asker.cluster);
        let answer = last_mirrored_offset(&image, &asker, &question);
        let answer = self.mutated_answer(answer);
        let recorded = interpret(&partition_answer(ask.partition as i32, answer))?;
        if let Some(leader) = ask.leader.as_ref().filter(|_| !self.is(Mutation::DeposedLeaderIsAsked)) {
            recorded.fits(leader.epoch)?;
        }
        ask.recorded = Some(recorded);
        ask.station = Station::Leader;
        Ok(())
    }

    fn ask_leader(&mut self, ask: Ask) {
        match ask.kind {
            AskKind::Position { recopy } => {
                let result = self.position_of(&ask, recopy);
                let event = MirrorEvent::SourceAnswered { token: ask.token, result };
                self.ask_answered(&ask, event);
            }
            AskKind::Check { bounds, local_end, last_epoch } => {
                let result = self.check_of(&ask, bounds, local_end, last_epoch);
                let event = MirrorEvent::SourceChecked { token: ask.token, result };
                self.ask_answered(&ask, event);
            }
        }
    }

    /// The leader that Metadata told, if it still is one under that epoch.
    fn leader_of(&self, ask: &Ask) -> Result<(Node, SourceLeader), SourceFailure> {
        let Some(leader) = &ask.leader else { return could_not_ask("no leader") };
        let node = Node { cluster: ask.source, broker: (leader.node_id - 1) as usize };
        let Some(replica) = self.replica(node, ask.partition).filter(|_| self.broker(node).up) else {
            return could_not_ask("the leader does not answer");
        };
        match replica.state.check_leader(Some(leader.epoch)) {
            Ok(()) => Ok((node, leader.clone())),
            Err(error) => could_not_ask(&format!("{error}")),
        }
    }

    /// ListOffsets LATEST, with KIP-207.
    fn log_end_of(&self, node: Node, partition: usize) -> Result<Offset, SourceFailure> {
        let Some(replica) = self.replica(node, partition) else { return could_not_ask("gone") };
        let high_watermark = replica.state.high_watermark();
        let epoch_start = replica.state.leader().map_or(Offset::ZERO, LeaderState::epoch_start_offset);
        if epoch_start <= high_watermark { Ok(high_watermark) } else { could_not_ask("OFFSET_NOT_AVAILABLE") }
    }

    fn position_of(&self, ask: &Ask, recopy: bool) -> Result<SourcePosition, SourceFailure> {
        let (node, _) = self.leader_of(ask)?;
        let log_end = self.log_end_of(node, ask.partition)?;
        let recorded = ask.recorded;
        let mut last_mirrored =
            recorded.map_or(LastMirrored::NotSupported, |recorded| recorded.last_mirrored);
        if recopy && matches!(last_mirrored, LastMirrored::NotWritable { .. }) {
            let mirrors_other = self.mirrors_other(ask);
            last_mirrored = LastMirrored::NotWritable { mirrors_other };
        }
        Ok(SourcePosition {
            log_end,
            last_mirrored,
            newest_cut: recorded.and_then(|recorded| recorded.cuts.newest),
            checked_own_cut: recorded.and_then(|recorded| recorded.checked_own_cut),
        })
    }

    /// DescribeMirrors: MIRRORING there from a third cluster.
    fn mirrors_other(&self, ask: &Ask) -> bool {
        let it = &self.clusters[ask.source];
        let mirror = it.image().topic(TOPIC).and_then(|topic| topic.mirror.clone());
        let Some(mirror) = mirror else { return false };
        let Some(from) = it.mirrors.iter().position(|name| *name == mirror.mirror) else { return false };
        let state = self.recorded(ask.source, from, ask.partition).map(|record| record.state);
        from != ask.asker.cluster && state == Some(MirrorState::Mirroring)
    }

    fn check_of(
        &self,
        ask: &Ask,
        bounds: bool,
        local_end: Offset,
        last_epoch: Option<LeaderEpoch>,
    ) -> Result<SourceCheck, SourceFailure> {
        let (node, leader) = self.leader_of(ask)?;
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[ask.partition], &broker.disks[ask.partition])
        else {
            return could_not_ask("gone");
        };
        let bounds = match bounds {
            true => Some(SourceBounds {
                log_start: Offset(disk.log.start),
                log_end: self.log_end_of(node, ask.partition)?,
            }),
            false => None,
        };
        let end_of = |epoch| disk.log.end_of_epoch(epoch, replica.mirroring);
        Ok(SourceCheck {
            leader,
            cuts: ask.recorded.map(|recorded| recorded.cuts),
            local_end,
            end_of_last_epoch: match last_epoch.map(end_of) {
                None => EpochEnd::NotAsked,
                Some(None) => EpochEnd::Unknown,
                Some(Some((_, end))) => EpochEnd::At(end),
            },
            bounds,
        })
    }

    /// The registered leader epoch of a partition, as the controllers have it.
    pub fn newest_epoch(&self, cluster: usize, partition: usize) -> Option<LeaderEpoch> {
        self.clusters[cluster].image().partition(partition_id(partition)).map(|p| p.registration.leader_epoch)
    }
}
