//! `kagami verify`: the bytes of source and mirror compared, by the leaders of the partitions.

use std::collections::BTreeMap;

use clap::Args;
use protocol::messages::TopicName;
use protocol::mirror::verify_mirror::{VerifyMirrorRequest, VerifyTopic};
use protocol::{Request, Response, StrBytes};
use serde_json::json;

use crate::failure::Failure;
use crate::mirror::{Selection, describe_all};
use crate::output;
use crate::session::Session;
use crate::target::ServerTarget;
use crate::topic::{metadata, unexpected};

#[derive(Args)]
pub struct VerifyCommand {
    #[command(flatten)]
    target: ServerTarget,
    #[arg(long)]
    mirror: String,
    /// A regular expression over whole topic names.
    #[arg(long, value_name = "REGEX")]
    topic: Option<String>,
}

pub async fn run(command: VerifyCommand) -> Result<(), Failure> {
    let selection = match &command.topic {
        Some(pattern) => Selection::new(std::slice::from_ref(pattern))?,
        None => Selection::all(),
    };
    let mut session = Session::new(command.target.addresses()?, &command.target.common)?;
    let partitions = describe_all(&mut session, Some(&command.mirror)).await?;
    let mut topics: BTreeMap<String, ()> = BTreeMap::new();
    for partition in partitions.iter().filter(|partition| selection.contains(&partition.topic)) {
        topics.insert(partition.topic.clone(), ());
    }
    if topics.is_empty() {
        return Err(Failure::refused(format!("no topic of mirror {} matches", command.mirror)));
    }
    let mut rows = Vec::new();
    let mut failed = 0;
    for topic in topics.keys() {
        for (address, partitions) in leaders(&mut session, topic).await? {
            let verify = VerifyTopic { name: TopicName(StrBytes::from_string(topic.clone())), partitions };
            let request = VerifyMirrorRequest {
                mirror_name: StrBytes::from_string(command.mirror.clone()),
                topics: vec![verify],
            };
            let Response::VerifyMirror(response) =
                session.call_at(&address, Request::VerifyMirror(request)).await?
            else {
                return Err(unexpected());
            };
            if response.error_code != 0 {
                let message = response.error_message.as_deref();
                return Err(Failure::code(&format!("verify at {address}"), response.error_code, message));
            }
            for verified in response.topics.into_iter().flat_map(|topic| topic.partitions) {
                let error = (verified.error_code != 0).then(|| {
                    Failure::code("failed", verified.error_code, verified.error_message.as_deref())
                        .to_string()
                });
                let holds = error.is_none() && verified.differing == 0 && verified.missing == 0;
                failed += i32::from(!holds);
                rows.push(json!({
                    "topic": topic, "partition": verified.partition_index,
                    "from": verified.from, "to": verified.to, "equal": verified.equal,
                    "compacted": verified.compacted, "differing": verified.differing,
                    "missing": verified.missing, "first_difference": verified.first_difference,
                    "result": error.unwrap_or_else(|| if holds { "equal" } else { "DIFFERENT" }.to_owned()),
                }));
            }
        }
    }
    rows.sort_by_key(|row| (row["topic"].to_string(), row["partition"].as_i64()));
    if command.target.common.json {
        output::print_json(&json!(rows))?;
    } else {
        let columns =
            ["topic", "partition", "from", "to", "equal", "compacted", "differing", "missing", "result"];
        let cell =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let table = rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect());
        output::print_table(&columns, table.collect());
    }
    if failed > 0 {
        return Err(Failure::refused(format!(
            "{failed} of {} partitions differ from the source",
            rows.len()
        )));
    }
    Ok(())
}

/// The partitions of a topic by the address of their leader.
async fn leaders(session: &mut Session, topic: &str) -> Result<BTreeMap<String, Vec<i32>>, Failure> {
    let response = metadata(session, Some(topic)).await?;
    let addresses: BTreeMap<i32, String> = response
        .brokers
        .iter()
        .map(|broker| (broker.node_id.0, format!("{}:{}", &*broker.host, broker.port)))
        .collect();
    let mut by_leader: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
        let address = addresses.get(&partition.leader_id.0).ok_or_else(|| {
            Failure::refused(format!("{topic}-{} has no leader", partition.partition_index))
        })?;
        by_leader.entry(address.clone()).or_default().push(partition.partition_index);
    }
    Ok(by_leader)
}
