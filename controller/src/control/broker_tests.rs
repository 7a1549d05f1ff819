use super::*;
use super::{fence, register};
use crate::control::testing::*;
use common::metadata::record::{ConfigResourceType, LeaderRecoveryState};
use uuid::Uuid;

fn request(broker: i32, incarnation: u128, previous: Option<i64>) -> Registration {
    let MetadataRecord::RegisterBroker { endpoints, directories, .. } = register_record(broker) else {
        unreachable!()
    };
    Registration {
        broker_id: BrokerId(broker),
        incarnation_id: IncarnationId(Uuid::from_u128(incarnation)),
        endpoints,
        inter_broker_endpoint: 0,
        rack: None,
        directories,
        previous_broker_epoch: previous.map(BrokerEpoch),
    }
}

fn register_record(broker: i32) -> MetadataRecord {
    crate::control::testing::register(broker, None)
}

fn ask(
    image: &MetadataImage,
    request: &Registration,
    liveness: Liveness,
) -> Result<ControllerResult<BrokerEpoch>, ErrorCode> {
    register(image, &settings(), request, &[ControllerId(100)], liveness).map_err(|error| error.code)
}

#[test]
fn a_second_live_process_is_refused_and_a_restarted_one_is_not_kept_waiting() {
    let image = with_brokers(&[1]);
    let second = request(1, 77, None);
    assert_eq!(ask(&image, &second, Liveness::Alive).unwrap_err(), ErrorCode::DuplicateBrokerRegistration);
    let result = ask(&image, &second, Liveness::Gone).unwrap();
    assert_eq!(result.response, BrokerEpoch(image.offset.0 + 1));
    let mut fenced = image.clone();
    replay(&mut fenced, fence(&image, &settings(), BrokerId(1)));
    assert!(ask(&fenced, &second, Liveness::Alive).is_ok(), "a fenced one has lost its place");
}

#[test]
fn the_same_incarnation_gets_its_epoch_again() {
    let image = with_brokers(&[1]);
    let again = ask(&image, &request(1, 2, None), Liveness::Alive).unwrap();
    assert_eq!((again.records.len(), again.response), (0, BrokerEpoch(1)));
}

#[test]
fn registrations_that_make_no_sense() {
    let image = with_brokers(&[1]);
    let cases = vec![
        Registration { broker_id: BrokerId(-1), ..request(1, 5, None) },
        Registration { broker_id: BrokerId(100), ..request(2, 5, None) },
        Registration { inter_broker_endpoint: 3, ..request(2, 5, None) },
        Registration { directories: vec![DirectoryId::ZERO], ..request(2, 5, None) },
        Registration { directories: vec![directory(1)], ..request(2, 5, None) },
    ];
    for case in cases {
        assert_eq!(
            ask(&image, &case, Liveness::Gone).unwrap_err(),
            ErrorCode::InvalidRegistration,
            "{case:?}"
        );
    }
}

#[test]
fn counterexample_24_unclean_restart_leaves_isr_and_elr_and_a_clean_one_does_not() {
    let mut image = with_brokers(&[1]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    let id = TopicIdPartition::new(topic_id(1), 0);
    for (previous, expected) in [
        (Some(1), LeaderRecoveryState::Recovered),
        (None, LeaderRecoveryState::Recovering),
        (Some(0), LeaderRecoveryState::Recovering),
    ] {
        let mut after = image.clone();
        let result = ask(&image, &request(1, 77, previous), Liveness::Gone).unwrap();
        let epoch = result.response;
        replay(&mut after, result.records);
        assert_eq!(after.partition(id).unwrap().registration.leader, None);
        let beat = Heartbeat {
            sender: Sender { broker_id: BrokerId(1), broker_epoch: epoch },
            metadata_offset: after.offset,
            want_fence: false,
            want_shutdown: false,
            offline_directories: Vec::new(),
        };
        let result = heartbeat(&after, &settings(), beat).unwrap();
        assert!(!result.response.fenced);
        replay(&mut after, result.records);
        let partition = &after.partition(id).unwrap().registration;
        assert_eq!(partition.leader, Some(BrokerId(1)));
        assert_eq!(partition.leader_recovery_state, expected, "previous epoch {previous:?}");
    }
}

#[test]
fn unfenced_only_when_caught_up_to_its_registration() {
    let mut image = MetadataImage::default();
    replay(&mut image, vec![]);
    let epoch = BrokerEpoch(replay(&mut image, vec![register_record(1)]).0);
    let beat = |offset| Heartbeat {
        sender: Sender { broker_id: BrokerId(1), broker_epoch: epoch },
        metadata_offset: MetadataOffset(offset),
        want_fence: false,
        want_shutdown: false,
        offline_directories: Vec::new(),
    };
    let early = heartbeat(&image, &settings(), beat(1)).unwrap();
    assert_eq!(early.response, HeartbeatAnswer { caught_up: false, fenced: true, should_shut_down: false });
    assert_eq!(early.records, vec![]);
    let ready = heartbeat(&image, &settings(), beat(2)).unwrap();
    assert_eq!(ready.response, HeartbeatAnswer { caught_up: true, fenced: false, should_shut_down: false });
    let stale =
        Heartbeat { sender: Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1) }, ..beat(2) };
    assert_eq!(heartbeat(&image, &settings(), stale).unwrap_err().code, ErrorCode::StaleBrokerEpoch);
}

#[test]
fn controlled_shutdown_moves_leaders_and_then_lets_go() {
    let mut image = with_brokers(&[1, 2]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1, 2], &[1, 2], Some(1))]);
    let beat = Heartbeat {
        sender: Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1) },
        metadata_offset: image.offset,
        want_fence: false,
        want_shutdown: true,
        offline_directories: Vec::new(),
    };
    let first = heartbeat(&image, &settings(), beat.clone()).unwrap();
    assert!(!first.response.should_shut_down);
    replay(&mut image, first.records);
    let id = TopicIdPartition::new(topic_id(1), 0);
    assert_eq!(image.partition(id).unwrap().registration.leader, Some(BrokerId(2)));
    assert!(!image.brokers[&BrokerId(1)].is_active());
    let second = heartbeat(&image, &settings(), beat.clone()).unwrap();
    assert!(second.response.should_shut_down);
    replay(&mut image, second.records);
    assert!(image.brokers[&BrokerId(1)].fenced);
    let third = heartbeat(&image, &settings(), beat.clone()).unwrap();
    assert!(third.response.should_shut_down && third.records.is_empty());
}

#[test]
fn a_broker_that_asks_for_it_is_fenced() {
    let image = with_brokers(&[1]);
    let beat = Heartbeat {
        sender: Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1) },
        metadata_offset: image.offset,
        want_fence: true,
        want_shutdown: false,
        offline_directories: Vec::new(),
    };
    let result = heartbeat(&image, &settings(), beat.clone()).unwrap();
    assert!(result.response.fenced);
    assert_eq!(result.records.len(), 1);
}

#[test]
fn only_a_stopped_broker_is_unregistered() {
    let mut image = with_brokers(&[1, 2]);
    add_topic(&mut image, "orders", topic_id(7), vec![registration(&[1, 2], &[1, 2], Some(1))]);
    let code =
        |image: &MetadataImage, id| unregister(image, &settings(), BrokerId(id)).map_err(|error| error.code);
    assert_eq!(code(&image, 9).unwrap_err(), ErrorCode::BrokerIdNotRegistered);
    assert_eq!(code(&image, 2).unwrap_err(), ErrorCode::InvalidRequest);
    let records = fence(&image, &settings(), BrokerId(2));
    replay(&mut image, records);
    let records = code(&image, 2).unwrap().records;
    replay(&mut image, records);
    assert!(!image.brokers.contains_key(&BrokerId(2)));
    assert!(ask(&image, &request(2, 5, None), Liveness::Gone).is_ok(), "it may come back as a new one");
}

/// Whoever registers under an id that is not known may have any disk: its place among the eligible leaders was
/// another's (KIP-966).
#[test]
fn an_unregistered_broker_that_comes_back_is_no_eligible_leader() {
    let mut image = with_brokers(&[1, 2, 3]);
    let min_isr = Some("2");
    set_config(&mut image, ConfigResourceType::Broker, "", "min.insync.replicas", min_isr);
    add_topic(&mut image, "orders", topic_id(7), vec![registration(&[1, 2, 3], &[1, 2], Some(1))]);
    let id = TopicIdPartition::new(topic_id(7), 0);
    for broker in [2, 1] {
        let records = fence(&image, &settings(), BrokerId(broker));
        replay(&mut image, records);
    }
    assert_eq!(image.partition(id).unwrap().registration.elr, ids(&[2, 1]));
    let records = unregister(&image, &settings(), BrokerId(2)).unwrap().records;
    replay(&mut image, records);
    for previous in [None, Some(3)] {
        let mut after = image.clone();
        let result = ask(&after, &request(2, 5, previous), Liveness::Gone).unwrap();
        let sender = Sender { broker_id: BrokerId(2), broker_epoch: result.response };
        replay(&mut after, result.records);
        let beat = Heartbeat {
            sender,
            metadata_offset: after.offset,
            want_fence: false,
            want_shutdown: false,
            offline_directories: Vec::new(),
        };
        let records = heartbeat(&after, &settings(), beat).unwrap().records;
        replay(&mut after, records);
        let partition = &after.partition(id).unwrap().registration;
        assert_eq!((partition.leader, &partition.elr), (None, &ids(&[1])), "previous epoch {previous:?}");
    }
}
