//! Start, readiness, stop.

use std::time::{Duration, Instant};

use broker::server::BrokerServer;
use common::config::BrokerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::Cluster;

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_ready_quickly_says_so_and_stops() {
    let mut cluster = Cluster::start().await;
    let metrics = cluster.broker.as_ref().unwrap().metrics_address().unwrap();
    assert!(get(metrics, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(metrics, "/metrics").await.contains("kagami_broker_fenced 0"));

    let stopping = Instant::now();
    cluster.stop_broker().await;
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
    let starting = Instant::now();
    cluster.start_broker().await;
    // Half a second is promised for the daemon; a debug build beside other tests is slower.
    assert!(starting.elapsed() < Duration::from_secs(3), "{:?}", starting.elapsed());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_has_one_process() {
    let cluster = Cluster::start().await;
    let (config, _) = BrokerConfig::from_properties(&cluster.broker_properties()).unwrap();
    let refused = BrokerServer::start(config).await.err().unwrap().to_string();
    assert!(refused.contains("lock"), "{refused}");
    cluster.stop().await;
}
