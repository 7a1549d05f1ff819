//! A controller with its own directory, a broker's side of the RPCs, and a small Kafka client.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use common::config::{ControllerConfig, Properties};
use common::ids::DirectoryId;
use controller::ControllerServer;
use controller::server::BoundQuorumListener;
use protocol::proto::controller as wire;
use protocol::proto::controller::controller_client::ControllerClient;
use protocol::proto::metadata::metadata_client::MetadataClient;
use protocol::{Request, Response, decode_response, encode_request};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Channel;
use uuid::Uuid;

pub const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";

pub struct Harness {
    pub server: ControllerServer,
    pub directory: TempDir,
}

pub async fn start(extra: &[(&str, &str)]) -> Harness {
    let directory = tempfile::tempdir().unwrap();
    common::storage::format(&[directory.path().to_owned()], CLUSTER_ID, 1, false).unwrap();
    let server = start_in(directory.path(), extra).await;
    Harness { server, directory }
}

pub async fn start_in(directory: &Path, extra: &[(&str, &str)]) -> ControllerServer {
    let quorum = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = quorum.local_addr().unwrap();
    let mut text = format!(
        "node.id=1\nlisteners=CONTROLLER://127.0.0.1:0\nquorum.listener={address}\n\
         controller.quorum.voters=1@{address}\nlog.dirs={}\n\
         mirror.state.topic.replication.factor=1\nmirror.state.topic.min.isr=1\n",
        directory.display()
    );
    for (key, value) in extra {
        text.push_str(&format!("{key}={value}\n"));
    }
    let (config, _) = ControllerConfig::from_properties(&Properties::parse(&text).unwrap()).unwrap();
    let server = ControllerServer::start_on(config, BoundQuorumListener(quorum)).await.unwrap();
    let mut status = server.status();
    tokio::time::timeout(Duration::from_secs(10), status.wait_for(|status| status.active))
        .await
        .expect("the only voter becomes active")
        .unwrap();
    // What it writes first is part of what the tests see.
    while server.image().features.is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server
}

/// Three voters; none is waited for.
pub async fn start_three() -> Vec<Harness> {
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let voters: Vec<String> = listeners
        .iter()
        .enumerate()
        .map(|(index, listener)| format!("{}@{}", index + 1, listener.local_addr().unwrap()))
        .collect();
    let mut harnesses = Vec::new();
    for (index, quorum) in listeners.into_iter().enumerate() {
        let node_id = index as i32 + 1;
        let directory = tempfile::tempdir().unwrap();
        common::storage::format(&[directory.path().to_owned()], CLUSTER_ID, node_id, false).unwrap();
        let text = format!(
            "node.id={node_id}\nlisteners=CONTROLLER://127.0.0.1:0\nquorum.listener={}\n\
             controller.quorum.voters={}\nlog.dirs={}\n",
            quorum.local_addr().unwrap(),
            voters.join(","),
            directory.path().display()
        );
        let (config, _) = ControllerConfig::from_properties(&Properties::parse(&text).unwrap()).unwrap();
        let server = ControllerServer::start_on(config, BoundQuorumListener(quorum)).await.unwrap();
        harnesses.push(Harness { server, directory });
    }
    harnesses
}

impl Harness {
    pub async fn channel(&self) -> Channel {
        let address = self.server.addresses().quorum;
        Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
    }

    pub async fn metadata(&self) -> MetadataClient<Channel> {
        MetadataClient::new(self.channel().await)
    }

    pub async fn kafka(&self) -> Kafka {
        Kafka::connect(self.server.addresses().listeners[0]).await
    }

    /// A broker that has registered; it is still fenced.
    pub async fn broker(&self, id: i32, previous_epoch: i64) -> Broker {
        let mut broker = Broker {
            client: ControllerClient::new(self.channel().await),
            id,
            epoch: -1,
            incarnation: Uuid::new_v4(),
        };
        broker.epoch = broker.register(previous_epoch).await.unwrap();
        broker
    }

    /// A broker that is registered and unfenced.
    pub async fn active_broker(&self, id: i32) -> Broker {
        let mut broker = self.broker(id, -1).await;
        assert!(!broker.beat(false).await.fenced);
        broker
    }
}

pub struct Broker {
    pub client: ControllerClient<Channel>,
    pub id: i32,
    pub epoch: i64,
    pub incarnation: Uuid,
}

impl Broker {
    pub async fn register(&mut self, previous_broker_epoch: i64) -> Result<i64, i32> {
        let request = wire::RegisterBrokerRequest {
            cluster_id: CLUSTER_ID.to_owned(),
            broker_id: self.id,
            incarnation_id: Bytes::copy_from_slice(self.incarnation.as_bytes()),
            endpoints: vec![wire::Endpoint {
                name: "PLAINTEXT".to_owned(),
                host: "localhost".to_owned(),
                port: 9092,
                security_protocol: 0,
            }],
            inter_broker_endpoint: 0,
            rack: String::new(),
            directories: vec![Bytes::copy_from_slice(self.directory().0.as_bytes())],
            previous_broker_epoch,
        };
        let answer = self.client.register_broker(request).await.unwrap().into_inner();
        if answer.error_code == 0 { Ok(answer.broker_epoch) } else { Err(answer.error_code) }
    }

    pub fn directory(&self) -> DirectoryId {
        DirectoryId(Uuid::from_u128(0x1000 + self.id as u128))
    }

    pub async fn beat(&mut self, want_shutdown: bool) -> wire::HeartbeatResponse {
        let request = wire::HeartbeatRequest {
            cluster_id: CLUSTER_ID.to_owned(),
            broker_id: self.id,
            broker_epoch: self.epoch,
            metadata_offset: self.epoch,
            want_fence: false,
            want_shutdown,
            offline_directories: Vec::new(),
        };
        self.client.heartbeat(request).await.unwrap().into_inner()
    }
}

pub struct Kafka {
    stream: TcpStream,
    correlation_id: i32,
}

impl Kafka {
    pub async fn connect(address: SocketAddr) -> Kafka {
        Kafka { stream: TcpStream::connect(address).await.unwrap(), correlation_id: 0 }
    }

    pub async fn ask(&mut self, request: impl Into<Request>, version: i16) -> Response {
        let request = request.into();
        self.correlation_id += 1;
        let bytes = encode_request(&request, version, self.correlation_id, Some("test")).unwrap();
        let frame = self.send(&bytes).await;
        let frame = frame.unwrap_or_else(|| panic!("{:?} {version} is not answered", request.key()));
        let (correlation_id, response) = decode_response(request.key(), version, frame).unwrap();
        assert_eq!(correlation_id, self.correlation_id);
        response
    }

    /// Sends raw bytes; `None` where the connection is closed.
    pub async fn send(&mut self, bytes: &[u8]) -> Option<Bytes> {
        self.stream.write_all(bytes).await.ok()?;
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }
}

#[macro_export]
macro_rules! ask {
    ($kafka:expr, $variant:ident, $request:expr, $version:expr) => {
        match $kafka.ask($request, $version).await {
            protocol::Response::$variant(response) => response,
            other => panic!("{other:?}"),
        }
    };
}
