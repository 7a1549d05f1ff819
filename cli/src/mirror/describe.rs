//! list and describe. With brokers as the target every one is asked, since each knows the offsets of the
//! partitions it leads; the answers are merged. The active controller knows what brokers report to it.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::mirror::describe_mirrors::{DescribeMirrorsRequest, DescribeMirrorsResponse, PartitionDetail};
use protocol::mirror::list_mirrors::ListMirrorsRequest;
use protocol::{ErrorCode, Request, Response, StrBytes};
use serde_json::json;
use uuid::Uuid;

use super::selection::Selection;
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::target::AnyTarget;
use crate::topic::{brokers, unexpected};

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct DescribedPartition {
    pub mirror: String,
    pub topic: String,
    pub topic_id: Uuid,
    pub partition: i32,
    pub source_offset: i64,
    pub destination_offset: i64,
    pub lag: i64,
    pub state: String,
    pub reason: Option<String>,
    pub writable: bool,
}

/// Every partition of the mirror (or of all mirrors), once, in order.
pub async fn describe_all(
    session: &mut Session,
    mirror: Option<&str>,
) -> Result<Vec<DescribedPartition>, Failure> {
    let names = mirror.map(|name| vec![StrBytes::from_string(name.to_owned())]);
    let request = DescribeMirrorsRequest { mirror_names: names, include_authorized_operations: false };
    let mut merged: BTreeMap<(String, String, i32), DescribedPartition> = BTreeMap::new();
    if session.are_controllers() {
        // An inactive controller answers with an error for each mirror.
        let error_of = |response: &Response| match response {
            Response::DescribeMirrors(response) => {
                response.mirrors.first().map_or(0, |mirror| mirror.error_code)
            }
            _ => 0,
        };
        match session.call(Request::DescribeMirrors(request), error_of).await? {
            Response::DescribeMirrors(response) => merge(&mut merged, response)?,
            _ => return Err(unexpected()),
        }
        return Ok(merged.into_values().collect());
    }
    let brokers = brokers(session).await?;
    let mut failures = Vec::new();
    let mut answers = 0;
    for broker in brokers {
        let address = format!("{}:{}", &*broker.host, broker.port);
        match session.call_at(&address, Request::DescribeMirrors(request.clone())).await {
            Ok(Response::DescribeMirrors(response)) => {
                merge(&mut merged, response)?;
                answers += 1;
            }
            Ok(_) => return Err(unexpected()),
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    if answers == 0 {
        return Err(Failure::refused(format!("no broker answered: {}", failures.join("; "))));
    }
    Ok(merged.into_values().collect())
}

fn merge(
    merged: &mut BTreeMap<(String, String, i32), DescribedPartition>,
    response: DescribeMirrorsResponse,
) -> Result<(), Failure> {
    for mirror in response.mirrors {
        let name = mirror.mirror_name.to_string();
        if mirror.error_code != ErrorCode::None.code() {
            let message = mirror.error_message.as_deref();
            return Err(Failure::code(&format!("mirror {name}"), mirror.error_code, message));
        }
        for topic in mirror.topics {
            for detail in topic.partitions {
                let key = (name.clone(), topic.topic_name.to_string(), detail.partition_index);
                let new = described(&name, &key.1, topic.topic_id, detail);
                match merged.get(&key) {
                    // The leader's answer is the one with offsets.
                    Some(old) if old.destination_offset >= 0 || new.destination_offset < 0 => {}
                    _ => {
                        merged.insert(key, new);
                    }
                }
            }
        }
    }
    Ok(())
}

fn described(mirror: &str, topic: &str, topic_id: Uuid, detail: PartitionDetail) -> DescribedPartition {
    DescribedPartition {
        mirror: mirror.to_owned(),
        topic: topic.to_owned(),
        topic_id,
        partition: detail.partition_index,
        source_offset: detail.source_offset,
        destination_offset: detail.destination_offset,
        lag: detail.lag,
        state: detail.state.to_string(),
        reason: detail.reason.map(|reason| reason.to_string()).filter(|reason| !reason.is_empty()),
        writable: detail.writable,
    }
}

pub async fn describe(
    target: AnyTarget,
    mirror: Option<String>,
    topic: Option<String>,
    watch: bool,
) -> Result<(), Failure> {
    let selection = match &topic {
        Some(pattern) => Selection::new(std::slice::from_ref(pattern))?,
        None => Selection::all(),
    };
    loop {
        let mut session = Session::new(target.addresses()?, &target.common)?;
        let mut partitions = describe_all(&mut session, mirror.as_deref()).await?;
        partitions.retain(|partition| selection.contains(&partition.topic));
        print(&partitions, target.common.json)?;
        if !watch {
            return Ok(());
        }
        println!();
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

fn print(partitions: &[DescribedPartition], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let rows = partitions.iter().map(|row| {
            json!({
                "mirror": row.mirror, "topic": row.topic, "partition": row.partition,
                "source_offset": row.source_offset, "destination_offset": row.destination_offset,
                "lag": row.lag, "state": row.state, "reason": row.reason, "writable": row.writable,
            })
        });
        return output::print_json(&rows.collect());
    }
    let with_reasons = partitions.iter().any(|row| row.reason.is_some());
    let mut headings =
        vec!["mirror", "topic", "partition", "source-offset", "destination-offset", "lag", "state"];
    if with_reasons {
        headings.push("reason");
    }
    let rows = partitions.iter().map(|row| {
        let mut cells = vec![
            row.mirror.clone(),
            row.topic.clone(),
            if row.partition < 0 { "-".to_owned() } else { row.partition.to_string() },
            output::known(row.source_offset),
            output::known(row.destination_offset),
            output::known(row.lag),
            row.state.clone(),
        ];
        if with_reasons {
            cells.push(row.reason.clone().unwrap_or_else(|| "-".to_owned()));
        }
        cells
    });
    output::print_table(&headings, rows.collect());
    Ok(())
}

pub async fn list(target: AnyTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let error_of = |response: &Response| match response {
        Response::ListMirrors(response) => response.error_code,
        _ => 0,
    };
    let response = session.call(Request::ListMirrors(ListMirrorsRequest::default()), error_of).await?;
    let Response::ListMirrors(response) = response else { return Err(unexpected()) };
    if response.error_code != 0 {
        return Err(Failure::code("mirrors", response.error_code, response.error_message.as_deref()));
    }
    let source_id = |id: &Option<StrBytes>| id.as_ref().map(|id| id.to_string());
    if target.common.json {
        let rows = response.mirrors.iter().map(|mirror| {
            json!({
                "mirror": mirror.mirror_name.to_string(), "topics": mirror.topic_count,
                "source_bootstrap": mirror.source_bootstrap.to_string(),
                "source_cluster_id": source_id(&mirror.source_cluster_id),
            })
        });
        return output::print_json(&rows.collect());
    }
    let rows = response.mirrors.iter().map(|mirror| {
        vec![
            mirror.mirror_name.to_string(),
            mirror.topic_count.to_string(),
            mirror.source_bootstrap.to_string(),
            source_id(&mirror.source_cluster_id).unwrap_or_else(|| "-".to_owned()),
        ]
    });
    output::print_table(&["mirror", "topics", "source-bootstrap", "source-cluster-id"], rows.collect());
    Ok(())
}
