//! Finds the coordinator of each key, on this broker or on another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::ids::*;
use common::metadata::image::TopicImage;
use common::mirror_state::MIRROR_STATE_TOPIC;
use futures::future::{BoxFuture, join_all};
use protocol::messages::TopicName;
use protocol::mirror::{read_mirror_states, write_mirror_states};
use protocol::{Request, Response, StrBytes};

use crate::coordinator::{CoordinatorError, CoordinatorRecord, CoordinatorRuntime, partition_for};
use crate::mirror::deps::{Metadata, PeerBrokers, StateStore, StateWrite};
use crate::mirror::state::StoreError;

use super::codec::{from_read_state, store_error, to_read_state, to_write_state};
use super::record::{StateEpoch, StateKey, StateRecord};
use super::shard::{MirrorShard, WriteRefusal};

/// Longer than the coordinator itself waits for its replicas.
const CALL_TIMEOUT: Duration = Duration::from_secs(7);

pub struct MirrorStateService {
    broker: BrokerId,
    metadata: Arc<dyn Metadata>,
    runtime: Arc<CoordinatorRuntime<MirrorShard>>,
    peers: Arc<dyn PeerBrokers>,
}

/// Which broker answers for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Here(i32),
    At(BrokerId),
    Nowhere,
}

impl MirrorStateService {
    pub fn new(
        broker: BrokerId,
        metadata: Arc<dyn Metadata>,
        runtime: Arc<CoordinatorRuntime<MirrorShard>>,
        peers: Arc<dyn PeerBrokers>,
    ) -> MirrorStateService {
        MirrorStateService { broker, metadata, runtime, peers }
    }

    fn place(&self, topic: Option<&Arc<TopicImage>>, key: &str) -> Place {
        let Some(topic) = topic else { return Place::Nowhere };
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let partition = partition_for(key, count);
        let leader = usize::try_from(partition)
            .ok()
            .and_then(|index| topic.partitions.get(index))
            .and_then(|partition| partition.registration.leader);
        match leader {
            Some(leader) if leader == self.broker => Place::Here(partition),
            Some(leader) => Place::At(leader),
            None => Place::Nowhere,
        }
    }

    /// The partition of `__mirror_state` that keeps a key.
    pub fn partition_of(&self, key: &str) -> Option<i32> {
        let image = self.metadata.image();
        let topic = image.topic(MIRROR_STATE_TOPIC)?;
        Some(partition_for(key, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)))
    }

    /// Whether the work of a whole mirror (topics, configs) is this broker's (decision 15).
    pub fn coordinates_mirror(&self, mirror: &str) -> bool {
        let image = self.metadata.image();
        matches!(self.place(image.topic(MIRROR_STATE_TOPIC), mirror), Place::Here(_))
    }

    /// Reads in this broker's own shards only; for the API and for keys placed here.
    pub async fn read_here(
        &self,
        keys: Vec<StateKey>,
    ) -> Vec<Result<Result<Option<StateRecord>, String>, CoordinatorError>> {
        let reads = keys.into_iter().map(|key| async move {
            let partition =
                self.partition_of(&key.coordinator_key()).ok_or(CoordinatorError::NotCoordinator)?;
            self.runtime.run(partition, move |shard, _| shard.read(&key).map(|record| record.cloned())).await
        });
        join_all(reads).await
    }

    pub async fn write_here(
        &self,
        writes: Vec<StateWrite>,
    ) -> Vec<Result<Result<StateEpoch, WriteRefusal>, CoordinatorError>> {
        let writes = writes.into_iter().map(|write| async move {
            let partition =
                self.partition_of(&write.key.coordinator_key()).ok_or(CoordinatorError::NotCoordinator)?;
            self.runtime
                .run(partition, move |shard, records| {
                    let (epoch, record) = shard.write(&write)?;
                    records.push(record);
                    Ok(epoch)
                })
                .await
        });
        join_all(writes).await
    }

    /// Tombstones in every shard that this broker serves.
    pub async fn remove_topics_here(&self, mirror: &str, topics: &[String]) -> Result<(), CoordinatorError> {
        let count = self.metadata.image().topic(MIRROR_STATE_TOPIC).map_or(0, |topic| topic.partitions.len());
        for partition in 0..i32::try_from(count).unwrap_or(i32::MAX) {
            if self.runtime.serves(partition) {
                let (mirror, topics) = (mirror.to_owned(), topics.to_vec());
                self.runtime
                    .run(partition, move |shard, records| {
                        records.extend(shard.remove_topics(&mirror, &topics))
                    })
                    .await?;
            }
        }
        Ok(())
    }

    /// Tombstones for a deleted topic in every shard that this broker serves. Lost ones do no harm: what
    /// stays behind is of an association that is over.
    pub async fn forget_here(&self, topic_id: TopicId, up_to: Association) {
        let count = self.metadata.image().topic(MIRROR_STATE_TOPIC).map_or(0, |topic| topic.partitions.len());
        for partition in 0..i32::try_from(count).unwrap_or(i32::MAX) {
            if self.runtime.serves(partition) {
                let forget = move |shard: &MirrorShard, records: &mut Vec<CoordinatorRecord>| {
                    records.extend(shard.forget(topic_id, up_to));
                };
                let _ = self.runtime.run(partition, forget).await;
            }
        }
    }

    /// What this broker's shards have recorded of a mirror.
    pub async fn recorded_here(&self, mirror: &str) -> Vec<(StateKey, StateRecord)> {
        let count = self.metadata.image().topic(MIRROR_STATE_TOPIC).map_or(0, |topic| topic.partitions.len());
        let mut found = Vec::new();
        for partition in 0..i32::try_from(count).unwrap_or(i32::MAX) {
            if self.runtime.serves(partition) {
                let mirror = mirror.to_owned();
                let read = self.runtime.run(partition, move |shard, _| {
                    shard
                        .of_mirror(&mirror)
                        .map(|(key, record)| (key.clone(), record.clone()))
                        .collect::<Vec<_>>()
                });
                found.extend(read.await.unwrap_or_default());
            }
        }
        found
    }

    fn group<'a>(&self, keys: impl Iterator<Item = &'a StateKey>) -> BTreeMap<(Place, Arc<str>), Vec<usize>> {
        let image = self.metadata.image();
        let topic = image.topic(MIRROR_STATE_TOPIC);
        let mut groups: BTreeMap<(Place, Arc<str>), Vec<usize>> = BTreeMap::new();
        for (index, key) in keys.enumerate() {
            let mut place = self.place(topic, &key.coordinator_key());
            if let Place::Here(_) = place {
                // One group for all local shards; each key finds its own.
                place = Place::Here(0);
            }
            groups.entry((place, key.mirror.clone())).or_default().push(index);
        }
        groups
    }

    async fn read_group(
        &self,
        place: Place,
        mirror: &Arc<str>,
        keys: Vec<StateKey>,
    ) -> Vec<Result<Option<StateRecord>, StoreError>> {
        let count = keys.len();
        match place {
            Place::Nowhere => unavailable(count, "no leader of its partition is known"),
            Place::Here(_) => {
                let results = self.read_here(keys).await.into_iter();
                results
                    .map(|result| match result {
                        Ok(Ok(record)) => Ok(record),
                        Ok(Err(why)) => Err(StoreError::Unreadable(why)),
                        Err(error) => Err(StoreError::Unavailable(error.to_string())),
                    })
                    .collect()
            }
            Place::At(broker) => {
                let request = Request::ReadMirrorStates(read_request(mirror, &keys));
                match self.peers.call(broker, request, CALL_TIMEOUT).await {
                    Ok(Response::ReadMirrorStates(answer)) if answer.error_code == 0 => {
                        keys.iter().map(|key| read_answer(&answer, key)).collect()
                    }
                    Ok(Response::ReadMirrorStates(answer)) => {
                        keys.iter().map(|_| Err(store_error(answer.error_code))).collect()
                    }
                    Ok(_) => unavailable(count, "unexpected answer"),
                    Err(why) => unavailable(count, &why),
                }
            }
        }
    }

    async fn write_group(
        &self,
        place: Place,
        mirror: &Arc<str>,
        writes: Vec<StateWrite>,
    ) -> Vec<Result<StateEpoch, StoreError>> {
        let count = writes.len();
        match place {
            Place::Nowhere => unavailable(count, "no leader of its partition is known"),
            Place::Here(_) => {
                let results = self.write_here(writes).await.into_iter();
                results
                    .map(|result| match result {
                        Ok(written) => written.map_err(|refusal| StoreError::from(&refusal)),
                        Err(error) => Err(StoreError::Unavailable(error.to_string())),
                    })
                    .collect()
            }
            Place::At(broker) => {
                let request = Request::WriteMirrorStates(write_request(mirror, &writes));
                match self.peers.call(broker, request, CALL_TIMEOUT).await {
                    Ok(Response::WriteMirrorStates(answer)) if answer.error_code == 0 => {
                        writes.iter().map(|write| write_answer(&answer, &write.key)).collect()
                    }
                    Ok(Response::WriteMirrorStates(answer)) => {
                        writes.iter().map(|_| Err(store_error(answer.error_code))).collect()
                    }
                    Ok(_) => unavailable(count, "unexpected answer"),
                    Err(why) => unavailable(count, &why),
                }
            }
        }
    }
}

fn unavailable<T>(count: usize, why: &str) -> Vec<Result<T, StoreError>> {
    (0..count).map(|_| Err(StoreError::Unavailable(why.to_owned()))).collect()
}

type Answers<T> = Vec<Result<T, StoreError>>;

/// Puts the results of groups back into the order of the keys.
fn scatter<T>(total: usize, groups: Vec<(Vec<usize>, Answers<T>)>) -> Answers<T> {
    let mut results: Vec<_> = unavailable(total, "no answer");
    for (indexes, answers) in groups {
        for (index, answer) in indexes.into_iter().zip(answers) {
            results[index] = answer;
        }
    }
    results
}

impl StateStore for MirrorStateService {
    fn read(&self, keys: Vec<StateKey>) -> BoxFuture<'_, Vec<Result<Option<StateRecord>, StoreError>>> {
        Box::pin(async move {
            let groups = self.group(keys.iter()).into_iter().map(|((place, mirror), indexes)| {
                let group = indexes.iter().map(|index| keys[*index].clone()).collect();
                async move { (indexes, self.read_group(place, &mirror, group).await) }
            });
            scatter(keys.len(), join_all(groups).await)
        })
    }

    fn write(&self, writes: Vec<StateWrite>) -> BoxFuture<'_, Vec<Result<StateEpoch, StoreError>>> {
        Box::pin(async move {
            let groups = self.group(writes.iter().map(|write| &write.key)).into_iter();
            let groups = groups.map(|((place, mirror), indexes)| {
                let group = indexes.iter().map(|index| writes[*index].clone()).collect();
                async move { (indexes, self.write_group(place, &mirror, group).await) }
            });
            scatter(writes.len(), join_all(groups).await)
        })
    }
}

fn name(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// One entry per partition: the topic's name is not needed to find it, its id is.
fn read_request(mirror: &str, keys: &[StateKey]) -> protocol::mirror::ReadMirrorStatesRequest {
    let mut request =
        protocol::mirror::ReadMirrorStatesRequest { mirror_name: name(mirror), ..Default::default() };
    request.need_partition_states = true;
    for key in keys {
        let partition = read_mirror_states::PartitionState {
            partition_index: key.partition,
            topic_id: key.topic_id.0,
            ..Default::default()
        };
        request.topics.push(read_mirror_states::TopicState {
            name: TopicName(StrBytes::default()),
            partitions: vec![partition],
        });
    }
    request
}

fn read_answer(
    answer: &protocol::mirror::ReadMirrorStatesResponse,
    key: &StateKey,
) -> Result<Option<StateRecord>, StoreError> {
    let found = answer.topics.iter().find_map(|topic| {
        let partition = topic.partitions.iter().find(|partition| {
            partition.partition_index == key.partition && partition.topic_id == key.topic_id.0
        })?;
        Some((topic.name.0.as_str(), partition))
    });
    // Left out of an answer is not "nothing recorded".
    let Some((topic, partition)) = found else {
        return Err(StoreError::Unavailable("the answer leaves the partition out".to_owned()));
    };
    from_read_state(&Arc::from(topic), partition)
}

fn write_request(mirror: &str, writes: &[StateWrite]) -> protocol::mirror::WriteMirrorStatesRequest {
    let mut request =
        protocol::mirror::WriteMirrorStatesRequest { mirror_name: name(mirror), ..Default::default() };
    for write in writes {
        request.topics_updated.push(write_mirror_states::TopicState {
            name: TopicName(name(&write.record.topic)),
            partitions: vec![to_write_state(write.key.topic_id, &write.record, write.expected)],
        });
    }
    request
}

fn write_answer(
    answer: &protocol::mirror::WriteMirrorStatesResponse,
    key: &StateKey,
) -> Result<StateEpoch, StoreError> {
    let found =
        answer.topics.iter().flat_map(|topic| &topic.partitions).find(|partition| {
            partition.partition_index == key.partition && partition.topic_id == key.topic_id.0
        });
    match found {
        None => Err(StoreError::Unavailable("the answer leaves the partition out".to_owned())),
        Some(partition) if partition.error_code != 0 => Err(store_error(partition.error_code)),
        Some(partition) => Ok(StateEpoch(partition.state_epoch)),
    }
}

/// What `api/mirror` answers for one partition of ReadMirrorStates.
pub fn read_result(
    key: &StateKey,
    result: Result<Result<Option<StateRecord>, String>, CoordinatorError>,
) -> (Option<Arc<str>>, read_mirror_states::ReadPartitionState) {
    let mut state = to_read_state(key.partition, key.topic_id, None);
    match result {
        Ok(Ok(Some(record))) => {
            let topic = record.topic.clone();
            return (Some(topic), to_read_state(key.partition, key.topic_id, Some(&record)));
        }
        Ok(Ok(None)) => {}
        Ok(Err(_)) => state.error_code = protocol::ErrorCode::CorruptMessage.code(),
        Err(error) => state.error_code = super::codec::coordinator_code(&error).code(),
    }
    (None, state)
}
