//! Which recovery of the quorum this voter belongs to. `kagami quorum recover` gives voters up for good; one
//! that comes back all the same must neither be heard nor be able to go on without those that are left.
//! So every call carries the number of the recovery that its sender belongs to: a lower one is refused,
//! and whoever learns of a higher one than its own stops, and says so at each start from then on. Only an
//! empty controller, which knows nothing yet, takes the number of those who take it in.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio::sync::watch;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::recovery::Recovered;
use crate::store::Store;

/// With a refusal: the number of the recovery that gave the caller up.
const RECOVERY_KEY: &str = "kagami-recovery";

#[derive(Clone)]
pub(crate) struct Lineage {
    store: Store,
    /// The recovery that this voter does not belong to.
    given_up: Arc<watch::Sender<Option<u64>>>,
}

impl Lineage {
    pub fn new(store: Store) -> Lineage {
        Lineage { store, given_up: Arc::new(watch::channel(None).0) }
    }

    pub fn number(&self) -> u64 {
        self.store.recovery()
    }

    pub fn has_log(&self) -> bool {
        self.store.has_log()
    }

    /// Says, at each start, that there was a recovery.
    pub fn tell(&self) {
        if let Some(recovered) = self.store.recovered() {
            tracing::warn!("{recovered}");
        }
    }

    /// Whether a caller with this number is heard; `is_member`: it is known from the membership, and so is
    /// believed that this voter was given up.
    pub async fn check(&self, theirs: u64, is_member: impl FnOnce() -> bool) -> Result<(), Status> {
        match theirs.cmp(&self.number()) {
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(self.refusal(theirs)),
            Ordering::Greater if self.has_log() => {
                if is_member() {
                    self.give_up(theirs);
                }
                Err(Status::permission_denied("this controller belongs to an earlier recovery"))
            }
            Ordering::Greater => {
                let saved = self.store.save_recovered(Recovered::learned(theirs)).await;
                saved.map_err(|error| Status::unavailable(error.to_string()))
            }
        }
    }

    /// Refuses a caller of an earlier recovery.
    pub fn check_former(&self, theirs: u64) -> Result<(), Status> {
        if theirs < self.number() { Err(self.refusal(theirs)) } else { Ok(()) }
    }

    fn refusal(&self, theirs: u64) -> Status {
        let number = self.number();
        tracing::warn!(recovery = number, theirs, "call of a controller refused that was given up");
        let mut status = Status::failed_precondition(format!("the quorum was recovered (recovery {number})"));
        status.metadata_mut().insert(RECOVERY_KEY, MetadataValue::from(number));
        status
    }

    /// An answer may say that this voter was given up.
    pub fn heed(&self, status: &Status) {
        let number = status.metadata().get(RECOVERY_KEY).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(number) = number
            && number > self.number()
            && self.has_log()
        {
            self.give_up(number);
        }
    }

    fn give_up(&self, recovery: u64) {
        self.given_up.send_if_modified(|known| {
            let news = *known < Some(recovery);
            *known = (*known).max(Some(recovery));
            news
        });
    }

    /// Holds a number once this voter was given up.
    pub fn given_up(&self) -> watch::Receiver<Option<u64>> {
        self.given_up.subscribe()
    }

    /// Makes it last: after this the store is refused. Gives the words for it.
    pub async fn retire(&self, recovery: u64) -> String {
        if let Err(error) = self.store.save_given_up(recovery).await {
            tracing::error!(%error, "not noted that this controller was given up");
        }
        format!(
            "the quorum was recovered without this controller (recovery {recovery}): format its directory \
             anew, start it, and `kagami quorum add` it"
        )
    }
}
