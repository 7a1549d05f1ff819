//! `kagami quorum describe`: who leads, who follows, how far.

use protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use protocol::messages::{DescribeQuorumRequest, TopicName, describe_quorum_response};
use protocol::{Request, Response, StrBytes};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::target::AnyTarget;
use crate::topic::unexpected;

/// Kafka's name of the metadata log.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// The quorum as its leader has it.
pub async fn ask(session: &mut Session) -> Result<describe_quorum_response::PartitionData, Failure> {
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str(METADATA_TOPIC)))
        .with_partitions(vec![PartitionData::default().with_partition_index(0)]);
    let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
    let error_of = |response: &Response| match response {
        Response::DescribeQuorum(response) => match response.error_code {
            0 => {
                let partition = response.topics.first().and_then(|topic| topic.partitions.first());
                partition.map_or(0, |partition| partition.error_code)
            }
            code => code,
        },
        _ => 0,
    };
    let response = session.call(Request::DescribeQuorum(request), error_of).await?;
    let code = error_of(&response);
    let Response::DescribeQuorum(response) = response else { return Err(unexpected()) };
    if code != 0 {
        return Err(Failure::code("quorum", code, response.error_message.as_deref()));
    }
    let partition = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
    partition.ok_or_else(unexpected)
}

pub async fn run(target: AnyTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let partition = ask(&mut session).await?;
    let leader = partition.leader_id.0;
    let voters = partition.current_voters.iter().map(|voter| (voter, "voter"));
    let nodes = voters.chain(partition.observers.iter().map(|observer| (observer, "observer")));
    let rows: Vec<_> = nodes
        .map(|(node, role)| {
            let role = if node.replica_id.0 == leader { "leader" } else { role };
            json!({
                "node": node.replica_id.0,
                "directory_id": common::ids::DirectoryId(node.replica_directory_id).to_string(),
                "role": role,
                "log_end_offset": node.log_end_offset,
                "lag": (partition.high_watermark - node.log_end_offset).max(0),
            })
        })
        .collect();
    if target.common.json {
        return output::print_json(&json!({
            "leader": leader,
            "leader_epoch": partition.leader_epoch,
            "high_watermark": partition.high_watermark,
            "nodes": rows,
        }));
    }
    println!(
        "Leader: {leader}  Epoch: {}  HighWatermark: {}",
        partition.leader_epoch, partition.high_watermark
    );
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let columns = ["node", "directory_id", "role", "log_end_offset", "lag"];
    let table = rows.iter().map(|row| columns.iter().map(|column| text(&row[*column])).collect()).collect();
    output::print_table(&["node", "directory-id", "role", "log-end-offset", "lag"], table);
    Ok(())
}
