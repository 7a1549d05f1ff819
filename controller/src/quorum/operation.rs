//! What is sent to the writer: an operation on the draft, and where its outcome goes.

use common::ids::{MetadataOffset, TopicId};
use common::metadata::{MetadataImage, MetadataRecord};
use thiserror::Error;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::control::heartbeat::Heartbeats;
use crate::control::placement::PlacementSeed;
use crate::control::topic::Randomness;
use crate::control::{ControlError, ControlSettings, ControllerResult};

/// What an operation may use.
pub struct OperationContext<'a> {
    /// The draft.
    pub image: &'a MetadataImage,
    pub settings: &'a ControlSettings,
    /// Soft state.
    pub heartbeats: &'a mut Heartbeats,
    pub now_ms: u64,
    pub random: &'a mut dyn Randomness,
}

/// An answer, and where the log stands with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed<T> {
    pub response: T,
    /// The batch of the request, or the last one before it if it changed nothing.
    pub offset: MetadataOffset,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum WriteError {
    /// Not active, or no longer before it was committed: what was asked has an unknown or no effect.
    #[error("this controller is not active")]
    NotController,
    #[error(transparent)]
    Refused(#[from] ControlError),
}

/// Called once, with the outcome.
pub type Reply = Box<dyn FnOnce(Result<MetadataOffset, WriteError>) + Send>;

/// Records to commit and the reply for them.
pub struct Prepared {
    pub records: Vec<MetadataRecord>,
    pub reply: Reply,
}

/// Decides on the draft; `Err` is a reply that needs no log.
pub type Decide =
    Box<dyn FnOnce(&mut OperationContext<'_>) -> Result<Prepared, Box<dyn FnOnce() + Send>> + Send>;

/// One request to the writer.
pub struct Operation {
    /// Says in the log why something changed.
    pub name: &'static str,
    pub decide: Decide,
    /// Called instead where the controller is not active.
    pub inactive: Box<dyn FnOnce() + Send>,
}

impl Operation {
    /// An operation whose typed outcome is awaited at the returned receiver.
    pub fn new<T: Send + 'static>(
        name: &'static str,
        decide: impl FnOnce(&mut OperationContext<'_>) -> Result<ControllerResult<T>, ControlError>
        + Send
        + 'static,
    ) -> (Operation, oneshot::Receiver<Result<Committed<T>, WriteError>>) {
        let (sender, receiver) = oneshot::channel();
        // Whoever comes first answers: the decision, or the news that there is none to be had here.
        let sender = std::sync::Arc::new(parking_lot::Mutex::new(Some(sender)));
        let answer = move |sender: &parking_lot::Mutex<Option<oneshot::Sender<_>>>, outcome| {
            if let Some(sender) = sender.lock().take() {
                // Nobody waits any more where the connection is gone.
                let _ = sender.send(outcome);
            }
        };
        let for_decide = sender.clone();
        let decide: Decide = Box::new(move |context| match decide(context) {
            Ok(ControllerResult { records, response }) => {
                let reply: Reply = Box::new(move |outcome| {
                    answer(&for_decide, outcome.map(|offset| Committed { response, offset }));
                });
                Ok(Prepared { records, reply })
            }
            Err(error) => Err(Box::new(move || answer(&for_decide, Err(WriteError::Refused(error)))) as _),
        });
        let inactive = Box::new(move || answer(&sender, Err(WriteError::NotController)));
        (Operation { name, decide, inactive }, receiver)
    }

    /// Looks at the draft and the soft state; changes nothing and waits for nothing.
    pub fn read<T: Send + 'static>(
        name: &'static str,
        look: impl FnOnce(&OperationContext<'_>) -> T + Send + 'static,
    ) -> (Operation, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let decide: Decide = Box::new(move |context| {
            // Nobody waits any more where the connection is gone.
            let _ = sender.send(look(context));
            Err(Box::new(|| {}))
        });
        (Operation { name, decide, inactive: Box::new(|| {}) }, receiver)
    }

    /// An operation of the controller's own, which nobody waits for.
    pub fn internal(
        name: &'static str,
        decide: impl FnOnce(&mut OperationContext<'_>) -> Vec<MetadataRecord> + Send + 'static,
    ) -> Operation {
        let decide: Decide =
            Box::new(move |context| Ok(Prepared { records: decide(context), reply: Box::new(|_| {}) }));
        Operation { name, decide, inactive: Box::new(|| {}) }
    }
}

/// The system's random numbers.
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn topic_id(&mut self) -> TopicId {
        loop {
            let id = TopicId(Uuid::new_v4());
            // As Kafka: command lines would take it for an option.
            if !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    fn placement(&mut self) -> PlacementSeed {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        PlacementSeed { start: high as u32, shift: low as u32 }
    }
}
