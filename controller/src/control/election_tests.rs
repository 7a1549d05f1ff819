use super::*;
use crate::control::testing::*;
use common::ids::TopicIdPartition;
use common::metadata::record::LeaderRecoveryState;

#[test]
fn preferred_leaders_come_back_where_they_are_in_sync() {
    let mut image = with_brokers(&[1, 2]);
    let parts = vec![registration(&[1, 2], &[2, 1], Some(2)), registration(&[2, 1], &[2, 1], Some(2))];
    add_topic(&mut image, "t", topic_id(1), parts);
    let records = elect_preferred(&image, &settings());
    assert_eq!(records.len(), 1);
    replay(&mut image, records);
    assert_eq!(elect_preferred(&image, &settings()), vec![]);
    let id = TopicIdPartition::new(topic_id(1), 0);
    assert_eq!(image.partition(id).unwrap().registration.leader, Some(BrokerId(1)));
}

/// Partitions: 0 led by its preferred replica, 1 led elsewhere, 2 led elsewhere with the preferred one out
/// of sync, 3 without a leader and with a dead ISR, 4 without anybody alive.
fn mixed() -> MetadataImage {
    let mut image = with_brokers(&[1, 2]);
    add_topic(
        &mut image,
        "t",
        topic_id(1),
        vec![
            registration(&[1, 2], &[1, 2], Some(1)),
            registration(&[1, 2], &[1, 2], Some(2)),
            registration(&[1, 2], &[2], Some(2)),
            registration(&[3, 2], &[3], None),
            registration(&[3], &[3], None),
        ],
    );
    image
}

fn codes(results: &[ElectedTopic]) -> Vec<(i32, ErrorCode)> {
    let partitions = results.iter().flat_map(|topic| &topic.partitions);
    let code = |outcome: &Result<(), ControlError>| match outcome {
        Ok(()) => ErrorCode::None,
        Err(error) => error.code,
    };
    partitions.map(|(partition, outcome)| (*partition, code(outcome))).collect()
}

#[test]
fn elections_on_request() {
    use ErrorCode as E;
    let image = mixed();
    let asked = [("t".to_owned(), vec![0, 1, 2, 3, 4, 9, 1]), ("nothing".to_owned(), vec![0])];
    let table = [
        (
            ElectionType::Preferred,
            vec![
                (0, E::ElectionNotNeeded),
                (1, E::None),
                (2, E::PreferredLeaderNotAvailable),
                (3, E::PreferredLeaderNotAvailable),
                (4, E::PreferredLeaderNotAvailable),
                (9, E::UnknownTopicOrPartition),
                (1, E::InvalidRequest),
                (0, E::UnknownTopicOrPartition),
            ],
        ),
        (
            ElectionType::Unclean,
            vec![
                (0, E::ElectionNotNeeded),
                (1, E::ElectionNotNeeded),
                (2, E::ElectionNotNeeded),
                (3, E::None),
                (4, E::EligibleLeadersNotAvailable),
                (9, E::UnknownTopicOrPartition),
                (1, E::InvalidRequest),
                (0, E::UnknownTopicOrPartition),
            ],
        ),
    ];
    for (election, expected) in table {
        let result = elect_leaders(&image, &settings(), election, Some(&asked));
        assert_eq!(codes(&result.response), expected, "{election:?}");
        assert_eq!(result.records.len(), 1);
        // All: what needs no election is not told.
        let all = elect_leaders(&image, &settings(), election, None);
        let told: Vec<_> = expected[..5].iter().filter(|(_, code)| *code != E::ElectionNotNeeded).collect();
        assert_eq!(codes(&all.response).iter().collect::<Vec<_>>(), told);
        assert_eq!(all.records, result.records);
    }
}

#[test]
fn an_election_of_a_replica_out_of_sync_sets_recovering() {
    let mut image = mixed();
    let asked = [("t".to_owned(), vec![3])];
    let result = elect_leaders(&image, &settings(), ElectionType::Unclean, Some(&asked));
    replay(&mut image, result.records);
    let now = &image.partition(TopicIdPartition::new(topic_id(1), 3)).unwrap().registration;
    assert_eq!((now.leader, now.isr.clone()), (Some(BrokerId(2)), ids(&[2])));
    assert_eq!(now.leader_recovery_state, LeaderRecoveryState::Recovering);
}
