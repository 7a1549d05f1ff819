//! Every partition of a mirror, whoever answers. With brokers as the target all of them are asked, since each
//! knows state and offsets of the partitions that it leads; the answers are merged. A partition whose leader
//! does not answer is told of by the others all the same: a failover that left it out would report success.
//! The active controller knows what brokers report to it.

use std::collections::BTreeMap;

use common::mirror_state::MirrorState;
use futures::future::join_all;
use protocol::messages::BrokerId;
use protocol::mirror::describe_mirrors::{DescribeMirrorsRequest, DescribeMirrorsResponse, PartitionDetail};
use protocol::{ErrorCode, Request, Response, StrBytes};
use uuid::Uuid;

use crate::failure::Failure;
use crate::session::Session;
use crate::topic::{brokers, unexpected};

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
    let request = DescribeMirrorsRequest {
        mirror_names: mirror.map(|name| vec![StrBytes::from_string(name.to_owned())]),
        include_authorized_operations: false,
        include_led_elsewhere: true,
    };
    let mut gathered = Gathered::default();
    if session.are_controllers() {
        // An inactive controller answers with an error for each mirror.
        let error_of = |response: &Response| match response {
            Response::DescribeMirrors(response) => {
                response.mirrors.first().map_or(0, |mirror| mirror.error_code)
            }
            _ => 0,
        };
        match session.call(Request::DescribeMirrors(request), error_of).await? {
            Response::DescribeMirrors(response) => gathered.take(Answerer::Controller, response),
            _ => return Err(unexpected()),
        }
        return gathered.partitions();
    }
    let brokers = brokers(session).await?;
    let addresses: Vec<_> =
        brokers.iter().map(|broker| (broker.node_id, format!("{}:{}", &*broker.host, broker.port))).collect();
    let session = &*session;
    // At once: each that hangs would cost the others its time-out.
    let answers = join_all(addresses.iter().map(async |(broker, address)| {
        (*broker, session.call_at(address, Request::DescribeMirrors(request.clone())).await)
    }));
    let mut failures = Vec::new();
    let mut answered = false;
    for (broker, answer) in answers.await {
        match answer {
            Ok(Response::DescribeMirrors(response)) => {
                gathered.take(Answerer::Broker(broker), response);
                answered = true;
            }
            Ok(_) => return Err(unexpected()),
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    if !answered {
        return Err(Failure::refused(format!("no broker answered: {}", failures.join("; "))));
    }
    gathered.partitions()
}

#[derive(Clone, Copy)]
enum Answerer {
    Controller,
    Broker(BrokerId),
}

/// What an answer is worth for a partition: the leader's is the one with state and offsets; of one without a
/// leader its coordinator tells what is recorded; others know no more than that it is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Elsewhere,
    Recorded,
    Leader,
}

fn worth(answerer: Answerer, detail: &PartitionDetail) -> Worth {
    match answerer {
        Answerer::Controller => Worth::Leader,
        Answerer::Broker(broker) if broker == detail.leader_id => Worth::Leader,
        Answerer::Broker(_) if detail.leader_id.0 < 0 && &*detail.state != MirrorState::Unknown.name() => {
            Worth::Recorded
        }
        Answerer::Broker(_) => Worth::Elsewhere,
    }
}

/// Answers as they come, merged.
#[derive(Default)]
struct Gathered {
    partitions: BTreeMap<(String, String, i32), (Worth, DescribedPartition)>,
    /// Some answer knew the mirror: that of a broker that lags behind counts for nothing then.
    known: bool,
    refusal: Option<Failure>,
}

impl Gathered {
    fn take(&mut self, answerer: Answerer, response: DescribeMirrorsResponse) {
        for mirror in response.mirrors {
            let name = mirror.mirror_name.to_string();
            if mirror.error_code != ErrorCode::None.code() {
                let message = mirror.error_message.as_deref();
                self.refusal = Some(Failure::code(&format!("mirror {name}"), mirror.error_code, message));
                continue;
            }
            self.known = true;
            for topic in mirror.topics {
                for detail in topic.partitions {
                    let key = (name.clone(), topic.topic_name.to_string(), detail.partition_index);
                    let worth = worth(answerer, &detail);
                    let new = described(&name, &key.1, topic.topic_id, detail, worth);
                    let better = self.partitions.get(&key).is_none_or(|(had, old)| {
                        (worth, new.destination_offset >= 0) > (*had, old.destination_offset >= 0)
                    });
                    if better {
                        self.partitions.insert(key, (worth, new));
                    }
                }
            }
        }
    }

    fn partitions(self) -> Result<Vec<DescribedPartition>, Failure> {
        match self.refusal {
            Some(refusal) if !self.known => Err(refusal),
            _ => Ok(self.partitions.into_values().map(|(_, partition)| partition).collect()),
        }
    }
}

fn described(
    mirror: &str,
    topic: &str,
    topic_id: Uuid,
    detail: PartitionDetail,
    worth: Worth,
) -> DescribedPartition {
    let reason = match detail.leader_id.0 {
        leader if worth == Worth::Elsewhere && leader >= 0 => {
            Some(format!("broker {leader} leads it and did not answer"))
        }
        _ => detail.reason.map(|reason| reason.to_string()).filter(|reason| !reason.is_empty()),
    };
    DescribedPartition {
        mirror: mirror.to_owned(),
        topic: topic.to_owned(),
        topic_id,
        partition: detail.partition_index,
        source_offset: detail.source_offset,
        destination_offset: detail.destination_offset,
        lag: detail.lag,
        state: detail.state.to_string(),
        reason,
        writable: detail.writable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::messages::TopicName;
    use protocol::mirror::describe_mirrors::{DescribedMirror, TopicPartitions};

    fn detail(partition_index: i32, leader: i32, state: &'static str, destination: i64) -> PartitionDetail {
        PartitionDetail {
            partition_index,
            leader_id: BrokerId(leader),
            state: StrBytes::from_static_str(state),
            destination_offset: destination,
            ..Default::default()
        }
    }

    fn answer(partitions: Vec<PartitionDetail>) -> DescribeMirrorsResponse {
        let topic_name = TopicName(StrBytes::from_static_str("t"));
        let topics = vec![TopicPartitions { topic_name, partitions, ..Default::default() }];
        let mirror = DescribedMirror { mirror_name: "m".into(), topics, ..Default::default() };
        DescribeMirrorsResponse { mirrors: vec![mirror], ..Default::default() }
    }

    fn unknown_mirror() -> DescribeMirrorsResponse {
        let error_code = ErrorCode::UnknownMirror.code();
        let mirror = DescribedMirror { mirror_name: "m".into(), error_code, ..Default::default() };
        DescribeMirrorsResponse { mirrors: vec![mirror], ..Default::default() }
    }

    fn gather(answers: Vec<(i32, DescribeMirrorsResponse)>) -> Result<Vec<DescribedPartition>, Failure> {
        let mut gathered = Gathered::default();
        for (broker, answer) in answers {
            gathered.take(Answerer::Broker(BrokerId(broker)), answer);
        }
        gathered.partitions()
    }

    #[test]
    fn a_partition_whose_leader_does_not_answer_is_there_and_says_why() {
        let by_one = answer(vec![detail(0, 1, "MIRRORING", 7), detail(1, 2, "UNKNOWN", -1)]);
        let partitions = gather(vec![(1, by_one)]).unwrap();
        assert_eq!(partitions.len(), 2);
        assert_eq!(partitions[0].destination_offset, 7);
        assert_eq!(partitions[0].reason, None);
        assert_eq!(partitions[1].state, "UNKNOWN");
        assert_eq!(partitions[1].reason.as_deref(), Some("broker 2 leads it and did not answer"));
    }

    #[test]
    fn the_leaders_answer_counts_in_whatever_order_they_come() {
        let by_one = || (1, answer(vec![detail(0, 2, "UNKNOWN", -1), detail(1, -1, "STOPPED", -1)]));
        let by_two = || (2, answer(vec![detail(0, 2, "FAILED", 3), detail(1, -1, "UNKNOWN", -1)]));
        for answers in [vec![by_one(), by_two()], vec![by_two(), by_one()]] {
            let partitions = gather(answers).unwrap();
            let states: Vec<&str> = partitions.iter().map(|partition| &*partition.state).collect();
            assert_eq!(states, ["FAILED", "STOPPED"], "the coordinator tells of one without a leader");
        }
    }

    #[test]
    fn a_broker_that_lags_behind_does_not_hide_the_mirror() {
        let known = || (1, answer(vec![detail(0, 1, "MIRRORING", 7)]));
        assert_eq!(gather(vec![known(), (2, unknown_mirror())]).unwrap().len(), 1);
        assert_eq!(gather(vec![(2, unknown_mirror()), known()]).unwrap().len(), 1);
        assert!(gather(vec![(1, unknown_mirror()), (2, unknown_mirror())]).is_err());
    }
}
