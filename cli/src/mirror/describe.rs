//! list and describe.

use std::time::Duration;

use protocol::mirror::list_mirrors::ListMirrorsRequest;
use protocol::{Request, Response, StrBytes};
use serde_json::json;

use super::gather::{DescribedPartition, describe_all};
use super::selection::Selection;
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::target::AnyTarget;
use crate::topic::unexpected;

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

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
