//! A cluster of our own daemons as processes: formatted, started, killed, paused and restarted by node.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::fault::Faults;
use crate::ports;

const BROKER_PORT: u16 = 9092;
const CONTROLLER_PORT: u16 = 9190;
const QUORUM_PORT: u16 = 9290;
const METRICS_PORT: u16 = 9390;
/// Listeners for brokers alone, where links are wanted.
const INTERNAL_PORT: u16 = 9590;
/// From a listener to the front of its link.
const FRONT: u16 = 1000;
/// Controllers are nodes 101, 102, ...; brokers 1, 2, ...
const FIRST_CONTROLLER: i32 = 101;

/// What to start.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    pub controllers: i32,
    pub brokers: i32,
    /// Log directories of each broker: `data`, `data-2`...
    pub broker_directories: usize,
    /// Lines for every node's properties file; they win over the defaults below.
    pub properties: BTreeMap<String, String>,
    /// Log directories elsewhere than in the cluster's own directory.
    pub data: BTreeMap<i32, PathBuf>,
    /// Everybody is reached through the front of a link that the test provides (`Cluster::links`).
    pub linked: bool,
    /// An address of its own unless given.
    pub host: Option<String>,
    /// Of all nodes, beside what they inherit.
    pub environment: BTreeMap<String, String>,
}

/// What goes over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// Clients to a broker.
    Clients,
    /// The other brokers to a broker.
    Brokers,
    /// Brokers and other controllers to a controller.
    Quorum,
}

/// One listener behind a link.
#[derive(Clone, Debug)]
pub struct LinkAddress {
    pub kind: LinkKind,
    pub node: i32,
    /// The address that others know.
    pub front: String,
    pub back: String,
}

impl ClusterSpec {
    pub fn new(controllers: i32, brokers: i32) -> ClusterSpec {
        ClusterSpec {
            controllers,
            brokers,
            broker_directories: 1,
            properties: BTreeMap::new(),
            data: BTreeMap::new(),
            linked: false,
            host: None,
            environment: BTreeMap::new(),
        }
    }

    pub fn with_broker_directories(mut self, count: usize) -> ClusterSpec {
        self.broker_directories = count;
        self
    }

    pub fn with(mut self, key: &str, value: &str) -> ClusterSpec {
        self.properties.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn with_environment(mut self, name: &str, value: &str) -> ClusterSpec {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// On the address of another cluster, which must not run any more.
    pub fn at(mut self, host: &str) -> ClusterSpec {
        self.host = Some(host.to_owned());
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    Controller,
    Broker,
}

struct Node {
    kind: NodeKind,
    properties: PathBuf,
    log: PathBuf,
    faults: Faults,
    child: Option<Child>,
}

/// Stopped and removed when dropped.
pub struct Cluster {
    host: String,
    cluster_id: String,
    spec: ClusterSpec,
    directory: TempDir,
    nodes: BTreeMap<i32, Node>,
}

impl Cluster {
    /// Formats and starts all nodes; does not wait until they serve.
    pub fn start(spec: ClusterSpec) -> Result<Cluster> {
        let mut cluster = Cluster::format(spec)?;
        let ids: Vec<i32> = cluster.nodes.keys().copied().collect();
        for id in ids {
            cluster.start_node(id)?;
        }
        Ok(cluster)
    }

    /// Writes the properties files and formats the directories.
    pub fn format(spec: ClusterSpec) -> Result<Cluster> {
        let directory = TempDir::with_prefix("kagami-")?;
        let mut cluster = Cluster {
            host: spec.host.clone().unwrap_or_else(ports::cluster_host),
            cluster_id: random_uuid()?,
            spec,
            directory,
            nodes: BTreeMap::new(),
        };
        for index in 0..cluster.spec.controllers {
            cluster.add_node(FIRST_CONTROLLER + index, NodeKind::Controller)?;
        }
        for index in 0..cluster.spec.brokers {
            cluster.add_node(1 + index, NodeKind::Broker)?;
        }
        Ok(cluster)
    }

    fn add_node(&mut self, id: i32, kind: NodeKind) -> Result<()> {
        let path = self.directory.path().join(match kind {
            NodeKind::Controller => format!("controller-{id}"),
            NodeKind::Broker => format!("broker-{id}"),
        });
        fs::create_dir_all(&path)?;
        let mut directories = vec![self.data_directory_of(id, &path)];
        if kind == NodeKind::Broker {
            directories.extend((2..=self.spec.broker_directories).map(|n| path.join(format!("data-{n}"))));
        }
        directories.iter().try_for_each(fs::create_dir_all)?;
        let directories: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        let mut lines: BTreeMap<String, String> = BTreeMap::new();
        let mut set = |key: &str, value: String| lines.insert(key.to_owned(), value);
        set("node.id", id.to_string());
        set("log.dirs", directories.join(","));
        set("controller.quorum.voters", self.voters());
        let replicas = self.spec.brokers.clamp(1, 3);
        set("default.replication.factor", replicas.to_string());
        set("min.insync.replicas", (replicas - 1).max(1).to_string());
        set("num.partitions", "1".to_owned());
        set("mirror.state.topic.num.partitions", "3".to_owned());
        set("mirror.state.topic.replication.factor", replicas.to_string());
        set("mirror.state.topic.min.isr", (replicas - 1).max(1).to_string());
        set("mirror.metadata.refresh.interval.ms", "1000".to_owned());
        set("broker.heartbeat.interval.ms", "300".to_owned());
        set("broker.session.timeout.ms", "1500".to_owned());
        set("replica.lag.time.max.ms", "2000".to_owned());
        let host = &self.host;
        match kind {
            NodeKind::Controller => {
                let index = (id - FIRST_CONTROLLER) as u16;
                set("listeners", format!("CONTROLLER://{host}:{}", CONTROLLER_PORT + index));
                set("quorum.listener", format!("{host}:{}", QUORUM_PORT + index));
                set("metrics.listener", format!("{host}:{}", METRICS_PORT + 50 + index));
            }
            NodeKind::Broker => {
                let (clients, internal) = (BROKER_PORT + id as u16 - 1, INTERNAL_PORT + id as u16);
                let listeners = |front: u16| match self.spec.linked {
                    false => format!("PLAINTEXT://{host}:{clients}"),
                    true => format!(
                        "PLAINTEXT://{host}:{},INTERNAL://{host}:{}",
                        clients + front,
                        internal + front
                    ),
                };
                set("listeners", listeners(0));
                if self.spec.linked {
                    set("advertised.listeners", listeners(FRONT));
                    set("inter.broker.listener.name", "INTERNAL".to_owned());
                    set(
                        "listener.security.protocol.map",
                        "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT".to_owned(),
                    );
                }
                set("metrics.listener", format!("{host}:{}", METRICS_PORT + id as u16));
            }
        }
        lines.extend(self.spec.properties.clone());
        let text: String = lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let properties = path.join("node.properties");
        fs::write(&properties, text)?;
        self.format_storage(&properties)?;
        let log = path.join("server.log");
        let faults = Faults::new(&path);
        self.nodes.insert(id, Node { kind, properties, log, faults, child: None });
        Ok(())
    }

    fn format_storage(&self, properties: &Path) -> Result<()> {
        let output = Command::new(binary("kagami")?)
            .args(["storage", "format", "--config"])
            .arg(properties)
            .args(["--cluster-id", &self.cluster_id])
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "storage format with {}: {errors}", properties.display());
        Ok(())
    }

    /// One more controller, formatted and not started; `controller.quorum.voters` does not list it.
    pub fn add_controller(&mut self) -> Result<i32> {
        let id = self.controllers().last().map_or(FIRST_CONTROLLER, |last| last + 1);
        self.add_node(id, NodeKind::Controller)?;
        Ok(id)
    }

    /// A stopped node loses its disk: the directory is formatted anew.
    pub fn wipe(&mut self, id: i32) -> Result<()> {
        let data = self.data_directory(id);
        fs::remove_dir_all(&data)?;
        fs::create_dir_all(&data)?;
        self.format_storage(self.properties(id))
    }

    fn voters(&self) -> String {
        let port = QUORUM_PORT + if self.spec.linked { FRONT } else { 0 };
        let voter =
            |index: i32| format!("{}@{}:{}", FIRST_CONTROLLER + index, self.host, port + index as u16);
        (0..self.spec.controllers).map(voter).collect::<Vec<_>>().join(",")
    }

    /// Starts a node that does not run.
    pub fn start_node(&mut self, id: i32) -> Result<()> {
        let node = self.nodes.get_mut(&id).with_context(|| format!("no node {id}"))?;
        ensure!(node.child.is_none(), "node {id} runs");
        let program = match node.kind {
            NodeKind::Controller => "kagami-controller",
            NodeKind::Broker => "kagami-broker",
        };
        let log = File::options().create(true).append(true).open(&node.log)?;
        let mut command = Command::new(binary(program)?);
        // What a test's own output shows is another matter than what daemons log.
        match std::env::var("KAGAMI_TEST_LOG") {
            Ok(filter) => command.env("RUST_LOG", filter),
            Err(_) => command.env_remove("RUST_LOG"),
        };
        let child = command
            .envs(&self.spec.environment)
            .env("KAGAMI_FAULTS", node.faults.directory())
            .arg("--config")
            .arg(&node.properties)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {program}"))?;
        node.child = Some(child);
        Ok(())
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, id: i32) -> Result<()> {
        let mut child = self.take_child(id)?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits for exit 0 within ten seconds.
    pub fn stop(&mut self, id: i32) -> Result<()> {
        let mut child = self.take_child(id)?;
        signal(child.id(), "TERM")?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "node {id} ended with {status} after SIGTERM");
                return Ok(());
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("node {id} did not end within 10 s of SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGSTOP: the process keeps its sockets and does nothing.
    pub fn pause(&self, id: i32) -> Result<()> {
        signal(self.pid(id)?, "STOP")
    }

    pub fn resume(&self, id: i32) -> Result<()> {
        signal(self.pid(id)?, "CONT")
    }

    pub fn pid(&self, id: i32) -> Result<u32> {
        let node = self.nodes.get(&id).with_context(|| format!("no node {id}"))?;
        node.child.as_ref().map(Child::id).with_context(|| format!("node {id} does not run"))
    }

    /// Whether the process runs; notices one that ended by itself.
    pub fn is_running(&mut self, id: i32) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        let Some(child) = &mut node.child else { return false };
        match child.try_wait() {
            Ok(None) => true,
            _ => {
                node.child = None;
                false
            }
        }
    }

    fn take_child(&mut self, id: i32) -> Result<Child> {
        let node = self.nodes.get_mut(&id).with_context(|| format!("no node {id}"))?;
        node.child.take().with_context(|| format!("node {id} does not run"))
    }

    /// Waits until a process that is to end by itself has ended.
    pub async fn await_exit(&mut self, id: i32) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.is_running(id) {
            ensure!(Instant::now() < deadline, "node {id} still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Where to place faults in a node.
    pub fn faults(&self, id: i32) -> &Faults {
        &self.nodes[&id].faults
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub fn controllers(&self) -> Vec<i32> {
        self.of_kind(NodeKind::Controller)
    }

    pub fn brokers(&self) -> Vec<i32> {
        self.of_kind(NodeKind::Broker)
    }

    fn of_kind(&self, kind: NodeKind) -> Vec<i32> {
        self.nodes.iter().filter(|(_, node)| node.kind == kind).map(|(id, _)| *id).collect()
    }

    pub fn broker_address(&self, id: i32) -> String {
        format!("{}:{}", self.host, BROKER_PORT + id as u16 - 1)
    }

    pub fn controller_address(&self, id: i32) -> String {
        format!("{}:{}", self.host, CONTROLLER_PORT + (id - FIRST_CONTROLLER) as u16)
    }

    /// Where a node serves /metrics, /livez and /readyz.
    pub fn metrics_address(&self, id: i32) -> String {
        let port = if id >= FIRST_CONTROLLER {
            METRICS_PORT + 50 + (id - FIRST_CONTROLLER) as u16
        } else {
            METRICS_PORT + id as u16
        };
        format!("{}:{port}", self.host)
    }

    /// Where a controller serves the quorum and the brokers.
    pub fn quorum_address(&self, id: i32) -> String {
        format!("{}:{}", self.host, QUORUM_PORT + (id - FIRST_CONTROLLER) as u16)
    }

    /// The Kafka addresses of all brokers, as clients know them.
    pub fn bootstrap(&self) -> String {
        let fronts = self.links().into_iter().filter(|link| link.kind == LinkKind::Clients);
        let addresses: Vec<_> = match self.spec.linked {
            true => fronts.map(|link| link.front).collect(),
            false => self.brokers().into_iter().map(|id| self.broker_address(id)).collect(),
        };
        addresses.join(",")
    }

    /// Every listener that links stand before, whether or not they do.
    pub fn links(&self) -> Vec<LinkAddress> {
        let link = |kind, node, port: u16| LinkAddress {
            kind,
            node,
            front: format!("{}:{}", self.host, port + FRONT),
            back: format!("{}:{port}", self.host),
        };
        let mut links = Vec::new();
        for id in self.brokers() {
            links.push(link(LinkKind::Clients, id, BROKER_PORT + id as u16 - 1));
            links.push(link(LinkKind::Brokers, id, INTERNAL_PORT + id as u16));
        }
        for id in self.controllers() {
            links.push(link(LinkKind::Quorum, id, QUORUM_PORT + (id - FIRST_CONTROLLER) as u16));
        }
        links
    }

    /// The Kafka addresses of all controllers.
    pub fn bootstrap_controller(&self) -> String {
        let addresses: Vec<_> =
            self.controllers().into_iter().map(|id| self.controller_address(id)).collect();
        addresses.join(",")
    }

    /// A node's log directory.
    pub fn data_directory(&self, id: i32) -> PathBuf {
        let node = &self.nodes[&id];
        self.data_directory_of(id, node.properties.parent().unwrap_or(Path::new("/")))
    }

    fn data_directory_of(&self, id: i32, node: &Path) -> PathBuf {
        self.spec.data.get(&id).cloned().unwrap_or_else(|| node.join("data"))
    }

    /// One of a broker's further log directories, from 2 on.
    pub fn further_directory(&self, id: i32, number: usize) -> PathBuf {
        self.data_directory(id).with_file_name(format!("data-{number}"))
    }

    /// A node's properties file.
    pub fn properties(&self, id: i32) -> &Path {
        &self.nodes[&id].properties
    }

    /// What a node has logged so far.
    pub fn log(&self, id: i32) -> String {
        self.nodes.get(&id).and_then(|node| fs::read_to_string(&node.log).ok()).unwrap_or_default()
    }

    /// Runs the operator's command against this cluster; gives exit code, output, error output.
    pub fn kagami(&self, arguments: &[&str]) -> Result<(i32, String, String)> {
        let output = Command::new(binary("kagami")?).args(arguments).stdin(Stdio::null()).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(child) = &mut node.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        // A failed test's logs are worth more than a tidy disk, when asked for.
        if std::env::var_os("KAGAMI_KEEP").is_some() {
            self.directory.disable_cleanup(true);
        }
    }
}

fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?;
    ensure!(status.success(), "kill -{name} {pid}: {status}");
    Ok(())
}

/// A program of this workspace: beside the running test or program.
pub fn binary(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    for directory in own.ancestors().skip(1).take(2) {
        let candidate = directory.join(name);
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!("{name} is not beside {}; build the workspace first", own.display())
}

fn random_uuid() -> Result<String> {
    let output = Command::new(binary("kagami")?).args(["storage", "random-uuid"]).output()?;
    ensure!(output.status.success(), "storage random-uuid failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
