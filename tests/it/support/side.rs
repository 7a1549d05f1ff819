//! One cluster with a client of it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use kagami_tests::client::{Client, error_name, text};
use kagami_tests::cluster::{Cluster, ClusterSpec, binary};
use kagami_tests::eventually::eventually;
use kagami_tests::process;
use kagami_tests::segments;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::metadata_response::MetadataResponsePartition;
use protocol::messages::{
    BrokerId, DescribeConfigsRequest, DescribeQuorumRequest, IncrementalAlterConfigsRequest,
    describe_quorum_request,
};
use protocol::{ErrorCode, Request, Response};
use tokio::process::Command;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::{LIMIT, slots};

/// Resource types of configs.
pub const TOPIC_RESOURCE: i8 = 2;
pub const MIRROR_RESOURCE: i8 = 64;
pub(super) const PAUSE: Duration = Duration::from_millis(25);
/// Retriable for a client whose metadata may be old; here they are what a test wants to hear.
const MEANT: [ErrorCode; 2] = [ErrorCode::UnknownTopicOrPartition, ErrorCode::InconsistentTopicId];
const COMMAND_LIMIT: Duration = Duration::from_secs(90);

pub struct Side {
    pub cluster: Cluster,
    pub client: Client,
    paused: BTreeSet<i32>,
    // The last to go: the room is free when the processes are gone.
    _room: Option<OwnedSemaphorePermit>,
}

impl Side {
    /// All brokers serve.
    pub async fn start(spec: ClusterSpec) -> Result<Side> {
        let room = slots::take(&[&spec]).await?;
        let mut side = Side::launch(spec)?;
        side.hold(room);
        side.await_start().await?;
        Ok(side)
    }

    /// Without waiting, and without room of its own.
    pub fn launch(spec: ClusterSpec) -> Result<Side> {
        Ok(Side::of(Cluster::start(spec)?))
    }

    /// A cluster that a test has started in a way of its own.
    pub fn of(cluster: Cluster) -> Side {
        let client = Client::new(&cluster.bootstrap());
        Side { cluster, client, paused: BTreeSet::new(), _room: None }
    }

    pub async fn await_start(&mut self) -> Result<()> {
        let brokers = self.cluster.brokers().len();
        let started = self.client.await_brokers(brokers, LIMIT).await;
        started.with_context(|| {
            let said = |id: &i32| format!("{id}: {}", process::last_lines(&self.cluster.log(*id)));
            let nodes = [self.cluster.controllers(), self.cluster.brokers()].concat();
            format!("start of a cluster; logs: {}", nodes.iter().map(said).collect::<Vec<_>>().join("\n"))
        })
    }

    /// Keeps room for processes as long as it lives.
    pub fn hold(&mut self, room: OwnedSemaphorePermit) {
        self._room = Some(room);
    }

    pub fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }

    pub fn kill(&mut self, id: i32) -> Result<()> {
        self.client.forget_leaders();
        self.cluster.kill(id)
    }

    pub fn stop(&mut self, id: i32) -> Result<()> {
        self.client.forget_leaders();
        self.cluster.stop(id)
    }

    pub fn restart(&mut self, id: i32) -> Result<()> {
        self.cluster.start_node(id)
    }

    /// A paused broker keeps its sockets, so it must not be asked anything.
    pub fn pause(&mut self, id: i32) -> Result<()> {
        self.cluster.pause(id)?;
        self.ignore(id);
        Ok(())
    }

    pub fn resume(&mut self, id: i32) -> Result<()> {
        self.paused.remove(&id);
        self.cluster.resume(id)
    }

    /// Asks this broker nothing: what it knows is old.
    pub fn ignore(&mut self, id: i32) {
        self.paused.insert(id);
        self.ask_awake_brokers();
    }

    /// Asks it again.
    pub fn heed(&mut self, id: i32) {
        self.paused.remove(&id);
        self.ask_awake_brokers();
    }

    fn ask_awake_brokers(&mut self) {
        let awake = self.awake_brokers();
        let addresses: Vec<_> = awake.into_iter().map(|id| self.cluster.broker_address(id)).collect();
        self.client = Client::new(&addresses.join(","));
    }

    /// Brokers that can answer.
    pub fn awake_brokers(&mut self) -> Vec<i32> {
        let brokers = self.cluster.brokers();
        brokers.into_iter().filter(|id| !self.paused.contains(id) && self.cluster.is_running(*id)).collect()
    }

    /// The operator's command: exit code, output, error output.
    pub async fn run_kagami(&self, arguments: &[&str]) -> Result<(i32, String, String)> {
        let mut command = Command::new(binary("kagami")?);
        command.args(arguments);
        let outcome =
            process::run(&format!("kagami {}", arguments.join(" ")), command, COMMAND_LIMIT).await?;
        Ok((outcome.code, outcome.output, outcome.errors))
    }

    /// The same; it must succeed.
    pub async fn kagami(&self, arguments: &[&str]) -> Result<String> {
        let (code, output, errors) = self.run_kagami(arguments).await?;
        ensure!(code == 0, "kagami {}: exit code {code}: {output} {errors}", arguments.join(" "));
        Ok(output)
    }

    /// Sends a request to a broker until it is answered without a retriable error.
    pub async fn call(&mut self, request: Request, code_of: impl Fn(&Response) -> i16) -> Result<Response> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let last = match self.client.call_any(request.clone(), i16::MAX).await {
                Ok(response) => match ErrorCode::from_code(code_of(&response)) {
                    Some(error) if error.retriable() && !MEANT.contains(&error) => {
                        anyhow!("{}", error.name())
                    }
                    _ => return Ok(response),
                },
                Err(error) => error,
            };
            ensure!(Instant::now() < deadline, "{} not answered: {last:#}", request.key().name());
            sleep(PAUSE).await;
        }
    }

    /// Appends a batch until it is acknowledged; its first offset.
    pub async fn write(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<i64> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let last = match self.client.produce(topic, partition, batch.clone()).await {
                Ok(produced) if produced.error_code == 0 => return Ok(produced.base_offset),
                Ok(produced) => {
                    let error = ErrorCode::from_code(produced.error_code).context("an unknown error code")?;
                    ensure!(error.retriable(), "produce to {topic}-{partition}: {produced:?}");
                    anyhow!("{}", error.name())
                }
                Err(error) => error,
            };
            self.client.forget_leaders();
            ensure!(Instant::now() < deadline, "nothing can be written to {topic}-{partition}: {last:#}");
            sleep(PAUSE).await;
        }
    }

    /// The error with which a leader refuses a batch; asks until a leader answers.
    pub async fn refusal(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<ErrorCode> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let last = match self.client.produce(topic, partition, batch.clone()).await {
                Ok(produced) => match ErrorCode::from_code(produced.error_code) {
                    Some(ErrorCode::None) => {
                        bail!("{topic}-{partition} took a batch at {}", produced.base_offset)
                    }
                    Some(error @ (ErrorCode::NotLeaderOrFollower | ErrorCode::LeaderNotAvailable)) => {
                        anyhow!("{}", error.name())
                    }
                    Some(error) => return Ok(error),
                    None => bail!("error code {}", produced.error_code),
                },
                Err(error) => error,
            };
            self.client.forget_leaders();
            ensure!(Instant::now() < deadline, "no leader of {topic}-{partition} answers: {last:#}");
            sleep(PAUSE).await;
        }
    }

    /// The high watermark, from whoever leads by then.
    pub async fn end(&mut self, topic: &str, partition: i32) -> Result<i64> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.client.end_offset(topic, partition, false).await {
                Ok(end) => return Ok(end),
                Err(error) => {
                    self.client.forget_leaders();
                    ensure!(Instant::now() < deadline, "{error:#}");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// All that a consumer gets from a partition.
    pub async fn consume(&mut self, topic: &str, partition: i32) -> Result<Bytes> {
        let fetched = self.client.fetch(topic, partition, 0, true).await?;
        ensure!(fetched.error_code == 0, "fetch of {topic}-{partition}: {}", error_name(fetched.error_code));
        Ok(fetched.records)
    }

    pub async fn partition(&mut self, topic: &str, partition: i32) -> Result<MetadataResponsePartition> {
        let found = self.client.topic(topic).await?;
        let mut partitions = found.partitions.into_iter();
        partitions.find(|found| found.partition_index == partition).context("no such partition")
    }

    /// Who leads a partition; waits until somebody does.
    pub async fn leader(&mut self, topic: &str, partition: i32) -> Result<i32> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.partition(topic, partition).await {
                Ok(found) if found.leader_id.0 >= 0 => return Ok(found.leader_id.0),
                other => ensure!(Instant::now() < deadline, "{topic}-{partition} has no leader: {other:?}"),
            }
            sleep(PAUSE).await;
        }
    }

    /// A replica that does not lead.
    pub async fn follower(&mut self, topic: &str, partition: i32) -> Result<i32> {
        let found = self.partition(topic, partition).await?;
        let follower = found.replica_nodes.iter().find(|replica| **replica != found.leader_id);
        Ok(follower.context("no follower")?.0)
    }

    /// Waits until the ISR is exactly this.
    pub async fn await_isr_of(&mut self, topic: &str, partition: i32, members: &[i32]) -> Result<()> {
        let wanted: BTreeSet<BrokerId> = members.iter().map(|id| BrokerId(*id)).collect();
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = self.partition(topic, partition).await;
            if let Ok(found) = &found
                && found.isr_nodes.iter().copied().collect::<BTreeSet<_>>() == wanted
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the ISR of {topic}-{partition} is not {members:?}: {found:?}"
            );
            sleep(PAUSE).await;
        }
    }

    /// The active controller, asked from the controllers themselves.
    pub async fn active_controller(&mut self) -> Result<i32> {
        let partition = describe_quorum_request::PartitionData::default();
        let topic = describe_quorum_request::TopicData::default()
            .with_topic_name(kagami_tests::client::topic_name("__cluster_metadata"))
            .with_partitions(vec![partition]);
        let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
        let controllers = self.cluster.bootstrap_controller();
        eventually("an active controller", LIMIT, || {
            let (request, mut client) = (request.clone(), Client::new(&controllers));
            let addresses: Vec<String> = controllers.split(',').map(str::to_owned).collect();
            async move {
                for address in addresses {
                    let answer = client.call_at(&address, Request::DescribeQuorum(request.clone()), 2).await;
                    let Ok(Response::DescribeQuorum(response)) = answer else { continue };
                    let partition = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
                    if let Some(partition) = partition
                        && response.error_code == 0
                        && partition.error_code == 0
                        && partition.leader_id.0 >= 0
                    {
                        return Ok(Some(partition.leader_id.0));
                    }
                }
                Ok(None)
            }
        })
        .await
    }

    /// The bytes of one replica, as they lie on disk.
    pub fn replica(&self, broker: i32, topic: &str, partition: i32) -> Result<Vec<u8>> {
        let data = self.cluster.data_directory(broker);
        segments::read(&segments::partition_directory(&data, topic, partition))
    }

    /// Waits until all replicas hold the same; gives what they hold.
    pub async fn equal_replicas(&self, topic: &str, partition: i32) -> Result<Vec<u8>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let copies: Result<Vec<_>> =
                self.cluster.brokers().into_iter().map(|id| self.replica(id, topic, partition)).collect();
            let compared = copies.and_then(|copies| {
                let (first, others) = copies.split_first().context("no broker")?;
                for other in others {
                    segments::ensure_equal(&format!("replicas of {topic}-{partition}"), first, other)?;
                }
                Ok(first.clone())
            });
            match compared {
                Ok(bytes) => return Ok(bytes),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// A config as DescribeConfigs shows it: all keys, or those asked for.
    pub async fn configs(
        &mut self,
        resource_type: i8,
        name: &str,
        keys: Option<&[&str]>,
    ) -> Result<std::collections::BTreeMap<String, Option<String>>> {
        let keys = keys.map(|keys| keys.iter().map(|key| text(key)).collect());
        let resource = DescribeConfigsResource::default()
            .with_resource_type(resource_type)
            .with_resource_name(text(name))
            .with_configuration_keys(keys);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let response = self.call(Request::DescribeConfigs(request), |_| 0).await?;
        let Response::DescribeConfigs(response) = response else { bail!("another answer") };
        let result = response.results.into_iter().next().context("an empty answer")?;
        ensure!(result.error_code == 0, "{}: {:?}", error_name(result.error_code), result.error_message);
        let entry = |config: protocol::messages::describe_configs_response::DescribeConfigsResourceResult| {
            (config.name.to_string(), config.value.map(|value| value.to_string()))
        };
        Ok(result.configs.into_iter().map(entry).collect())
    }

    /// IncrementalAlterConfigs that sets one key: the error code and message.
    pub async fn set_config(
        &mut self,
        resource_type: i8,
        name: &str,
        key: &str,
        value: &str,
    ) -> Result<(ErrorCode, Option<String>)> {
        let config = AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(0)
            .with_value(Some(text(value)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(resource_type)
            .with_resource_name(text(name))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let code_of = |response: &Response| match response {
            Response::IncrementalAlterConfigs(response) => {
                response.responses.first().map_or(0, |result| result.error_code)
            }
            _ => 0,
        };
        let response = self.call(Request::IncrementalAlterConfigs(request), code_of).await?;
        let Response::IncrementalAlterConfigs(response) = response else { bail!("another answer") };
        let result = response.responses.into_iter().next().context("an empty answer")?;
        let code = ErrorCode::from_code(result.error_code).context("an unknown error code")?;
        Ok((code, result.error_message.map(|message| message.to_string())))
    }
}
