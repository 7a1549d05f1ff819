//! The mirror coordinator of a cluster: the product's shard, behind a broker that is now and then away,
//! and whose answer may be lost although the record is durable.

use broker::coordinator::Shard;
use broker::mirror::coordinator::{MirrorShard, StateKey};
use broker::mirror::deps::StateWrite;
use broker::mirror::state::{MirrorEvent, StoreError, Token};
use common::ids::LeaderEpoch;
use common::mirror_state::MirrorState;

use super::event::{Event, Node};
use super::mutation::Mutation;
use super::world::{World, cluster_name, topic_id};

pub struct Coordinator {
    pub shard: MirrorShard,
    pub away_until_ms: i64,
}

impl Default for Coordinator {
    fn default() -> Coordinator {
        Coordinator { shard: MirrorShard::empty(), away_until_ms: 0 }
    }
}

impl World {
    /// `__mirror_state` is gone, with all that was in it.
    pub fn lose_state_topic(&mut self, cluster: usize) {
        self.trace(|| format!("{} loses __mirror_state", cluster_name(cluster)));
        self.clusters[cluster].coordinator.shard = MirrorShard::empty();
    }

    fn state_key(&self, cluster: usize, mirror: usize, partition: usize) -> StateKey {
        StateKey {
            mirror: self.clusters[cluster].mirrors[mirror].clone(),
            topic_id: topic_id(),
            partition: partition as i32,
        }
    }

    /// What is recorded of a partition, for those who may look.
    pub fn recorded(
        &self,
        cluster: usize,
        mirror: usize,
        partition: usize,
    ) -> Option<broker::mirror::coordinator::StateRecord> {
        let key = self.state_key(cluster, mirror, partition);
        self.clusters[cluster].coordinator.shard.read(&key).ok().flatten().cloned()
    }

    /// I-S: an action begins once its state is durable, unless a later leader has gone on since.
    pub fn check_recorded(
        &mut self,
        node: Node,
        partition: usize,
        mirror: usize,
        state: MirrorState,
        leader_epoch: LeaderEpoch,
    ) {
        let recorded = self.recorded(node.cluster, mirror, partition);
        let fits = match &recorded {
            Some(record) => record.state == state || record.leader_epoch > leader_epoch,
            None => false,
        };
        if !fits && !self.profile.loses_state_topic {
            self.violate("I-S: a state is durable before its action starts", || {
                format!("{node}/{partition} acts on {state}, recorded is {recorded:?}")
            });
        }
    }

    fn is_away(&self, cluster: usize) -> bool {
        self.now_ms < self.clusters[cluster].coordinator.away_until_ms
    }

    pub fn read_state(&mut self, from: Node, process: u32, partition: usize, token: Token, mirror: usize) {
        let result = if self.is_away(from.cluster) {
            Err(StoreError::Unavailable("away".to_owned()))
        } else {
            Ok(self.recorded(from.cluster, mirror, partition))
        };
        self.answer(from, process, partition, MirrorEvent::StateRead { token, result });
    }

    pub fn write_state(
        &mut self,
        from: Node,
        process: u32,
        partition: usize,
        token: Token,
        write: &StateWrite,
    ) {
        let result = if self.is_away(from.cluster) {
            Err(StoreError::Unavailable("away".to_owned()))
        } else {
            let shard = &mut self.clusters[from.cluster].coordinator.shard;
            let mut write = write.clone();
            let (sent, earlier) = (write.record.leader_epoch, shard.read(&write.key).ok().flatten());
            let fenced = earlier.is_some_and(|earlier| earlier.leader_epoch > sent);
            if self.mutation == Some(Mutation::StateWritesAreNotFenced)
                && let Ok(Some(recorded)) = shard.read(&write.key)
            {
                write.expected = recorded.state_epoch;
                write.record.leader_epoch = write.record.leader_epoch.max(recorded.leader_epoch);
                write.record.association = write.record.association.max(recorded.association);
            }
            match shard.write(&write) {
                Ok((epoch, record)) => match shard.replay(&record.key, record.value.as_deref()) {
                    Ok(_) if fenced => {
                        self.violate("decision 16: a deposed leader records nothing", || format!("{from}"));
                        Ok(epoch)
                    }
                    Ok(_) => Ok(epoch),
                    Err(error) => Err(StoreError::Unreadable(error.0)),
                },
                Err(refusal) => Err(StoreError::from(&refusal)),
            }
        };
        self.answer(from, process, partition, MirrorEvent::StateWritten { token, result });
    }

    fn answer(&mut self, to: Node, process: u32, partition: usize, event: MirrorEvent) {
        // A caller that waits in vain is told so: that is what its own time-out does.
        let lost = self.random.chance(self.profile.lost) && !self.healing;
        let event = match event {
            MirrorEvent::StateRead { token, .. } if lost => {
                MirrorEvent::StateRead { token, result: Err(StoreError::Unavailable("lost".to_owned())) }
            }
            MirrorEvent::StateWritten { token, .. } if lost => {
                MirrorEvent::StateWritten { token, result: Err(StoreError::Unavailable("lost".to_owned())) }
            }
            event => event,
        };
        let at_ms = self.now_ms + self.delay_ms();
        self.queue.push(at_ms, Event::Mirror { to, process, partition, event: Box::new(event) });
    }
}
