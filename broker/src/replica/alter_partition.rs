//! ISR proposals on their way to the controller: one batch in flight, the rest waits for the next.
//! A partition has at most one proposal at a time, so the queue is bounded by the partitions led here.

use std::collections::BTreeMap;

use common::ids::*;
use parking_lot::Mutex;
use protocol::ErrorCode;

use super::deps::IsrProposalItem;
use super::manager::IsrAnswer;
use super::state::IsrOutcome;

#[derive(Debug, Default)]
pub struct IsrQueue {
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: BTreeMap<TopicIdPartition, IsrProposalItem>,
    in_flight: Option<Vec<IsrProposalItem>>,
    /// To be sent again with the next tick, not at once: whatever was wrong needs a moment.
    later: BTreeMap<TopicIdPartition, IsrProposalItem>,
}

impl IsrQueue {
    /// Queues a proposal; returns the batch to send now, if none is in flight.
    pub fn push(&self, item: IsrProposalItem) -> Option<Vec<IsrProposalItem>> {
        let mut state = self.state.lock();
        state.waiting.insert(item.id, item);
        state.next_batch()
    }

    /// Ends the batch in flight and returns it. Unanswered, its proposals are sent again, unless a newer
    /// one of the same partition waits.
    pub fn answered(&self, answered: bool) -> Vec<IsrProposalItem> {
        let mut state = self.state.lock();
        let finished = state.in_flight.take().unwrap_or_default();
        if !answered {
            for item in &finished {
                state.later.insert(item.id, item.clone());
            }
        }
        finished
    }

    /// A proposal is to be sent again.
    pub fn again(&self, item: IsrProposalItem) {
        self.state.lock().later.insert(item.id, item);
    }

    /// Called every second or so.
    pub fn tick(&self) -> Option<Vec<IsrProposalItem>> {
        let mut state = self.state.lock();
        for (id, item) in std::mem::take(&mut state.later) {
            // What waits may be older: it went here itself while the one made after it was in flight.
            let waits = state.waiting.get(&id);
            if waits.is_none_or(|waits| epochs(waits) < epochs(&item)) {
                state.waiting.insert(id, item);
            }
        }
        state.next_batch()
    }

    pub fn next_batch(&self) -> Option<Vec<IsrProposalItem>> {
        self.state.lock().next_batch()
    }
}

impl QueueState {
    fn next_batch(&mut self) -> Option<Vec<IsrProposalItem>> {
        if self.in_flight.is_some() || self.waiting.is_empty() {
            return None;
        }
        let batch: Vec<IsrProposalItem> = std::mem::take(&mut self.waiting).into_values().collect();
        self.in_flight = Some(batch.clone());
        Some(batch)
    }
}

fn epochs(item: &IsrProposalItem) -> (LeaderEpoch, PartitionEpoch) {
    (item.leader_epoch, item.partition_epoch)
}

/// What an answer means; `None`: the controller could not look at it, send it again.
pub fn isr_outcome(answer: IsrAnswer) -> Option<IsrOutcome> {
    match answer.error {
        ErrorCode::None => Some(IsrOutcome::Committed {
            isr: answer.isr,
            leader_epoch: answer.leader_epoch,
            partition_epoch: answer.partition_epoch,
        }),
        ErrorCode::OperationNotAttempted
        | ErrorCode::IneligibleReplica
        | ErrorCode::InvalidReplicaAssignment
        | ErrorCode::InvalidRequest => Some(IsrOutcome::Refused),
        // The registration it was made on is not the newest: that one decides.
        ErrorCode::InvalidUpdateVersion
        | ErrorCode::NewLeaderElected
        | ErrorCode::FencedLeaderEpoch
        | ErrorCode::NotLeaderOrFollower
        | ErrorCode::UnknownTopicId
        | ErrorCode::UnknownTopicOrPartition => Some(IsrOutcome::Superseded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(partition: i32, partition_epoch: i32) -> IsrProposalItem {
        IsrProposalItem {
            id: TopicIdPartition::new(TopicId(uuid::Uuid::from_u128(1)), partition),
            leader_epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(partition_epoch),
            new_isr: vec![(BrokerId(1), BrokerEpoch(-1))],
        }
    }

    #[test]
    fn one_batch_is_in_flight_and_the_rest_goes_together() {
        let queue = IsrQueue::default();
        assert_eq!(queue.push(item(0, 1)), Some(vec![item(0, 1)]));
        assert_eq!(queue.push(item(1, 1)), None);
        assert_eq!(queue.push(item(2, 1)), None);
        assert_eq!(queue.next_batch(), None);
        assert_eq!(queue.answered(true), vec![item(0, 1)]);
        assert_eq!(queue.next_batch(), Some(vec![item(1, 1), item(2, 1)]));
    }

    #[test]
    fn of_two_unanswered_proposals_the_newer_is_kept() {
        let queue = IsrQueue::default();
        queue.push(item(0, 7));
        queue.answered(false);
        assert_eq!(queue.push(item(0, 8)), Some(vec![item(0, 8)]));
        // While 8 is in flight, 7 comes to wait again.
        assert_eq!(queue.tick(), None);
        queue.answered(false);
        assert_eq!(queue.tick(), Some(vec![item(0, 8)]));
    }

    #[test]
    fn an_unanswered_batch_is_sent_again_unless_something_newer_waits() {
        let queue = IsrQueue::default();
        queue.push(item(0, 1));
        queue.push(item(0, 2));
        assert_eq!(queue.answered(false), vec![item(0, 1)]);
        assert_eq!(queue.next_batch(), Some(vec![item(0, 2)]));
        queue.answered(false);
        assert_eq!(queue.next_batch(), None);
        assert_eq!(queue.tick(), Some(vec![item(0, 2)]));
        queue.answered(true);
        queue.again(item(0, 2));
        assert_eq!(queue.next_batch(), None);
        assert_eq!(queue.push(item(0, 3)), Some(vec![item(0, 3)]));
    }
}
