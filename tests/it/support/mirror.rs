//! Two clusters and a mirror between them, driven by our own requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::{Client, error_name, text, topic_name};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;
use protocol::messages::create_topics_request::{CreatableTopic, MirrorInfo};
use protocol::messages::{BrokerId, CreateTopicsRequest};
use protocol::mirror::add_topics_to_mirror::{AddTopicsToMirrorRequest, TopicState};
use protocol::mirror::create_mirror::{CreateMirrorRequest, MirrorConfig};
use protocol::mirror::describe_mirrors::{DescribeMirrorsRequest, DescribeMirrorsResponse};
use protocol::mirror::remove_topics_from_mirror::{self, RemoveTopicsFromMirrorRequest};
use protocol::{ErrorCode, Request, Response};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::side::Side;
use super::{LIMIT, slots};

/// The mirror of a pair.
pub const MIRROR: &str = "m1";
const PAUSE: Duration = Duration::from_millis(25);

/// A partition as DescribeMirrors shows it.
#[derive(Clone, Debug)]
pub struct Partition {
    pub topic: String,
    pub index: i32,
    pub state: String,
    pub source_offset: i64,
    pub destination_offset: i64,
    pub lag: i64,
    pub reason: Option<String>,
    pub writable: bool,
    pub last_mirrored_offset: i64,
    pub leader: i32,
}

/// What all partitions of a topic should come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    State(&'static str),
    Writable,
}

impl Wanted {
    fn is_met(self, partition: &Partition) -> bool {
        match self {
            Wanted::State(state) => partition.state == state,
            Wanted::Writable => partition.writable,
        }
    }
}

/// A source, and here.
pub struct Pair {
    // The source goes first: the other holds the room of both.
    pub source: Side,
    pub here: Side,
}

impl Pair {
    /// Two clusters; the mirror exists.
    pub async fn start(source: ClusterSpec, here: ClusterSpec) -> Result<Pair> {
        let room = slots::take(&[&source, &here]).await?;
        let (mut source, mut here) = (Side::launch(source)?, Side::launch(here)?);
        here.hold(room);
        source.await_start().await?;
        here.await_start().await?;
        here.create_mirror(MIRROR, &source.bootstrap()).await?;
        Ok(Pair { source, here })
    }

    /// Adds the topic and waits until every partition is MIRRORING.
    pub async fn mirror(&mut self, topic: &str, partitions: usize) -> Result<()> {
        self.here.add(MIRROR, topic).await?;
        self.here.await_partitions(MIRROR, topic, partitions, Wanted::State("MIRRORING")).await?;
        Ok(())
    }

    /// The topic here under the source's id while no mirror has it: with records of its own, it has
    /// something to cut.
    pub async fn create_here(&mut self, topic: &str, partitions: i32) -> Result<()> {
        let id = self.source.client.topic_id(topic).await?;
        let (code, message) = self.here.create_with_id(topic, partitions, -1, id).await?;
        ensure!(code == ErrorCode::None, "create {topic} here: {} {message:?}", code.name());
        self.here.client.await_leaders(topic, partitions).await?;
        Ok(())
    }

    /// Waits until a partition here ends where the source's does; that offset.
    pub async fn caught_up(&mut self, topic: &str, partition: i32) -> Result<i64> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let wanted = self.source.end(topic, partition).await?;
            let found = self.here.end(topic, partition).await?;
            if wanted == found {
                return Ok(wanted);
            }
            if Instant::now() > deadline {
                let states = self.here.partitions(MIRROR).await;
                bail!("{topic}-{partition} ends at {wanted} at the source, at {found} here: {states:?}");
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits until a partition here has come so far.
    pub async fn caught_up_at_least(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = self.here.end(topic, partition).await?;
            if found >= offset {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{topic}-{partition} ends at {found}, wanted {offset}");
            sleep(PAUSE).await;
        }
    }

    /// Every replica here holds what the source's leader holds, byte for byte; that.
    pub async fn equal_to_source(&mut self, topic: &str, partition: i32) -> Result<Vec<u8>> {
        let leader = self.source.leader(topic, partition).await?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = self.here.equal_replicas(topic, partition).await?;
            let expected = self.source.replica(leader, topic, partition)?;
            let what = format!("{topic}-{partition} here");
            match segments::ensure_equal(&what, &expected, &found) {
                Ok(()) => return Ok(found),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

impl Side {
    /// Waits until a partition ends exactly there.
    pub async fn await_end(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = self.end(topic, partition).await?;
            if found == offset {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{topic}-{partition} ends at {found}, wanted {offset}");
            sleep(PAUSE).await;
        }
    }

    /// The answer to one CreateMirror.
    pub async fn try_create_mirror(
        &mut self,
        mirror: Option<&str>,
        configs: &[(&str, &str)],
    ) -> Result<(ErrorCode, Option<String>)> {
        let config =
            configs.iter().map(|(key, value)| MirrorConfig { name: text(key), value: Some(text(value)) });
        let request = CreateMirrorRequest { mirror_name: mirror.map(text), config: config.collect() };
        let code_of = |response: &Response| match response {
            Response::CreateMirror(response) => response.error_code,
            _ => 0,
        };
        match self.call(Request::CreateMirror(request), code_of).await? {
            Response::CreateMirror(response) => {
                Ok((known(response.error_code)?, response.error_message.map(|message| message.to_string())))
            }
            other => bail!("answered with {other:?}"),
        }
    }

    pub async fn create_mirror(&mut self, mirror: &str, source: &str) -> Result<()> {
        let configs = [("bootstrap.servers", source), ("mirror.fetch.backoff.ms", "100")];
        let (code, message) = self.try_create_mirror(Some(mirror), &configs).await?;
        ensure!(code == ErrorCode::None, "create mirror {mirror}: {} {message:?}", code.name());
        Ok(())
    }

    /// The answer to one AddTopicsToMirror.
    pub async fn try_add(&mut self, mirror: &str, topic: &str, id: Uuid, recopy: bool) -> Result<ErrorCode> {
        let topics =
            vec![TopicState { topic_id: id, topic_name: topic_name(topic), mirror_name: Some(text(mirror)) }];
        let request = AddTopicsToMirrorRequest { topics, recopy };
        let code_of = |response: &Response| match response {
            Response::AddTopicsToMirror(response) => response.error_code,
            _ => 0,
        };
        match self.call(Request::AddTopicsToMirror(request), code_of).await? {
            Response::AddTopicsToMirror(response) => known(response.error_code),
            other => bail!("answered with {other:?}"),
        }
    }

    pub async fn add(&mut self, mirror: &str, topic: &str) -> Result<()> {
        let code = self.try_add(mirror, topic, Uuid::nil(), false).await?;
        ensure!(code == ErrorCode::None, "add {topic} to {mirror}: {}", code.name());
        Ok(())
    }

    /// The answer to one RemoveTopicsFromMirror.
    pub async fn try_remove(&mut self, mirror: &str, topic: &str) -> Result<ErrorCode> {
        let topics = vec![remove_topics_from_mirror::TopicState {
            topic_id: Uuid::nil(),
            topic_name: topic_name(topic),
        }];
        let request = RemoveTopicsFromMirrorRequest { mirror_name: text(mirror), topics };
        let code_of = |response: &Response| match response {
            Response::RemoveTopicsFromMirror(response) => response.error_code,
            _ => 0,
        };
        match self.call(Request::RemoveTopicsFromMirror(request), code_of).await? {
            Response::RemoveTopicsFromMirror(response) => known(response.error_code),
            other => bail!("answered with {other:?}"),
        }
    }

    pub async fn remove(&mut self, mirror: &str, topic: &str) -> Result<()> {
        let code = self.try_remove(mirror, topic).await?;
        ensure!(code == ErrorCode::None, "remove {topic} from {mirror}: {}", code.name());
        Ok(())
    }

    /// CreateTopics 8 with the id of a source's topic.
    pub async fn create_with_id(
        &mut self,
        topic: &str,
        partitions: i32,
        replicas: i16,
        id: Uuid,
    ) -> Result<(ErrorCode, Option<String>)> {
        let creatable = CreatableTopic::default()
            .with_name(topic_name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(replicas)
            .with_mirror_info(Some(MirrorInfo { topic_id: id }));
        self.create_topic_8(creatable).await
    }

    pub async fn create_topic_8(&mut self, topic: CreatableTopic) -> Result<(ErrorCode, Option<String>)> {
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let code_of = |response: &Response| match response {
            Response::CreateTopics(response) => response.topics.first().map_or(0, |topic| topic.error_code),
            _ => 0,
        };
        match self.call(Request::CreateTopics(request), code_of).await? {
            Response::CreateTopics(response) => {
                let result = response.topics.into_iter().next().context("an empty answer")?;
                Ok((known(result.error_code)?, result.error_message.map(|message| message.to_string())))
            }
            other => bail!("answered with {other:?}"),
        }
    }

    /// What one broker answers to DescribeMirrors.
    pub async fn describe_at(&mut self, broker: i32, mirror: &str) -> Result<Vec<Partition>> {
        let address = self.cluster.broker_address(broker);
        describe(&mut self.client, &address, mirror).await
    }

    /// What one controller answers.
    pub async fn describe_at_controller(&mut self, controller: i32, mirror: &str) -> Result<Vec<Partition>> {
        let address = self.cluster.controller_address(controller);
        describe(&mut self.client, &address, mirror).await
    }

    /// Of all brokers that can answer, merged.
    pub async fn partitions(&mut self, mirror: &str) -> Result<Vec<Partition>> {
        let mut merged: BTreeMap<(String, i32), Partition> = BTreeMap::new();
        for broker in self.awake_brokers() {
            let Ok(partitions) = self.describe_at(broker, mirror).await else { continue };
            for partition in partitions {
                let key = (partition.topic.clone(), partition.index);
                // The leader's answer has offsets.
                let known = merged.get(&key).is_some_and(|old| old.destination_offset >= 0);
                if !known {
                    merged.insert(key, partition);
                }
            }
        }
        Ok(merged.into_values().collect())
    }

    /// Waits until the topic has so many partitions and all are so.
    pub async fn await_partitions(
        &mut self,
        mirror: &str,
        topic: &str,
        count: usize,
        wanted: Wanted,
    ) -> Result<Vec<Partition>> {
        self.await_described(mirror, &format!("{count} partitions of {topic}, {wanted:?}"), |all| {
            let of_topic: Vec<_> = all.iter().filter(|partition| partition.topic == topic).collect();
            of_topic.len() == count && of_topic.iter().all(|partition| wanted.is_met(partition))
        })
        .await
    }

    pub async fn await_described(
        &mut self,
        mirror: &str,
        what: &str,
        is_met: impl Fn(&[Partition]) -> bool,
    ) -> Result<Vec<Partition>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let partitions = self.partitions(mirror).await?;
            if is_met(&partitions) {
                return Ok(partitions);
            }
            ensure!(Instant::now() < deadline, "{what}: not within {LIMIT:?}; last: {partitions:?}");
            sleep(PAUSE).await;
        }
    }
}

fn known(code: i16) -> Result<ErrorCode> {
    ErrorCode::from_code(code).with_context(|| format!("error code {code}"))
}

async fn describe(client: &mut Client, address: &str, mirror: &str) -> Result<Vec<Partition>> {
    let request = DescribeMirrorsRequest { mirror_names: Some(vec![text(mirror)]), ..Default::default() };
    let response = client.call_at(address, Request::DescribeMirrors(request), i16::MAX).await?;
    let Response::DescribeMirrors(response) = response else { bail!("answered with {response:?}") };
    flatten(response)
}

fn flatten(response: DescribeMirrorsResponse) -> Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    for mirror in response.mirrors {
        ensure!(mirror.error_code == 0, "{}: {:?}", error_name(mirror.error_code), mirror.error_message);
        for topic in mirror.topics {
            for detail in topic.partitions {
                let BrokerId(leader) = detail.leader_id;
                partitions.push(Partition {
                    topic: topic.topic_name.to_string(),
                    index: detail.partition_index,
                    state: detail.state.to_string(),
                    source_offset: detail.source_offset,
                    destination_offset: detail.destination_offset,
                    lag: detail.lag,
                    reason: detail.reason.map(|reason| reason.to_string()),
                    writable: detail.writable,
                    last_mirrored_offset: detail.last_mirrored_offset,
                    leader,
                });
            }
        }
    }
    Ok(partitions)
}
