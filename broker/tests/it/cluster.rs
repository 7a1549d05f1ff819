//! Starts a controller and a broker on free ports and in directories of their own.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use broker::client::{ConnectOptions, Connection};
use broker::server::BrokerServer;
use common::config::{BrokerConfig, ControllerConfig, Properties};
use controller::server::ControllerServer;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::{CreateTopicsRequest, TopicName};
use protocol::{Request, Response, StrBytes};
use tempfile::TempDir;

pub const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";
/// Nothing here takes that long; a test that waits longer is stuck.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Cluster {
    pub directory: TempDir,
    quorum_port: u16,
    pub controller: Option<ControllerServer>,
    pub broker: Option<BrokerServer>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn format(directory: &Path, node_id: i32) {
    common::storage::format(&[directory.to_owned()], CLUSTER_ID, node_id, true).unwrap();
}

impl Cluster {
    pub async fn start() -> Cluster {
        let mut cluster = Cluster {
            directory: tempfile::tempdir().unwrap(),
            quorum_port: free_port(),
            controller: None,
            broker: None,
        };
        format(&cluster.directory.path().join("controller"), 100);
        format(&cluster.directory.path().join("broker"), 1);
        cluster.start_controller().await;
        cluster.start_broker().await;
        cluster
    }

    pub async fn start_controller(&mut self) {
        let mut properties = Properties::new();
        properties.set("node.id", "100");
        properties.set("listeners", "CONTROLLER://127.0.0.1:0");
        properties.set("quorum.listener", format!("127.0.0.1:{}", self.quorum_port));
        properties.set("controller.quorum.voters", format!("100@127.0.0.1:{}", self.quorum_port));
        properties.set("log.dirs", self.directory.path().join("controller").display().to_string());
        properties.set("num.partitions", "2");
        let (config, _) = ControllerConfig::from_properties(&properties).unwrap();
        self.controller = Some(ControllerServer::start(config).await.unwrap());
    }

    pub fn broker_properties(&self) -> Properties {
        let mut properties = Properties::new();
        properties.set("node.id", "1");
        properties.set("listeners", "PLAINTEXT://127.0.0.1:0");
        properties.set("controller.quorum.voters", format!("100@127.0.0.1:{}", self.quorum_port));
        properties.set("log.dirs", self.directory.path().join("broker").display().to_string());
        properties.set("metrics.listener", "127.0.0.1:0");
        properties
    }

    pub async fn start_broker(&mut self) {
        let (config, _) = BrokerConfig::from_properties(&self.broker_properties()).unwrap();
        let broker = BrokerServer::start(config).await.unwrap();
        tokio::time::timeout(PATIENCE, broker.ready()).await.expect("unfenced in time");
        self.broker = Some(broker);
    }

    pub async fn stop_broker(&mut self) {
        let broker = self.broker.take().unwrap();
        tokio::time::timeout(PATIENCE, broker.shutdown()).await.expect("stopped in time");
    }

    pub async fn stop(mut self) {
        if self.broker.is_some() {
            self.stop_broker().await;
        }
        if let Some(controller) = self.controller.take() {
            tokio::time::timeout(PATIENCE, controller.shutdown()).await.expect("stopped in time");
        }
    }

    pub fn address(&self) -> String {
        self.broker.as_ref().unwrap().addresses()["PLAINTEXT"].to_string()
    }

    pub async fn connect(&self) -> Connection {
        Connection::connect(&self.address(), "test", ConnectOptions::default()).await.unwrap()
    }
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

pub async fn create_topic(connection: &mut Connection, name: &str, partitions: i32) {
    let topic = CreatableTopic {
        name: topic_name(name),
        num_partitions: partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let response = connection.call_latest(Request::CreateTopics(request)).await.unwrap();
    let Response::CreateTopics(response) = response else { panic!("{response:?}") };
    let [result] = response.topics.as_slice() else { panic!("{response:?}") };
    assert_eq!(result.error_code, 0, "{result:?}");
}
