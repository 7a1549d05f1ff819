//! The cluster under test with everything that can break it: links before its listeners, disks that can be
//! filled, signals to its processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec, LinkKind};
use crate::eventually::eventually;
use crate::interop::mirroring::{active_controller, http_get};
use crate::proxy::{Link, Proxy};

use super::fault::{Action, Fault, Node, Nodes};
use super::load::{PARTITIONS, TOPIC};

const DISK: &str = "size=192m";
const READY_LIMIT: Duration = Duration::from_secs(40);
const RETRY: Duration = Duration::from_millis(20);

/// A small file system of its own, where this user may mount one.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    fn mount(path: PathBuf) -> Option<SmallDisk> {
        fs::create_dir_all(&path).ok()?;
        let mut mount = Command::new("mount");
        let output = mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(&path).output().ok()?;
        output.status.success().then_some(SmallDisk { path })
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Until not a byte more goes on it.
    fn fill(&self) -> Result<()> {
        let mut file = File::create(self.ballast())?;
        let mut size = 1 << 20;
        let zeros = vec![0; size];
        while size > 0 {
            match file.write(&zeros[..size]) {
                Ok(written) if written > 0 => {}
                _ => size /= 2,
            }
        }
        Ok(())
    }

    fn empty(&self) -> Result<()> {
        match fs::remove_file(self.ballast()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a daemon that is just being reaped must not keep the mount for ever.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

pub struct Stage {
    // Dropped in this order: processes before their disks.
    pub cluster: Cluster,
    links: BTreeMap<(LinkKind, i32), Proxy>,
    disks: BTreeMap<i32, SmallDisk>,
    _directory: TempDir,
    pub client: Client,
}

impl Stage {
    pub async fn start(controllers: i32, brokers: i32, small_disks: bool) -> Result<Stage> {
        let directory = TempDir::with_prefix("kagami-disks-")?;
        let mut spec = ClusterSpec::new(controllers, brokers);
        spec.linked = true;
        let mut disks = BTreeMap::new();
        for broker in (1..=brokers).filter(|_| small_disks) {
            if let Some(disk) = SmallDisk::mount(directory.path().join(format!("broker-{broker}"))) {
                spec.data.insert(broker, disk.path.join("data"));
                disks.insert(broker, disk);
            }
        }
        let mut cluster = Cluster::format(spec)?;
        let mut links = BTreeMap::new();
        for link in cluster.links() {
            let proxy = Proxy::start(&link.front, &link.back).await?;
            links.insert((link.kind, link.node), proxy);
        }
        for node in [cluster.controllers(), cluster.brokers()].concat() {
            cluster.start_node(node)?;
        }
        let mut client = Client::new(&cluster.bootstrap());
        client.await_brokers(brokers as usize, READY_LIMIT).await?;
        Ok(Stage { cluster, links, disks, _directory: directory, client })
    }

    pub fn nodes(&self) -> Nodes {
        Nodes {
            brokers: self.cluster.brokers(),
            controllers: self.cluster.controllers(),
            has_small_disks: self.disks.len() == self.cluster.brokers().len(),
        }
    }

    async fn resolve(&self, node: Node) -> Result<i32> {
        match node {
            Node::Broker(id) | Node::Controller(id) => Ok(id),
            Node::ActiveController => {
                let active = || async { active_controller(&self.cluster).await.map(Some) };
                eventually("an active controller", READY_LIMIT, active).await
            }
        }
    }

    /// Names the nodes that a round strikes before anything breaks.
    pub async fn settle_targets(&self, faults: &mut [Fault]) -> Result<()> {
        for fault in faults {
            let (Action::Kill(node)
            | Action::Pause(node)
            | Action::Restart(node)
            | Action::Break(node, _, _)) = &mut fault.action
            else {
                continue;
            };
            if *node == Node::ActiveController {
                *node = Node::Controller(self.resolve(*node).await?);
            }
        }
        Ok(())
    }

    fn link(&self, node: i32, kind: LinkKind) -> Result<&Proxy> {
        self.links.get(&(kind, node)).with_context(|| format!("no link of node {node}"))
    }

    fn disk(&self, broker: i32) -> Result<&SmallDisk> {
        self.disks.get(&broker).with_context(|| format!("broker {broker} has no small disk"))
    }

    pub async fn inject(&mut self, fault: &Fault) -> Result<()> {
        match fault.action {
            Action::Kill(node) => self.cluster.kill(self.resolve(node).await?),
            Action::Pause(node) => self.cluster.pause(self.resolve(node).await?),
            Action::Restart(node) => self.cluster.stop(self.resolve(node).await?),
            Action::Break(node, kind, link) => {
                self.link(self.resolve(node).await?, kind)?.set(link);
                Ok(())
            }
            Action::FillDisk(broker) => self.disk(broker)?.fill(),
            Action::KillAllControllers => {
                for controller in self.cluster.controllers() {
                    if self.cluster.is_running(controller) {
                        self.cluster.kill(controller)?;
                    }
                }
                Ok(())
            }
        }
    }

    pub async fn mend(&mut self, fault: &Fault) -> Result<()> {
        match fault.action {
            Action::Kill(node) | Action::Restart(node) => {
                let node = self.resolve(node).await?;
                if !self.cluster.is_running(node) {
                    self.cluster.start_node(node)?;
                }
                Ok(())
            }
            Action::Pause(node) => {
                let node = self.resolve(node).await?;
                match self.cluster.is_running(node) {
                    true => self.cluster.resume(node),
                    false => Ok(()),
                }
            }
            Action::Break(node, kind, _) => {
                self.link(self.resolve(node).await?, kind)?.set(Link::Open);
                Ok(())
            }
            Action::FillDisk(broker) => self.disk(broker)?.empty(),
            Action::KillAllControllers => {
                for controller in self.cluster.controllers() {
                    if !self.cluster.is_running(controller) {
                        self.cluster.start_node(controller)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Every process that ended by itself did something that nobody allowed it to do.
    pub fn ensure_nobody_died(&mut self) -> Result<()> {
        for node in [self.cluster.controllers(), self.cluster.brokers()].concat() {
            if !self.cluster.is_running(node) {
                let log = crate::process::last_lines(&self.cluster.log(node));
                bail!("node {node} ended by itself: {log}");
            }
        }
        Ok(())
    }

    /// All nodes are ready and every replica is in sync.
    pub async fn await_whole(&mut self) -> Result<()> {
        for node in [self.cluster.controllers(), self.cluster.brokers()].concat() {
            let address = self.cluster.metrics_address(node);
            eventually(&format!("node {node} ready"), READY_LIMIT, || {
                let address = address.clone();
                async move { http_get(&address, "/readyz").await.map(Some) }
            })
            .await?;
        }
        self.client.forget_leaders();
        self.client.await_isr(TOPIC, self.cluster.brokers().len(), READY_LIMIT).await
    }

    /// All nodes have replayed to one metadata offset and have the same image there.
    pub async fn ensure_one_image(&self) -> Result<String> {
        let deadline = Instant::now() + READY_LIMIT;
        let nodes = [self.cluster.controllers(), self.cluster.brokers()].concat();
        loop {
            let mut told: BTreeMap<String, Vec<i32>> = BTreeMap::new();
            for node in &nodes {
                let line = http_get(&self.cluster.metrics_address(*node), "/metadata").await?;
                told.entry(line.trim().to_owned()).or_default().push(*node);
            }
            if told.len() == 1 {
                return Ok(told.into_keys().next().unwrap_or_default());
            }
            ensure!(Instant::now() < deadline, "metadata images differ: {told:?}");
            sleep(RETRY).await;
        }
    }

    /// Nothing panicked.
    pub fn ensure_no_panic(&self) -> Result<()> {
        for node in [self.cluster.controllers(), self.cluster.brokers()].concat() {
            let log = self.cluster.log(node);
            let panic = log.lines().find(|line| line.contains("panicked"));
            ensure!(panic.is_none(), "node {node}: {}", panic.unwrap_or_default());
        }
        Ok(())
    }

    pub async fn create_topic(&mut self) -> Result<()> {
        let replicas = self.cluster.brokers().len() as i16;
        self.client.create_topic(TOPIC, PARTITIONS, replicas, &[]).await?;
        self.client.await_isr(TOPIC, replicas as usize, READY_LIMIT).await
    }
}
