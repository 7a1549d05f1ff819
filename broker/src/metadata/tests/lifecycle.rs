//! The broker's side of its registration.

use std::sync::Arc;
use std::time::Duration;

use common::ids::{BrokerEpoch, BrokerId, IncarnationId};
use common::metadata::MetadataImage;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::metadata::lifecycle::{ControlledShutdown, Lifecycle, LifecycleError, Registration};
use crate::metadata::{ControllerChannel, MetadataCache, QuorumVoter};

fn lifecycle(voter: QuorumVoter, image: MetadataImage) -> Lifecycle {
    let channel = ControllerChannel::new("cluster".to_owned(), BrokerId(1), &[voter]).expect("address");
    Lifecycle {
        broker_id: BrokerId(1),
        channel: Arc::new(channel),
        cache: Arc::new(MetadataCache::new(Arc::new(image))),
        heartbeat_interval: Duration::from_secs(1),
        session_timeout: Duration::from_secs(9),
        registration_timeout: Duration::from_millis(300),
        registration: Registration {
            incarnation_id: IncarnationId(Uuid::nil()),
            endpoints: Vec::new(),
            inter_broker_endpoint: 0,
            rack: None,
            directories: Vec::new(),
            previous_broker_epoch: BrokerEpoch(-1),
        },
        registered: watch::channel(None).0,
        caught_up: watch::channel(false).1,
        controlled_shutdown: Arc::new(ControlledShutdown::default()),
        offline_directories: watch::channel(Vec::new()).1,
    }
}

#[tokio::test]
async fn a_quorum_that_never_comes_is_waited_for_as_long_as_configured() {
    let nobody = QuorumVoter { node_id: 1, address: "127.0.0.1:1".to_owned() };
    let lifecycle = lifecycle(nobody, MetadataImage::default());
    let outcome =
        tokio::time::timeout(Duration::from_secs(60), lifecycle.run(CancellationToken::new())).await;
    let error = outcome.expect("it does not wait for ever").expect_err("there is nobody");
    assert!(matches!(error, LifecycleError::NotRegistered { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("initial.broker.registration.timeout.ms (300 ms)"), "{message}");
    assert!(message.contains("1@127.0.0.1:1") && message.contains("quorum.listener"), "{message}");
}
