//! A cluster whose brokers are reached by each other, and reach the controller, over links that can be broken.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use kagami_tests::client::Client;
use kagami_tests::cluster::{Cluster, ClusterSpec};
use kagami_tests::proxy::{Link, Proxy};

use crate::support::{Side, slots};

const REPLICATION_PORT: u16 = 9500;
const REPLICATION_PROXY_PORT: u16 = 9600;
const CONTROL_PROXY_PORT: u16 = 9700;

pub struct Linked {
    pub side: Side,
    /// In front of each broker's inter-broker listener: how the others get at it.
    replication: BTreeMap<i32, Proxy>,
    /// Between each broker and the controller.
    control: BTreeMap<i32, Proxy>,
}

impl Linked {
    /// One controller, and so many brokers that all serve.
    pub async fn start(brokers: i32) -> Result<Linked> {
        let spec = ClusterSpec::new(1, brokers);
        let room = slots::take(&[&spec]).await?;
        let mut cluster = Cluster::format(spec)?;
        let controller = cluster.controllers()[0];
        let quorum = cluster.quorum_address(controller);
        let (mut replication, mut control) = (BTreeMap::new(), BTreeMap::new());
        for id in cluster.brokers() {
            let clients = cluster.broker_address(id);
            let host = clients.split(':').next().context("host:port")?.to_owned();
            let at = |port: u16| format!("{host}:{}", port + id as u16);
            let (own, seen) = (at(REPLICATION_PORT), at(REPLICATION_PROXY_PORT));
            replication.insert(id, Proxy::start(&seen, &own).await?);
            control.insert(id, Proxy::start(&at(CONTROL_PROXY_PORT), &quorum).await?);
            let replaced = ["listeners=", "controller.quorum.voters="];
            let text = fs::read_to_string(cluster.properties(id))?;
            let kept = text.lines().filter(|line| !replaced.iter().any(|key| line.starts_with(key)));
            let mut text = kept.collect::<Vec<_>>().join("\n");
            text += &format!(
                "\nlisteners=PLAINTEXT://{clients},REPLICATION://{own}\n\
                 advertised.listeners=PLAINTEXT://{clients},REPLICATION://{seen}\n\
                 listener.security.protocol.map=PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT\n\
                 inter.broker.listener.name=REPLICATION\n\
                 controller.quorum.voters={controller}@{}\n",
                at(CONTROL_PROXY_PORT)
            );
            fs::write(cluster.properties(id), text)?;
        }
        cluster.start_node(controller)?;
        for id in cluster.brokers() {
            cluster.start_node(id)?;
        }
        let mut side = Side::of(cluster);
        side.hold(room);
        side.await_start().await?;
        Ok(Linked { side, replication, control })
    }

    /// How the other brokers reach this one.
    pub fn set_replication(&self, broker: i32, link: Link) {
        self.replication[&broker].set(link);
    }

    /// How this broker reaches the controller.
    pub fn set_control(&self, broker: i32, link: Link) {
        self.control[&broker].set(link);
    }

    /// Addresses of all brokers but this one, which may know nothing new.
    pub fn others(&self, broker: i32) -> String {
        let others = self.side.cluster.brokers().into_iter().filter(|id| *id != broker);
        others.map(|id| self.side.cluster.broker_address(id)).collect::<Vec<_>>().join(",")
    }

    /// From now on the test asks only the others.
    pub fn ask_others(&mut self, broker: i32) {
        self.side.client = Client::new(&self.others(broker));
    }
}
