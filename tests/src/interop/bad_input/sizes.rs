//! N7: requests and batches larger than they may be; topics that cannot be.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use protocol::messages::FetchRequest;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::record_batch::BatchBuilder;
use protocol::{ErrorCode, Request, Response};

use super::Target;
use crate::client::{error_name, topic_name};
use crate::raw::{Answer, RawConnection};

const TOPIC: &str = "t";
const MANY_PARTITIONS: i32 = 100_000;

pub async fn run(target: &mut Target) -> Result<()> {
    large_batches(target).await?;
    many_partitions(target).await?;
    sessions(target).await?;
    large_request(target).await?;
    topics(target).await?;
    target.ensure_healthy("N7 sizes").await
}

async fn large_batches(target: &mut Target) -> Result<()> {
    target.client.create_topic("small", 1, 1, &[("max.message.bytes", "1000")]).await?;
    for (topic, bytes) in [("small", 2_000), (TOPIC, 3 << 20)] {
        let value = vec![b'x'; bytes];
        let batch = BatchBuilder::new().record(1, None, Some(&value)).build();
        let produced = target.client.produce(topic, 0, batch).await?;
        ensure!(
            produced.error_code == ErrorCode::MessageTooLarge.code(),
            "{bytes} bytes to {topic}: {}",
            error_name(produced.error_code)
        );
    }
    Ok(())
}

fn fetch_request(topic: &str, partitions: i32, session: (i32, i32)) -> FetchRequest {
    let partitions = (0..partitions).map(|partition| {
        FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
            .with_partition_max_bytes(i32::MAX)
    });
    let topics =
        vec![FetchTopic::default().with_topic(topic_name(topic)).with_partitions(partitions.collect())];
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_bytes(i32::MAX)
        .with_session_id(session.0)
        .with_session_epoch(session.1)
        .with_topics(topics)
}

async fn many_partitions(target: &mut Target) -> Result<()> {
    for partitions in [1, MANY_PARTITIONS] {
        let request = fetch_request(TOPIC, partitions, (0, -1));
        let address = target.broker.clone();
        match target.client.call_at(&address, Request::Fetch(request), 12).await {
            Ok(Response::Fetch(response)) => {
                let answered: usize = response.responses.iter().map(|topic| topic.partitions.len()).sum();
                ensure!(
                    response.error_code != 0 || answered == partitions as usize,
                    "a fetch of {partitions} partitions answered {answered}"
                );
            }
            Ok(other) => bail!("Fetch answered with {other:?}"),
            // Refused as a whole.
            Err(_) => ensure!(partitions > 1, "a fetch with the largest max_bytes is refused"),
        }
    }
    Ok(())
}

async fn sessions(target: &mut Target) -> Result<()> {
    let not_found = ErrorCode::FetchSessionIdNotFound.code();
    let invalid = ErrorCode::InvalidFetchSessionEpoch.code();
    for (session, wanted) in [((12_345, 5), not_found), ((12_345, i32::MAX), not_found)] {
        let address = target.broker.clone();
        let request = Request::Fetch(fetch_request(TOPIC, 1, session));
        let Response::Fetch(response) = target.client.call_at(&address, request, 12).await? else {
            bail!("Fetch answered with something else")
        };
        ensure!(response.error_code == wanted, "session {session:?}: {}", error_name(response.error_code));
    }
    let address = target.broker.clone();
    let open = Request::Fetch(fetch_request(TOPIC, 1, (0, 0)));
    let Response::Fetch(opened) = target.client.call_at(&address, open, 12).await? else {
        bail!("Fetch answered with something else")
    };
    if opened.session_id != 0 {
        let request = Request::Fetch(fetch_request(TOPIC, 1, (opened.session_id, 9)));
        let Response::Fetch(response) = target.client.call_at(&address, request, 12).await? else {
            bail!("Fetch answered with something else")
        };
        ensure!(
            response.error_code == invalid,
            "session epoch 9 after 0: {}",
            error_name(response.error_code)
        );
    }
    Ok(())
}

/// More than socket.request.max.bytes, really sent until the broker ends the connection.
async fn large_request(target: &mut Target) -> Result<()> {
    let mut connection = RawConnection::open(&target.broker).await?;
    connection.send(&(200_i32 << 20).to_be_bytes()).await;
    connection.send(&vec![0; 1 << 20]).await;
    let answer = connection.answer(Duration::from_secs(5)).await?;
    ensure!(answer == Answer::Closed, "a request of 200 MiB got {answer:?}");
    Ok(())
}

async fn topics(target: &mut Target) -> Result<()> {
    let long = "x".repeat(250);
    type Case<'a> = (&'a str, i32, i16, &'a [(&'a str, &'a str)], ErrorCode);
    let cases: [Case<'_>; 10] = [
        ("", 1, 1, &[], ErrorCode::InvalidTopicException),
        ("a/b", 1, 1, &[], ErrorCode::InvalidTopicException),
        ("..", 1, 1, &[], ErrorCode::InvalidTopicException),
        (&long, 1, 1, &[], ErrorCode::InvalidTopicException),
        ("zero", 0, 1, &[], ErrorCode::InvalidPartitions),
        ("two-replicas", 1, 2, &[], ErrorCode::InvalidReplicationFactor),
        ("bad-value", 1, 1, &[("retention.ms", "soon")], ErrorCode::InvalidConfig),
        ("bad-range", 1, 1, &[("segment.bytes", "-5")], ErrorCode::InvalidConfig),
        ("bad-key", 1, 1, &[("no.such.key", "1")], ErrorCode::InvalidConfig),
        ("own-mirror", 1, 1, &[("mirror.name", "m")], ErrorCode::InvalidRequest),
    ];
    for (name, partitions, replicas, configs, wanted) in cases {
        let (code, message) = target.client.try_create_topic(name, partitions, replicas, configs).await?;
        ensure!(
            code == wanted.code(),
            "create {name:?} with {partitions} partitions, {replicas} replicas, {configs:?}: {} {message:?}, expected {}",
            error_name(code),
            wanted.name()
        );
    }
    let (code, _) = target.client.try_create_topic(TOPIC, 1, 1, &[]).await?;
    ensure!(code == ErrorCode::TopicAlreadyExists.code(), "create {TOPIC} again: {}", error_name(code));
    let produced = target
        .client
        .produce(TOPIC, 0, Bytes::from_static(b"not a batch at all, but long enough to be parsed as one"))
        .await;
    ensure!(produced.is_err() || produced.is_ok_and(|produced| produced.error_code != 0), "noise was taken");
    Ok(())
}
