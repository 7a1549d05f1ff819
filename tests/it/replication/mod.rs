//! Replication under faults: the cases P1 to P8, P13, P14 and B1 to B4 of the fault list. What is a rule of pure
//! code (P6, B2) is tested there too.

mod b01_same_directory;
mod b03_emptied_disk;
mod b04_far_behind;
mod links;
mod p01_leader_killed;
mod p02_leader_paused;
mod p03_all_killed;
mod p04_asymmetric_partition;
mod p05_isolated_with_client;
mod p07_rolling_restart;
mod p08_retries;
#[cfg(debug_assertions)]
mod p13_clocks;
mod p14_descriptors;
mod p14_memory;
mod reassignment;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use kagami_tests::client::{Client, Produced, topic_name};
use protocol::messages::ProduceRequest;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::{Request, Response};

/// The last version that names topics.
const PRODUCE_BY_NAME: i16 = 12;

/// One batch with acks=all to exactly this broker, whoever leads by now.
async fn produce_at(
    client: &mut Client,
    address: &str,
    topic: &str,
    batch: Bytes,
    timeout_ms: i32,
) -> Result<Produced> {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    let request =
        ProduceRequest::default().with_acks(-1).with_timeout_ms(timeout_ms).with_topic_data(vec![topic]);
    match client.call_at(address, Request::Produce(request), PRODUCE_BY_NAME).await? {
        Response::Produce(response) => {
            let mut results = response.responses.into_iter().flat_map(|topic| topic.partition_responses);
            let result = results.next().context("an empty answer")?;
            Ok(Produced {
                error_code: result.error_code,
                message: result.error_message.map(|message| message.to_string()),
                base_offset: result.base_offset,
            })
        }
        other => bail!("Produce answered with {other:?}"),
    }
}
