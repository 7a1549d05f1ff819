//! AssignReplicasToDirs: a broker tells in which directory each of its replicas lies.

use common::ids::{DirectoryId, TopicIdPartition};
use protocol::proto::controller as wire;
use tonic::Status;

use super::{ApiContext, sender, topic_id, uuid};
use crate::control::directories::assign_replicas;

pub async fn assign_directories(
    context: &ApiContext,
    request: wire::AssignReplicasToDirsRequest,
) -> Result<wire::AssignReplicasToDirsResponse, Status> {
    let sender = sender(request.broker_id, request.broker_epoch);
    let replicas = request
        .replicas
        .iter()
        .map(|replica| {
            let id = TopicIdPartition::new(topic_id(&replica.topic_id)?, replica.partition);
            Ok((id, DirectoryId(uuid(&replica.directory)?)))
        })
        .collect::<Result<Vec<_>, Status>>()?;
    let outcome = context
        .controller
        .write("replicas' directories", move |op| assign_replicas(op.image, op.settings, sender, &replicas))
        .await;
    match outcome {
        Ok(committed) => {
            let code = |result: Result<(), crate::control::ControlError>| {
                result.map_or_else(|error| i32::from(error.code.code()), |()| 0)
            };
            let error_codes = committed.response.into_iter().map(code).collect();
            Ok(wire::AssignReplicasToDirsResponse { error_code: 0, error_codes })
        }
        Err(error) => {
            let (error_code, _) = context.refused(error)?;
            Ok(wire::AssignReplicasToDirsResponse { error_code, error_codes: Vec::new() })
        }
    }
}
