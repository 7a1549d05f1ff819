//! One controller and one broker in this process, from the same entry points as the daemons.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use broker::server::BrokerServer;
use common::config::broker::BrokerConfig;
use common::config::controller::ControllerConfig;
use common::config::properties::Properties;
use controller::server::ControllerServer;

use crate::failure::Failure;
use crate::storage::random_uuid;

const CONTROLLER_ID: &str = "100";
const BROKER_ID: &str = "1";
const HOST: &str = "127.0.0.1";

/// Ports of an embedded cluster.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub broker: u16,
    pub controller: u16,
    pub quorum: u16,
}

impl Ports {
    /// Ports that are free now.
    pub fn free() -> Result<Ports, Failure> {
        // Held together until all are chosen, so that no two are the same.
        let bind = || TcpListener::bind((HOST, 0));
        let chosen = (|| Ok::<_, std::io::Error>([bind()?, bind()?, bind()?]))();
        let held = chosen.map_err(|error| Failure::refused(format!("no free port: {error}")))?;
        let port = |index: usize| held[index].local_addr().map(|address| address.port());
        match (port(0), port(1), port(2)) {
            (Ok(broker), Ok(controller), Ok(quorum)) => Ok(Ports { broker, controller, quorum }),
            _ => Err(Failure::refused("no free port")),
        }
    }
}

pub struct Embedded {
    pub cluster_id: String,
    pub bootstrap: String,
    pub bootstrap_controller: String,
    /// The broker's log directory.
    pub data: PathBuf,
    controller: ControllerServer,
    broker: BrokerServer,
}

impl Embedded {
    /// Formats `directory` where that was not done before, and starts both.
    pub async fn start(
        directory: &Path,
        ports: Ports,
        settings: &[(String, String)],
    ) -> Result<Embedded, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| Failure::refused(format!("{what}: {error}"));
        let (controller_data, data) = (directory.join("controller"), directory.join("broker"));
        let cluster_id = format(&controller_data, &data)?;
        let bootstrap = format!("{HOST}:{}", ports.broker);
        let bootstrap_controller = format!("{HOST}:{}", ports.controller);

        let mut common = Properties::new();
        common.set("controller.quorum.voters", format!("{CONTROLLER_ID}@{HOST}:{}", ports.quorum));
        for key in
            ["default.replication.factor", "mirror.state.topic.replication.factor", "min.insync.replicas"]
        {
            common.set(key, "1");
        }
        common.set("mirror.state.topic.num.partitions", "1");
        common.set("mirror.state.topic.min.isr", "1");
        for (key, value) in settings {
            common.set(key.as_str(), value.as_str());
        }

        let mut properties = common.clone();
        properties.set("node.id", CONTROLLER_ID);
        properties.set("listeners", format!("CONTROLLER://{bootstrap_controller}"));
        properties.set("quorum.listener", format!("{HOST}:{}", ports.quorum));
        properties.set("log.dirs", controller_data.display().to_string());
        let (config, _) =
            ControllerConfig::from_properties(&properties).map_err(|error| failed("controller", &error))?;
        let controller =
            ControllerServer::start(config).await.map_err(|error| failed("controller", &error))?;

        let mut properties = common;
        properties.set("node.id", BROKER_ID);
        properties.set("listeners", format!("PLAINTEXT://{bootstrap}"));
        properties.set("log.dirs", data.display().to_string());
        let (config, _) =
            BrokerConfig::from_properties(&properties).map_err(|error| failed("broker", &error))?;
        let broker = BrokerServer::start(config).await.map_err(|error| failed("broker", &error))?;
        Ok(Embedded { cluster_id, bootstrap, bootstrap_controller, data, controller, broker })
    }

    pub async fn shutdown(self) {
        self.broker.shutdown().await;
        self.controller.shutdown().await;
    }
}

/// The cluster id of formatted directories; formats new ones.
fn format(controller: &Path, broker: &Path) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::refused(format!("storage: {error}"));
    if let Ok(formatted) = common::storage::load(controller) {
        return Ok(formatted.cluster_id);
    }
    let cluster_id = random_uuid();
    for (directory, node_id) in [(controller, CONTROLLER_ID), (broker, BROKER_ID)] {
        std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
        let node_id = node_id.parse().map_err(|error| failed(&error))?;
        common::storage::format(&[directory.to_path_buf()], &cluster_id, node_id, false)
            .map_err(|error| failed(&error))?;
    }
    Ok(cluster_id)
}
