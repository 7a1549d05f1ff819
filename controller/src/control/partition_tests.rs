use super::*;
use crate::control::testing::*;

fn image() -> MetadataImage {
    let mut image = with_brokers(&[1, 2, 3]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1, 2, 3], &[1, 2, 3], Some(1))]);
    image
}

fn epoch_of(image: &MetadataImage, broker: i32) -> BrokerEpoch {
    image.brokers.get(&BrokerId(broker)).unwrap().broker_epoch
}

fn proposal(image: &MetadataImage, isr: &[i32]) -> IsrProposal {
    let current = &image.partition(TopicIdPartition::new(topic_id(1), 0)).unwrap().registration;
    IsrProposal {
        topic_id: topic_id(1),
        partition: 0,
        leader_epoch: current.leader_epoch,
        partition_epoch: current.partition_epoch,
        new_isr: isr
            .iter()
            .map(|member| (BrokerId(*member), image.brokers.get(&BrokerId(*member)).map(|b| b.broker_epoch)))
            .collect(),
    }
}

fn alter(image: &MetadataImage, proposal: IsrProposal) -> Result<PartitionRegistration, ErrorCode> {
    let sender = Sender { broker_id: BrokerId(1), broker_epoch: epoch_of(image, 1) };
    let result = alter_partitions(image, &settings(), sender, &[proposal]).unwrap();
    result.response.into_iter().next().unwrap().map_err(|error| error.code)
}

#[test]
fn isr_changes_are_fenced_in_every_way() {
    let mut image = image();
    let epoch = epoch_of(&image, 3).0;
    replay(&mut image, vec![fence(3, epoch, true)]);
    let base = proposal(&image, &[1, 2]);
    assert_eq!(alter(&image, base.clone()).unwrap().isr, ids(&[1, 2]));
    let cases: Vec<(&str, IsrProposal, ErrorCode)> = vec![
        ("unknown id", IsrProposal { topic_id: topic_id(9), ..base.clone() }, ErrorCode::UnknownTopicId),
        ("partition", IsrProposal { partition: 4, ..base.clone() }, ErrorCode::UnknownTopicOrPartition),
        (
            "old leader",
            IsrProposal { leader_epoch: LeaderEpoch(4), ..base.clone() },
            ErrorCode::FencedLeaderEpoch,
        ),
        (
            "future leader",
            IsrProposal { leader_epoch: LeaderEpoch(6), ..base.clone() },
            ErrorCode::NotController,
        ),
        (
            "old partition epoch",
            IsrProposal { partition_epoch: PartitionEpoch(6), ..base.clone() },
            ErrorCode::InvalidUpdateVersion,
        ),
        (
            "future partition epoch",
            IsrProposal { partition_epoch: PartitionEpoch(8), ..base.clone() },
            ErrorCode::NotController,
        ),
        ("without the leader", proposal(&image, &[2]), ErrorCode::InvalidRequest),
        ("no replica", proposal(&image, &[1, 4]), ErrorCode::InvalidRequest),
        ("twice", proposal(&image, &[1, 1]), ErrorCode::InvalidRequest),
        ("fenced", proposal(&image, &[1, 2, 3]), ErrorCode::IneligibleReplica),
        (
            "earlier incarnation",
            IsrProposal {
                new_isr: vec![(BrokerId(1), None), (BrokerId(2), Some(BrokerEpoch(0)))],
                ..base.clone()
            },
            ErrorCode::IneligibleReplica,
        ),
    ];
    for (name, proposal, expected) in cases {
        assert_eq!(alter(&image, proposal).unwrap_err(), expected, "{name}");
    }
    let future = Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(99) };
    assert_eq!(
        alter_partitions(&image, &settings(), future, std::slice::from_ref(&base)).unwrap_err().code,
        ErrorCode::NotController
    );
    let stale = Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(0) };
    assert_eq!(
        alter_partitions(&image, &settings(), stale, &[base]).unwrap_err().code,
        ErrorCode::StaleBrokerEpoch
    );
}

/// B2 of the fault list: a broker has restarted, and what its earlier life sent arrives afterwards.
#[test]
fn b02_requests_of_an_earlier_incarnation_change_nothing() {
    let mut image = image();
    let old = |broker: i32, image: &MetadataImage| Sender {
        broker_id: BrokerId(broker),
        broker_epoch: epoch_of(image, broker),
    };
    // The leader restarts: its own late AlterPartition and heartbeat.
    let (leader, late) = (old(1, &image), proposal(&image, &[1, 2]));
    let mut again = register(1, None);
    if let MetadataRecord::RegisterBroker { incarnation_id, .. } = &mut again {
        *incarnation_id = IncarnationId(uuid::Uuid::from_u128(77));
    }
    replay(&mut image, vec![again]);
    let refused = alter_partitions(&image, &settings(), leader, std::slice::from_ref(&late));
    assert_eq!(refused.unwrap_err().code, ErrorCode::StaleBrokerEpoch);
    for (want_fence, want_shutdown) in [(false, false), (true, false), (false, true)] {
        let beat = crate::control::broker::Heartbeat {
            sender: leader,
            metadata_offset: image.offset,
            want_fence,
            want_shutdown,
            offline_directories: Vec::new(),
        };
        let refused = crate::control::broker::heartbeat(&image, &settings(), beat);
        assert_eq!(refused.unwrap_err().code, ErrorCode::StaleBrokerEpoch);
    }
    // A follower restarts: the leader saw its earlier life in sync (KIP-903).
    let mut image = self::image();
    let seen = proposal(&image, &[1, 2, 3]);
    replay(&mut image, vec![register(2, None)]);
    let epoch = epoch_of(&image, 2);
    replay(&mut image, vec![fence(2, epoch.0, false)]);
    assert_eq!(alter(&image, seen).unwrap_err(), ErrorCode::IneligibleReplica);
}

#[test]
fn only_the_leader_changes_the_isr() {
    let image = image();
    let sender = Sender { broker_id: BrokerId(2), broker_epoch: epoch_of(&image, 2) };
    let result = alter_partitions(&image, &settings(), sender, &[proposal(&image, &[1, 2])]).unwrap();
    assert_eq!(result.records, vec![]);
    assert_eq!(result.response[0].as_ref().unwrap_err().code, ErrorCode::NotLeaderOrFollower);
}

#[test]
fn counterexample_18_late_alter_partition_after_recreation_with_the_same_id() {
    let mut image = image();
    let late = proposal(&image, &[1, 2]);
    replay(&mut image, vec![MetadataRecord::RemoveTopic { topic_id: topic_id(1) }]);
    let mut again = registration(&[1, 2, 3], &[1, 2, 3], Some(1));
    again.leader_epoch = LeaderEpoch(6);
    again.partition_epoch = PartitionEpoch(8);
    add_topic(&mut image, "t", topic_id(1), vec![again]);
    assert_eq!(alter(&image, late).unwrap_err(), ErrorCode::FencedLeaderEpoch);
}

#[test]
fn fencing_and_return_of_a_broker() {
    let mut image = image();
    let records = broker_changes(&image, &settings(), BrokerId(1), BrokerEvent::Gone);
    assert_eq!(records.len(), 1);
    replay(&mut image, records);
    let id = TopicIdPartition::new(topic_id(1), 0);
    let now = image.partition(id).unwrap().registration.clone();
    assert_eq!((now.leader, now.isr.clone()), (Some(BrokerId(2)), ids(&[2, 3])));
    assert_eq!(broker_changes(&image, &settings(), BrokerId(1), BrokerEvent::Unfenced), vec![]);
}

#[test]
fn lower_min_isr_forgets_who_was_eligible() {
    let mut image = with_brokers(&[1]);
    let mut shrunk = registration(&[1, 2], &[1], Some(1));
    shrunk.elr = ids(&[2]);
    add_topic(&mut image, "t", topic_id(1), vec![shrunk]);
    let scope = Scope { all: false, topics: ["t".to_owned()].into() };
    let records = after_config_change(&image, &settings(), &scope, &Scope::default());
    replay(&mut image, records);
    let id = TopicIdPartition::new(topic_id(1), 0);
    assert_eq!(image.partition(id).unwrap().registration.elr, ids(&[]));
}
