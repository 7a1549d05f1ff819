//! Faults placed in the daemons of one cluster, and what its nodes have said.

use anyhow::{Result, ensure};
use common::ids::{TopicId, TopicIdPartition};
use kagami_tests::fault::Faults;
use tokio::time::{Instant, sleep};

use super::LIMIT;
use super::side::{PAUSE, Side};

/// Where a broker asks the controller to let it live.
const HEARTBEAT: &str = "broker.heartbeat";

impl Side {
    pub fn faults(&self, node: i32) -> Faults {
        self.cluster.faults(node).clone()
    }

    /// A point's place for one partition.
    pub async fn place(&mut self, point: &str, topic: &str, partition: i32) -> Result<String> {
        let id = TopicId(self.client.topic_id(topic).await?);
        Ok(format!("{point}@{}", TopicIdPartition::new(id, partition)))
    }

    /// The leader lives on without a heartbeat until another one leads: the old leader and the new.
    pub async fn depose(&mut self, topic: &str, partition: i32) -> Result<(i32, i32)> {
        let old = self.leader(topic, partition).await?;
        self.faults(old).hold(HEARTBEAT)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            self.client.forget_leaders();
            let new = self.leader(topic, partition).await?;
            if new != old {
                return Ok((old, new));
            }
            ensure!(Instant::now() < deadline, "broker {old} still leads {topic}-{partition}");
            sleep(PAUSE).await;
        }
    }

    /// Waits until this broker leads, as clients see it.
    pub async fn await_led_by(&mut self, topic: &str, partition: i32, broker: i32) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = self.partition(topic, partition).await;
            if matches!(&found, Ok(found) if found.leader_id.0 == broker) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "broker {broker} does not lead {topic}-{partition}: {found:?}"
            );
            sleep(PAUSE).await;
        }
    }

    /// A deposed broker sends heartbeats again.
    pub fn readmit(&mut self, broker: i32) -> Result<()> {
        self.faults(broker).release(HEARTBEAT)
    }

    /// How often the controllers have told of something that became true.
    pub fn told(&self, what: &str) -> usize {
        let logs = self.cluster.controllers().into_iter().map(|id| self.cluster.log(id));
        logs.map(|log| log.lines().filter(|line| line.contains(what)).count()).sum()
    }

    pub async fn await_told(&self, what: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.told(what) == 0 {
            ensure!(Instant::now() < deadline, "no controller has told: {what}");
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// The lines of a node's log that hold all of these.
    pub fn lines(&self, node: i32, words: &[&str]) -> Vec<String> {
        let is_it = |line: &&str| words.iter().all(|word| line.contains(word));
        self.cluster.log(node).lines().filter(is_it).map(str::to_owned).collect()
    }
}
