use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::ids::{BrokerEpoch, BrokerId, IncarnationId, MetadataOffset, Term};
use common::metadata::{MetadataBatch, MetadataDelta, MetadataImage, MetadataRecord, codec, snapshot};
use parking_lot::Mutex;
use protocol::proto::metadata::SubscribeResponse;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use super::quorum::FakeController;
use crate::metadata::loader::{LoaderError, MetadataLoader};
use crate::metadata::publisher::{MetadataPublisher, MetadataSubscriber};
use crate::metadata::store::MetadataStore;
use crate::metadata::{ControllerChannel, MetadataCache};

fn batch(offset: i64) -> MetadataBatch {
    MetadataBatch {
        term: Term(1),
        offset: MetadataOffset(offset),
        predecessor_term: Term(u64::from(offset > 1)),
        timestamp_ms: 0,
        records: vec![MetadataRecord::FeatureLevel { name: format!("feature.{offset}"), level: 1 }],
    }
}

fn batches(offsets: impl IntoIterator<Item = i64>) -> SubscribeResponse {
    let batches: Vec<MetadataBatch> = offsets.into_iter().map(batch).collect();
    SubscribeResponse { batches: vec![codec::encode_batches(&batches)], ..SubscribeResponse::default() }
}

fn image_at(offset: i64) -> MetadataImage {
    let mut image = MetadataImage::default();
    for offset in 1..=offset {
        image.apply(&batch(offset), &mut MetadataDelta::default()).expect("applies");
    }
    image
}

#[derive(Default)]
struct Seen(Mutex<Vec<(i64, bool, i64)>>);

impl MetadataSubscriber for Seen {
    fn apply_metadata(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        self.0.lock().push((before.offset.0, delta.everything, after.offset.0));
    }
}

struct Run {
    cache: Arc<MetadataCache>,
    seen: Arc<Seen>,
    registered: watch::Sender<Option<BrokerEpoch>>,
    caught_up: watch::Receiver<bool>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), LoaderError>>,
}

async fn run(directory: &Path, controllers: &[Arc<FakeController>]) -> Run {
    run_as(directory, controllers, None).await
}

async fn run_as(
    directory: &Path,
    controllers: &[Arc<FakeController>],
    registration: Option<BrokerEpoch>,
) -> Run {
    let mut voters = Vec::new();
    for controller in controllers {
        voters.push(controller.clone().serve().await);
    }
    let cache = Arc::new(MetadataCache::new(Arc::default()));
    let seen = Arc::new(Seen::default());
    let (registered, registered_receiver) = watch::channel(registration);
    let (caught_up_sender, caught_up) = watch::channel(false);
    let loader = MetadataLoader {
        broker_id: BrokerId(7),
        channel: Arc::new(
            ControllerChannel::new("cluster".to_owned(), BrokerId(7), &voters).expect("addresses"),
        ),
        store: MetadataStore::new(directory),
        publisher: Arc::new(MetadataPublisher::new(
            Arc::new(MetadataCache::new(Arc::default())),
            vec![seen.clone()],
            cache.clone(),
        )),
        registered: registered_receiver,
        caught_up: caught_up_sender,
        ahead_patience: Duration::from_millis(20),
    };
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(loader.run(shutdown.clone()));
    Run { cache, seen, registered, caught_up, shutdown, task }
}

#[tokio::test]
async fn nothing_is_published_before_the_image_holds_the_registration() {
    let directory = tempfile::tempdir().expect("directory");
    let controller = FakeController::new(1, 1);
    *controller.subscriptions.lock() = vec![Ok(vec![batches(1..=2), batches(3..=3), batches(4..=5)])];
    let mut run = run(directory.path(), &[controller]).await;
    run.registered.send_replace(Some(BrokerEpoch(3)));
    run.caught_up.wait_for(|caught_up| *caught_up).await.expect("caught up");
    assert!(run.cache.wait_for(MetadataOffset(5), Duration::from_secs(10)).await);
    run.shutdown.cancel();
    run.task.await.expect("no panic").expect("no error");

    let seen = run.seen.0.lock().clone();
    let (before, everything, first) = seen[0];
    assert!(before == 0 && everything && first >= 3, "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].2 == pair[1].0), "each step follows the last: {seen:?}");
    assert_eq!(MetadataStore::new(directory.path()).load(), image_at(5), "kept for the next run");
}

#[tokio::test]
async fn a_restart_asks_only_for_what_is_new_and_a_cut_stream_goes_on() {
    let directory = tempfile::tempdir().expect("directory");
    MetadataStore::new(directory.path()).save(&image_at(2)).expect("saved");
    let controller = FakeController::new(1, 1);
    *controller.subscriptions.lock() =
        vec![Ok(vec![batches(2..=3)]), Ok(vec![batches(6..=6)]), Ok(vec![batches(4..=6)])];
    let run = run(directory.path(), std::slice::from_ref(&controller)).await;
    run.registered.send_replace(Some(BrokerEpoch(1)));
    assert!(run.cache.wait_for(MetadataOffset(6), Duration::from_secs(10)).await);
    run.shutdown.cancel();
    run.task.await.expect("no panic").expect("no error");
    assert_eq!(*controller.subscribed_from.lock(), [2, 3, 3], "a gap is not replayed over");
}

#[tokio::test]
async fn a_snapshot_replaces_the_image() {
    let directory = tempfile::tempdir().expect("directory");
    MetadataStore::new(directory.path()).save(&image_at(2)).expect("saved");
    let bytes = snapshot::write(&image_at(9));
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    let chunk = |bytes: &[u8], snapshot_last| SubscribeResponse {
        snapshot: bytes.to_vec().into(),
        snapshot_last,
        ..SubscribeResponse::default()
    };
    let controller = FakeController::new(1, 1);
    *controller.subscriptions.lock() =
        vec![Ok(vec![chunk(head, false), chunk(tail, true), batches(10..=10)])];
    let run = run(directory.path(), &[controller]).await;
    run.registered.send_replace(Some(BrokerEpoch(4)));
    assert!(run.cache.wait_for(MetadataOffset(10), Duration::from_secs(10)).await);
    assert_eq!(*run.cache.image(), image_at(10));
    run.shutdown.cancel();
    run.task.await.expect("no panic").expect("no error");
}

/// Of controllers that a recovery gave up, and that go on among themselves.
#[tokio::test]
async fn a_snapshot_of_an_earlier_term_is_not_followed() {
    let directory = tempfile::tempdir().expect("directory");
    let mut known = image_at(2);
    let recovered = MetadataBatch { term: Term(1_001), ..batch(3) };
    known.apply(&recovered, &mut MetadataDelta::default()).expect("applies");
    MetadataStore::new(directory.path()).save(&known).expect("saved");
    let controller = FakeController::new(1, 1);
    let later = SubscribeResponse {
        snapshot: snapshot::write(&image_at(9)).into(),
        snapshot_last: true,
        ..SubscribeResponse::default()
    };
    let next = MetadataBatch { term: Term(1_001), predecessor_term: Term(1_001), ..batch(4) };
    let batches = vec![codec::encode_batches(&[next])];
    let goes_on = SubscribeResponse { batches, ..SubscribeResponse::default() };
    *controller.subscriptions.lock() = vec![Ok(vec![later]), Ok(vec![goes_on])];
    let run = run(directory.path(), std::slice::from_ref(&controller)).await;
    run.registered.send_replace(Some(BrokerEpoch(1)));
    assert!(run.cache.wait_for(MetadataOffset(4), Duration::from_secs(10)).await);
    assert_eq!(run.cache.image().term, Term(1_001));
    run.shutdown.cancel();
    run.task.await.expect("no panic").expect("no error");
    assert_eq!(*controller.subscribed_from.lock(), [3, 3]);
}

#[tokio::test]
async fn a_broker_ahead_of_the_quorum_stops_with_an_error() {
    let directory = tempfile::tempdir().expect("directory");
    MetadataStore::new(directory.path()).save(&image_at(2)).expect("saved");
    let behind = FakeController::new(1, 1);
    *behind.subscriptions.lock() = vec![Err(Status::out_of_range("this quorum is at 1"))];
    let run = run(directory.path(), &[behind]).await;
    let outcome = run.task.await.expect("no panic");
    assert!(matches!(outcome, Err(LoaderError::AheadOfQuorum { .. })), "{outcome:?}");
}

/// What was said before a subscription that went well says nothing about later.
#[tokio::test]
async fn a_controller_that_knows_what_the_broker_has_clears_the_suspicion() {
    let directory = tempfile::tempdir().expect("directory");
    MetadataStore::new(directory.path()).save(&image_at(2)).expect("saved");
    let controller = FakeController::new(1, 1);
    let behind = || Err(Status::out_of_range("this quorum is at 1"));
    // Nothing happens in an idle cluster: no batch comes in between.
    *controller.subscriptions.lock() = vec![behind(), Ok(Vec::new()), behind(), Ok(vec![batches(3..=3)])];
    let run = run(directory.path(), std::slice::from_ref(&controller)).await;
    run.registered.send_replace(Some(BrokerEpoch(1)));
    assert!(run.cache.wait_for(MetadataOffset(3), Duration::from_secs(10)).await);
    run.shutdown.cancel();
    run.task.await.expect("no panic").expect("no error");
}

fn of_record(offset: i64, record: MetadataRecord) -> SubscribeResponse {
    let batch = MetadataBatch { records: vec![record], ..batch(offset) };
    SubscribeResponse { batches: vec![codec::encode_batches(&[batch])], ..SubscribeResponse::default() }
}

fn registers(offset: i64, process: u128) -> SubscribeResponse {
    let record = MetadataRecord::RegisterBroker {
        broker_id: BrokerId(7),
        incarnation_id: IncarnationId(Uuid::from_u128(process)),
        endpoints: Vec::new(),
        rack: None,
        directories: Vec::new(),
        inter_broker_endpoint: 0,
    };
    of_record(offset, record)
}

/// It would be a process that answers, and that nobody ever uses again.
#[tokio::test]
async fn a_process_whose_broker_was_unregistered_stops() {
    let directory = tempfile::tempdir().expect("directory");
    let controller = FakeController::new(1, 1);
    let gone = MetadataRecord::UnregisterBroker { broker_id: BrokerId(7), broker_epoch: BrokerEpoch(1) };
    *controller.subscriptions.lock() = vec![Ok(vec![registers(1, 1), of_record(2, gone)])];
    let mut run = run_as(directory.path(), &[controller], Some(BrokerEpoch(1))).await;
    let outcome = tokio::time::timeout(Duration::from_secs(10), &mut run.task).await;
    let outcome = outcome.expect("it goes on").expect("no panic");
    assert!(matches!(outcome, Err(LoaderError::Unregistered { broker_id: BrokerId(7) })), "{outcome:?}");
}

/// The image of its successor would have it act in the successor's name.
#[tokio::test]
async fn a_process_that_was_replaced_stops_before_it_applies_that() {
    for at_once in [false, true] {
        let directory = tempfile::tempdir().expect("directory");
        let controller = FakeController::new(1, 1);
        let mut steps = vec![registers(1, 1), batches(2..=2), registers(3, 2), batches(4..=4)];
        if at_once {
            let batches = steps.into_iter().flat_map(|step| step.batches).collect();
            steps = vec![SubscribeResponse { batches, ..SubscribeResponse::default() }];
        }
        *controller.subscriptions.lock() = vec![Ok(steps)];
        let mut run = run_as(directory.path(), &[controller], Some(BrokerEpoch(1))).await;
        let outcome = tokio::time::timeout(Duration::from_secs(10), &mut run.task).await;
        let outcome = outcome.expect("it goes on").expect("no panic");
        assert!(matches!(outcome, Err(LoaderError::Superseded { broker_id: BrokerId(7) })), "{outcome:?}");
        assert!(run.seen.0.lock().iter().all(|(_, _, after)| *after < 3), "{:?}", run.seen.0.lock());
    }
}

#[tokio::test]
async fn b05_metadata_of_a_later_version_stops_the_broker_and_is_not_skipped() {
    let frame = |offset| codec::encode_batches(&[batch(offset)]);
    let later = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[0] = 99;
        bytes.into()
    };
    let response = |batches| SubscribeResponse { batches, ..SubscribeResponse::default() };
    let unreadable = SubscribeResponse {
        snapshot: later(&snapshot::write(&image_at(9))),
        snapshot_last: true,
        ..SubscribeResponse::default()
    };
    for messages in [
        // Offset 3 and what comes after it are there, and must not be reached.
        vec![response(vec![frame(1), frame(2)]), response(vec![later(&frame(3)), frame(4)]), batches(3..=5)],
        vec![response(vec![frame(1), frame(2)]), unreadable, batches(3..=5)],
    ] {
        let directory = tempfile::tempdir().expect("directory");
        let controller = FakeController::new(1, 1);
        *controller.subscriptions.lock() = vec![Ok(messages)];
        let run = run(directory.path(), &[controller]).await;
        run.registered.send_replace(Some(BrokerEpoch(1)));
        let outcome = run.task.await.expect("no panic");
        let Err(LoaderError::Replay(reason)) = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("version 99"), "{reason}");
        assert!(run.cache.image().offset <= MetadataOffset(2), "{}", run.cache.image().offset);
    }
}
