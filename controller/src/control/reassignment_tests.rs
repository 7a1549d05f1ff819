use super::*;
use crate::control::partition::{BrokerEvent, IsrProposal, Sender, alter_partitions, broker_changes};
use crate::control::testing::*;
use common::ids::*;
use common::metadata::record::ConfigResourceType;

const UNCLEAN: &str = "unclean.leader.election.enable";

struct Cluster(MetadataImage);

impl Cluster {
    /// Topic `t` on brokers 1 and 2 of five, led by 1.
    fn new() -> Cluster {
        let mut image = with_brokers(&[1, 2, 3, 4, 5]);
        add_topic(&mut image, "t", topic_id(1), vec![registration(&[1, 2], &[1, 2], Some(1))]);
        Cluster(image)
    }

    fn now(&self) -> PartitionRegistration {
        self.0.partition(TopicIdPartition::new(topic_id(1), 0)).unwrap().registration.clone()
    }

    fn alter(&mut self, target: Option<&[i32]>, may_change_factor: bool) -> ErrorCode {
        let asked = Reassignment { topic: "t".to_owned(), partitions: vec![(0, target.map(ids))] };
        let result = alter(&self.0, &settings(), &[asked], may_change_factor);
        if !result.records.is_empty() {
            replay(&mut self.0, result.records);
        }
        result.response[0][0].as_ref().err().map_or(ErrorCode::None, |error| error.code)
    }

    fn isr(&mut self, isr: &[i32]) {
        let now = self.now();
        let leader = now.leader.unwrap();
        let sender = Sender { broker_id: leader, broker_epoch: self.0.brokers[&leader].broker_epoch };
        let proposal = IsrProposal {
            topic_id: topic_id(1),
            partition: 0,
            leader_epoch: now.leader_epoch,
            partition_epoch: now.partition_epoch,
            new_isr: ids(isr).into_iter().map(|member| (member, None)).collect(),
        };
        let result = alter_partitions(&self.0, &settings(), sender, &[proposal]).unwrap();
        result.response[0].as_ref().unwrap();
        replay(&mut self.0, result.records);
    }

    fn lose(&mut self, broker: i32) {
        let records = broker_changes(&self.0, &settings(), BrokerId(broker), BrokerEvent::Gone);
        let epoch = self.0.brokers[&BrokerId(broker)].broker_epoch;
        replay(&mut self.0, records);
        replay(&mut self.0, vec![fence(broker, epoch.0, true)]);
    }

    fn replicas(&self) -> (Vec<i32>, Vec<i32>, Vec<i32>) {
        let numbers = |list: &[BrokerId]| list.iter().map(|id| id.0).collect();
        let now = self.now();
        assert_eq!(now.replicas.len(), now.directories.len());
        (numbers(&now.replicas), numbers(&now.adding_replicas), numbers(&now.removing_replicas))
    }
}

fn moving(replicas: &[i32], adding: &[i32], removing: &[i32]) -> (Vec<i32>, Vec<i32>, Vec<i32>) {
    (replicas.to_vec(), adding.to_vec(), removing.to_vec())
}

#[test]
fn a_partition_moves_once_its_new_replicas_are_in_sync() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.alter(Some(&[3, 4]), true), ErrorCode::None);
    assert_eq!(cluster.replicas(), moving(&[3, 4, 1, 2], &[3, 4], &[1, 2]));
    let begun = cluster.now();
    assert_eq!((begun.leader, begun.isr.clone()), (Some(BrokerId(1)), ids(&[1, 2])));
    assert_eq!(begun.leader_epoch, LeaderEpoch(5), "nobody has gone yet");
    assert_eq!(
        ongoing(&cluster.0, None),
        vec![(
            "t".to_owned(),
            vec![Ongoing {
                partition: 0,
                replicas: ids(&[3, 4, 1, 2]),
                adding: ids(&[3, 4]),
                removing: ids(&[1, 2])
            }]
        )]
    );
    assert_eq!(ongoing(&cluster.0, Some(&[("t".to_owned(), vec![1]), ("u".to_owned(), vec![0])])), vec![]);
    cluster.isr(&[1, 2, 3]);
    assert_eq!(cluster.replicas(), moving(&[3, 4, 1, 2], &[3, 4], &[1, 2]), "4 is still missing");
    cluster.isr(&[1, 2, 3, 4]);
    let done = cluster.now();
    assert_eq!(cluster.replicas(), moving(&[3, 4], &[], &[]));
    assert_eq!(
        (done.leader, done.isr.clone(), done.elr.clone()),
        (Some(BrokerId(3)), ids(&[3, 4]), ids(&[]))
    );
    assert_eq!(done.leader_epoch, LeaderEpoch(6));
    assert_eq!(ongoing(&cluster.0, None), vec![]);
}

#[test]
fn a_leader_that_stays_gets_a_new_epoch_when_others_go() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.alter(Some(&[1, 3]), true), ErrorCode::None);
    cluster.isr(&[1, 2, 3]);
    let done = cluster.now();
    assert_eq!(cluster.replicas(), moving(&[1, 3], &[], &[]));
    assert_eq!((done.leader, done.leader_epoch), (Some(BrokerId(1)), LeaderEpoch(6)));
    // Fewer replicas: nothing has to come first.
    assert_eq!(cluster.alter(Some(&[1]), true), ErrorCode::None);
    assert_eq!(cluster.replicas(), moving(&[1], &[], &[]));
    assert_eq!((cluster.now().isr, cluster.now().leader_epoch), (ids(&[1]), LeaderEpoch(7)));
}

#[test]
fn another_order_changes_who_is_preferred_and_nothing_else() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.alter(Some(&[2, 1]), false), ErrorCode::None);
    assert_eq!(cluster.replicas(), moving(&[2, 1], &[], &[]));
    assert_eq!((cluster.now().leader, cluster.now().leader_epoch), (Some(BrokerId(1)), LeaderEpoch(5)));
}

#[test]
fn a_target_replaces_the_one_before() {
    let mut cluster = Cluster::new();
    cluster.alter(Some(&[1, 3]), true);
    assert_eq!(cluster.alter(Some(&[1, 4]), true), ErrorCode::None);
    assert_eq!(cluster.replicas(), moving(&[1, 4, 2, 3], &[4], &[2, 3]));
    assert_eq!(cluster.alter(Some(&[1, 4, 5]), false), ErrorCode::InvalidReplicationFactor);
    // The same again changes nothing, and what comes goes on coming.
    cluster.alter(Some(&[1, 4]), false);
    assert_eq!(cluster.replicas(), moving(&[1, 4, 2, 3], &[4], &[2, 3]));
    cluster.isr(&[1, 2, 4]);
    assert_eq!(cluster.replicas(), moving(&[1, 4], &[], &[]));
}

#[test]
fn cancelling_goes_back() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.alter(None, true), ErrorCode::NoReassignmentInProgress);
    cluster.alter(Some(&[3, 4]), true);
    cluster.isr(&[1, 2, 3]);
    assert_eq!(cluster.alter(None, true), ErrorCode::None);
    assert_eq!(cluster.replicas(), moving(&[1, 2], &[], &[]));
    assert_eq!(cluster.now().isr, ids(&[1, 2]));
    assert_eq!(cluster.now().leader_epoch, LeaderEpoch(6), "3 fetches no more");
}

#[test]
fn cancelling_never_elects_uncleanly_unless_allowed() {
    let mut cluster = Cluster::new();
    cluster.alter(Some(&[3, 4]), true);
    cluster.isr(&[1, 2, 3]);
    cluster.lose(2);
    cluster.lose(1);
    assert_eq!(cluster.now().isr, ids(&[3]));
    assert_eq!(cluster.alter(None, true), ErrorCode::InvalidReplicaAssignment);
    set_config(&mut cluster.0, ConfigResourceType::Topic, "t", UNCLEAN, Some("true"));
    let epoch = cluster.0.brokers[&BrokerId(2)].broker_epoch;
    replay(&mut cluster.0, vec![fence(2, epoch.0, false)]);
    assert_eq!(cluster.alter(None, true), ErrorCode::None);
    let now = cluster.now();
    assert_eq!((now.leader, now.isr), (Some(BrokerId(2)), ids(&[2])));
    assert_eq!(now.leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn a_recovering_partition_is_not_moved_to_its_end() {
    let mut image = with_brokers(&[1, 2]);
    let mut recovering = registration(&[1, 2], &[1], Some(1));
    recovering.leader_recovery_state = LeaderRecoveryState::Recovering;
    add_topic(&mut image, "t", topic_id(1), vec![recovering]);
    let mut cluster = Cluster(image);
    cluster.alter(Some(&[1]), true);
    assert_eq!(cluster.replicas(), moving(&[1, 2], &[], &[2]));
    let id = TopicIdPartition::new(topic_id(1), 0);
    let record = complete_after_loss(&cluster.0, &settings(), id).unwrap();
    replay(&mut cluster.0, vec![record]);
    assert_eq!(cluster.replicas(), moving(&[1], &[], &[]));
}

#[test]
fn bad_targets_are_refused() {
    let mut cluster = Cluster::new();
    for target in [&[][..], &[1, 1], &[1, 9], &[-1]] {
        assert_eq!(cluster.alter(Some(target), true), ErrorCode::InvalidReplicaAssignment, "{target:?}");
    }
    let unknown = [
        Reassignment { topic: "u".to_owned(), partitions: vec![(0, Some(ids(&[1])))] },
        Reassignment {
            topic: "t".to_owned(),
            partitions: vec![(7, None), (0, Some(ids(&[2, 1]))), (0, None)],
        },
    ];
    let result = alter(&cluster.0, &settings(), &unknown, true);
    let codes: Vec<Vec<Option<ErrorCode>>> = result
        .response
        .iter()
        .map(|topic| topic.iter().map(|outcome| outcome.as_ref().err().map(|error| error.code)).collect())
        .collect();
    let unknown = Some(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(codes, vec![vec![unknown], vec![unknown, None, Some(ErrorCode::InvalidRequest)]]);
}

#[test]
fn below_min_isr_a_replica_that_goes_is_not_eligible_any_more() {
    let mut image = with_brokers(&[1, 2, 3]);
    let mut below = registration(&[1, 2, 3], &[1], Some(1));
    below.elr = ids(&[2, 3]);
    add_topic(&mut image, "t", topic_id(1), vec![below]);
    set_config(&mut image, ConfigResourceType::Topic, "t", "min.insync.replicas", Some("2"));
    let mut cluster = Cluster(image);
    cluster.alter(Some(&[1, 2]), true);
    assert_eq!(cluster.replicas(), moving(&[1, 2], &[], &[]));
    assert_eq!(cluster.now().elr, ids(&[2]));
}
