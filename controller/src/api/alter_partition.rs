//! AlterPartition: a leader's ISR changes, each answered with the partition as it is then.

use common::ids::*;
use common::metadata::record::PartitionRegistration;
use protocol::proto::controller as wire;
use tonic::Status;

use super::{ApiContext, sender, topic_id};
use crate::control::ControlError;
use crate::control::partition::{IsrProposal, alter_partitions};

pub async fn alter_partition(
    context: &ApiContext,
    request: wire::AlterPartitionRequest,
) -> Result<wire::AlterPartitionResponse, Status> {
    let proposals = request.partitions.iter().map(proposal).collect::<Result<Vec<IsrProposal>, Status>>()?;
    let sender = sender(request.broker_id, request.broker_epoch);
    let outcome = context
        .controller
        .write("isr change", move |op| alter_partitions(op.image, op.settings, sender, &proposals))
        .await;
    match outcome {
        Ok(committed) => Ok(wire::AlterPartitionResponse {
            error_code: 0,
            partitions: request
                .partitions
                .into_iter()
                .zip(committed.response)
                .map(|(asked, result)| answer(asked, result))
                .collect(),
        }),
        Err(error) => {
            let (error_code, _) = context.refused(error)?;
            Ok(wire::AlterPartitionResponse { error_code, partitions: Vec::new() })
        }
    }
}

fn proposal(asked: &wire::alter_partition_request::Partition) -> Result<IsrProposal, Status> {
    Ok(IsrProposal {
        topic_id: topic_id(&asked.topic_id)?,
        partition: asked.partition,
        leader_epoch: LeaderEpoch(asked.leader_epoch),
        partition_epoch: PartitionEpoch(asked.partition_epoch),
        new_isr: asked
            .new_isr
            .iter()
            .map(|member| {
                let epoch = (member.broker_epoch >= 0).then_some(BrokerEpoch(member.broker_epoch));
                (BrokerId(member.broker_id), epoch)
            })
            .collect(),
    })
}

fn answer(
    asked: wire::alter_partition_request::Partition,
    result: Result<PartitionRegistration, ControlError>,
) -> wire::alter_partition_response::Partition {
    let mut answer = wire::alter_partition_response::Partition {
        topic_id: asked.topic_id,
        partition: asked.partition,
        leader: -1,
        leader_epoch: -1,
        partition_epoch: -1,
        ..Default::default()
    };
    match result {
        Ok(registration) => {
            answer.leader = registration.leader.map_or(-1, |leader| leader.0);
            answer.leader_epoch = registration.leader_epoch.0;
            answer.isr = registration.isr.iter().map(|member| member.0).collect();
            answer.partition_epoch = registration.partition_epoch.0;
        }
        Err(error) => answer.error_code = i32::from(error.code.code()),
    }
    answer
}
