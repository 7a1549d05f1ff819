//! Subscribes to committed metadata, replays it, and hands each step to the publisher.
//!
//! Nothing is published before the image holds this process's own registration: a part that acted on
//! the image of an earlier life would act on leaderships that are long gone (decision 16).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::ids::{BrokerEpoch, BrokerId, MetadataOffset};
use common::metadata::codec::CodecError;
use common::metadata::{MetadataBatch, MetadataDelta, MetadataImage, codec, snapshot};
use protocol::proto::metadata::metadata_client::MetadataClient;
use protocol::proto::metadata::{SubscribeRequest, SubscribeResponse};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tracing::{debug, info, warn};

use super::controller_channel::ControllerChannel;
use super::publisher::MetadataPublisher;
use super::store::MetadataStore;

/// One answer of the stream: 1 MiB of batches, or a chunk of a snapshot.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Far above any cluster's image; a bound, so that a broken peer cannot fill the memory.
const MAX_SNAPSHOT_BYTES: usize = 1 << 30;
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const MAX_RETRY_INTERVAL: Duration = Duration::from_millis(500);
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long controllers may all say that this broker is ahead of them. Each has asked its quorum, but
/// right after an election it may not yet have replayed its newest entries.
pub const AHEAD_PATIENCE: Duration = Duration::from_secs(2);
/// The snapshot is written when this much came since the last one, or that long ago.
const SAVE_EVERY_BATCHES: i64 = 10_000;
const SAVE_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum LoaderError {
    #[error(
        "this broker has metadata up to offset {offset}, which the controller quorum does not ({refusal}); \
         the quorum was replaced or restored from an older copy: check controller.quorum.voters, \
         or format this broker's directories anew"
    )]
    AheadOfQuorum { offset: MetadataOffset, refusal: String },

    #[error("committed metadata cannot be replayed: {0}; this program may be older than the controllers")]
    Replay(String),

    #[error("another process took over node.id {broker_id}; this one stops")]
    Superseded { broker_id: BrokerId },

    #[error("broker {broker_id} was unregistered; this process stops, and would register as a new broker")]
    Unregistered { broker_id: BrokerId },

    #[error("a part of the broker failed while it applied metadata: {0}")]
    Apply(#[from] JoinError),
}

/// Why a subscription ended.
enum Ended {
    /// Cut off or refused for now: go on with the next controller.
    Retry(String),
    /// The controller says that we are ahead of it.
    Ahead(String),
    Fatal(LoaderError),
}

pub struct MetadataLoader {
    pub broker_id: BrokerId,
    pub channel: Arc<ControllerChannel>,
    pub store: MetadataStore,
    pub publisher: Arc<MetadataPublisher>,
    /// The epoch of this process's registration, `None` until it is registered.
    pub registered: watch::Receiver<Option<BrokerEpoch>>,
    /// Where the lifecycle learns that the image holds the registration and has been applied.
    pub caught_up: watch::Sender<bool>,
    /// [`AHEAD_PATIENCE`]; tests have less.
    pub ahead_patience: Duration,
}

struct Progress {
    image: Arc<MetadataImage>,
    /// The image that the parts of the broker know; `None` before the first publication.
    published: Option<Arc<MetadataImage>>,
    /// The controller of the newest subscription knows what this broker has.
    accepted: bool,
    snapshot: BytesMut,
    saved_offset: MetadataOffset,
    saved_at: Instant,
}

impl MetadataLoader {
    /// Runs until cancelled; then keeps what was learned.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), LoaderError> {
        let store = self.store.clone();
        let image = Arc::new(spawn_blocking(move || store.load()).await?);
        let mut progress = Progress {
            saved_offset: image.offset,
            image,
            published: None,
            accepted: false,
            snapshot: BytesMut::new(),
            saved_at: Instant::now(),
        };
        let outcome = self.follow(&mut progress, &shutdown).await;
        self.save(&mut progress).await?;
        outcome
    }

    async fn follow(
        &mut self,
        progress: &mut Progress,
        shutdown: &CancellationToken,
    ) -> Result<(), LoaderError> {
        let mut next = 0_usize;
        let mut retry_interval = RETRY_INTERVAL;
        let mut ahead_since: Option<Instant> = None;
        let mut ahead_in_a_row = 0_usize;
        // Without a quorum this goes on for hours: each controller's failure is told once until one serves.
        let mut told: HashSet<String> = HashSet::new();
        while !shutdown.is_cancelled() {
            // They may have changed: the quorum's members come and go.
            let controllers = self.channel.channels();
            let (address, channel) = &controllers[next % controllers.len()];
            next += 1;
            let offset_before = progress.image.offset;
            let ended = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                ended = self.subscription(address, channel.clone(), progress) => ended,
            };
            if progress.accepted {
                told.clear();
            }
            if progress.image.offset > offset_before {
                retry_interval = RETRY_INTERVAL;
            }
            // A refusal of another kind clears nothing: only the quorum's leader can say that somebody is ahead
            // of it, and the others send him away in between.
            if progress.accepted {
                ahead_since = None;
                ahead_in_a_row = 0;
            }
            match ended {
                Ended::Fatal(error) => return Err(error),
                Ended::Retry(reason) if progress.accepted => {
                    info!(controller = %address, %reason, "metadata subscription ended, subscribing elsewhere");
                }
                Ended::Retry(reason) if told.insert(address.clone()) => {
                    info!(controller = %address, %reason, "no metadata subscription, trying on");
                }
                Ended::Retry(reason) => debug!(controller = %address, %reason, "no metadata subscription"),
                Ended::Ahead(refusal) => {
                    ahead_in_a_row += 1;
                    let since = *ahead_since.get_or_insert_with(Instant::now);
                    let majority = controllers.len() / 2 + 1;
                    if ahead_in_a_row >= majority && since.elapsed() >= self.ahead_patience {
                        return Err(LoaderError::AheadOfQuorum { offset: progress.image.offset, refusal });
                    }
                    debug!(controller = %address, %refusal, "this controller is behind");
                }
            }
            if next.is_multiple_of(controllers.len()) {
                tokio::select! {
                    () = shutdown.cancelled() => return Ok(()),
                    () = sleep(retry_interval) => {}
                }
                retry_interval = (retry_interval * 2).min(MAX_RETRY_INTERVAL);
            }
        }
        Ok(())
    }

    /// One subscription, from its request to its end.
    async fn subscription(&mut self, address: &str, channel: Channel, progress: &mut Progress) -> Ended {
        progress.snapshot.clear();
        progress.accepted = false;
        let mut client = MetadataClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let request = SubscribeRequest {
            cluster_id: self.channel.cluster_id().to_owned(),
            broker_id: self.broker_id.0,
            offset: progress.image.offset.0,
            term: progress.image.term.0,
        };
        let mut stream = match timeout(SUBSCRIBE_TIMEOUT, client.subscribe(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return ended(&status),
            Err(_) => return Ended::Retry("no answer in time".to_owned()),
        };
        progress.accepted = true;
        info!(controller = %address, offset = progress.image.offset.0, "metadata subscription begins");
        loop {
            match self.next_step(&mut stream, progress).await {
                Ok(()) => {}
                Err(ended) => return ended,
            }
        }
    }

    async fn next_step(
        &mut self,
        stream: &mut Streaming<SubscribeResponse>,
        progress: &mut Progress,
    ) -> Result<(), Ended> {
        let message = tokio::select! {
            message = stream.message() => message,
            // The registration may become known after the image has come to hold it.
            changed = self.registered.changed(), if progress.published.is_none() => {
                if changed.is_err() {
                    return Err(Ended::Retry("the broker stops".to_owned()));
                }
                return self.publish(progress, MetadataDelta::default()).await.map_err(Ended::Fatal);
            }
        };
        let response = match message {
            Ok(Some(response)) => response,
            Ok(None) => return Err(Ended::Retry("the controller ended it".to_owned())),
            Err(status) => return Err(ended(&status)),
        };
        let mut delta = MetadataDelta::default();
        if !response.snapshot.is_empty() || response.snapshot_last {
            self.take_snapshot(&response, progress, &mut delta)?;
        }
        if !response.batches.is_empty() {
            let image = replay(&progress.image, &response.batches, &mut delta)?;
            progress.image = Arc::new(image);
        }
        if !delta.is_empty() || progress.published.as_ref().is_some_and(|p| p.offset != progress.image.offset)
        {
            self.publish(progress, delta).await.map_err(Ended::Fatal)?;
        }
        let batches_since = progress.image.offset.0 - progress.saved_offset.0;
        if batches_since >= SAVE_EVERY_BATCHES
            || (batches_since > 0 && progress.saved_at.elapsed() >= SAVE_EVERY)
        {
            self.save(progress).await.map_err(Ended::Fatal)?;
        }
        Ok(())
    }

    fn take_snapshot(
        &self,
        response: &SubscribeResponse,
        progress: &mut Progress,
        delta: &mut MetadataDelta,
    ) -> Result<(), Ended> {
        if progress.snapshot.len() + response.snapshot.len() > MAX_SNAPSHOT_BYTES {
            return Err(Ended::Retry("its snapshot is larger than any cluster's".to_owned()));
        }
        progress.snapshot.extend_from_slice(&response.snapshot);
        if !response.snapshot_last {
            return Ok(());
        }
        let bytes = std::mem::take(&mut progress.snapshot);
        let image = snapshot::read(&bytes).map_err(|error| match error {
            // As with batches: another controller has no other metadata.
            CodecError::UnknownVersion(_) => Ended::Fatal(LoaderError::Replay(error.to_string())),
            error => Ended::Retry(format!("its snapshot: {error}")),
        })?;
        if image.offset < progress.image.offset {
            return Err(Ended::Retry(format!(
                "its snapshot ends at {}, this broker is at {}",
                image.offset, progress.image.offset
            )));
        }
        // Terms never fall along one log: this is another one, of controllers that a recovery gave up.
        if image.term < progress.image.term {
            return Err(Ended::Retry(format!(
                "its snapshot at {} is of term {}, this broker knows of term {}",
                image.offset, image.term.0, progress.image.term.0
            )));
        }
        info!(offset = image.offset.0, bytes = bytes.len(), "metadata snapshot loaded");
        progress.image = Arc::new(image);
        *delta = MetadataDelta::everything();
        Ok(())
    }

    /// Tells the parts of the broker, once the image holds this process's registration.
    async fn publish(&self, progress: &mut Progress, delta: MetadataDelta) -> Result<(), LoaderError> {
        let after = progress.image.clone();
        let registration = *self.registered.borrow();
        let (before, delta) = match &progress.published {
            Some(before) => (before.clone(), delta),
            None => {
                // A broker's epoch is the offset of its registration record.
                if registration.is_none_or(|epoch| after.offset.0 < epoch.0) {
                    return Ok(());
                }
                (Arc::default(), MetadataDelta::everything())
            }
        };
        // In its successor's image this process would lead, fetch and close its logs in the other's name.
        let own = after.brokers.get(&self.broker_id).map(|broker| broker.broker_epoch);
        if own > registration {
            return Err(LoaderError::Superseded { broker_id: self.broker_id });
        }
        // It was fenced then, and would stay so for ever, its heartbeats refused.
        if own.is_none() && before.brokers.contains_key(&self.broker_id) {
            return Err(LoaderError::Unregistered { broker_id: self.broker_id });
        }
        let publisher = self.publisher.clone();
        let published = after.clone();
        // Applying creates and deletes logs: blocking work.
        spawn_blocking(move || publisher.publish(&before, &delta, &published)).await?;
        let offset = after.offset.0;
        if progress.published.replace(after).is_none() {
            info!(offset, "caught up with the metadata log to this broker's registration");
            self.caught_up.send_replace(true);
        }
        Ok(())
    }

    async fn save(&self, progress: &mut Progress) -> Result<(), LoaderError> {
        if progress.image.offset == progress.saved_offset {
            return Ok(());
        }
        let store = self.store.clone();
        let image = progress.image.clone();
        match spawn_blocking(move || store.save(&image)).await? {
            Ok(()) => progress.saved_offset = progress.image.offset,
            // The quorum has it all: the next start only takes longer.
            Err(error) => warn!(%error, "metadata snapshot not saved"),
        }
        progress.saved_at = Instant::now();
        Ok(())
    }
}

fn ended(status: &tonic::Status) -> Ended {
    let reason = status.message().to_owned();
    if status.code() == Code::OutOfRange { Ended::Ahead(reason) } else { Ended::Retry(reason) }
}

fn replay(
    before: &MetadataImage,
    frames: &[Bytes],
    delta: &mut MetadataDelta,
) -> Result<MetadataImage, Ended> {
    let mut image = before.clone();
    for frame in frames {
        let batches = codec::decode_batches(frame)
            .map_err(|error| Ended::Fatal(LoaderError::Replay(error.to_string())))?;
        for batch in &batches {
            replay_batch(&mut image, batch, delta)?;
        }
    }
    Ok(image)
}

fn replay_batch(
    image: &mut MetadataImage,
    batch: &MetadataBatch,
    delta: &mut MetadataDelta,
) -> Result<(), Ended> {
    // A resumed stream may begin with what is known already.
    if batch.offset <= image.offset {
        return Ok(());
    }
    image.apply(batch, delta).map_err(|error| match error {
        common::metadata::ApplyError::NotSuccessor { .. } => Ended::Retry(format!("a gap: {error}")),
        common::metadata::ApplyError::Contradiction { .. } => {
            Ended::Fatal(LoaderError::Replay(error.to_string()))
        }
    })
}
