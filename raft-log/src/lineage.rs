//! Which recovery of the quorum this voter belongs to. `kagami quorum recover` gives voters up for good; one
//! that comes back all the same must neither be heard nor be able to go on without those that are left.
//! So every call carries the number of the recovery that its sender belongs to: a lower one is refused,
//! and whoever learns of a higher one than its own stops, and says so at each start from then on. Only an
//! empty controller, which knows nothing yet, takes the number of the leader that takes it in.
//!
//! To stop is for good, so a number is believed only from those who can know of it: members that call,
//! voters that are called, and who answers where a controller of this quorum should be. A stranger's number
//! changes nothing.

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

    /// Whether a caller with this number, who speaks for this term, is heard. `appends`: as the leader, which
    /// takes an empty controller in. `is_member`: it is known from the membership, and so is believed that
    /// this voter was given up.
    pub async fn check(
        &self,
        theirs: u64,
        term: u64,
        appends: bool,
        is_member: impl FnOnce() -> bool,
    ) -> Result<(), Status> {
        match theirs.cmp(&self.number()) {
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(self.refusal(theirs)),
            // A recovery begins with the term of its number.
            Ordering::Greater if theirs > term => {
                Err(unbelieved(format!("recovery {theirs} is not before term {term}")))
            }
            Ordering::Greater if self.has_log() => {
                if is_member() {
                    self.give_up(theirs);
                }
                Err(unbelieved(format!("this controller does not belong to recovery {theirs}")))
            }
            Ordering::Greater if appends => {
                let saved = self.store.save_recovered(Recovered::learned(theirs)).await;
                saved.map_err(|error| Status::unavailable(error.to_string()))
            }
            Ordering::Greater => {
                Err(unbelieved("an empty controller learns of a recovery from its leader".to_owned()))
            }
        }
    }

    /// Whether a controller that has a log, and this number, may become a member or move. One of a later
    /// recovery is of another quorum: perhaps a copy of a voter, with which somebody tries out a recovery.
    pub fn check_announced(&self, theirs: u64) -> Result<(), Status> {
        match theirs.cmp(&self.number()) {
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(self.refusal(theirs)),
            Ordering::Greater => {
                Err(unbelieved(format!("this controller does not belong to recovery {theirs}")))
            }
        }
    }

    fn refusal(&self, theirs: u64) -> Status {
        let number = self.number();
        tracing::warn!(recovery = number, theirs, "call of a controller refused that was given up");
        let mut status = Status::failed_precondition(format!("the quorum was recovered (recovery {number})"));
        status.metadata_mut().insert(RECOVERY_KEY, MetadataValue::from(number));
        status
    }

    /// An answer may say that this voter was given up. Only of one who can know.
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

fn unbelieved(reason: String) -> Status {
    tracing::debug!(reason, "call of the quorum refused");
    Status::permission_denied(reason)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tonic::Code;

    use super::*;
    use crate::config::{Identity, VoterId};
    use crate::type_config::Vote;

    /// A controller that belongs to recovery 5, or is empty.
    async fn lineage(has_log: bool) -> (TempDir, Lineage) {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity { cluster_id: "test".into(), voter: VoterId::default() };
        let store = Store::open(directory.path(), &identity).unwrap();
        if has_log {
            store.save_recovered(Recovered::learned(5)).await.unwrap();
            store.write_vote(&Vote::new(6, VoterId::default())).await.unwrap();
        }
        (directory, Lineage::new(store))
    }

    #[tokio::test]
    async fn only_a_leader_takes_an_empty_controller_in() {
        for (theirs, term, appends, code, number) in [
            (0, 3, true, None, 0),
            (9, 10, true, None, 9),
            (9, 9, true, None, 9),
            (9, 10, false, Some(Code::PermissionDenied), 0),
            // No leader of that recovery is in such a term.
            (9, 8, true, Some(Code::PermissionDenied), 0),
            (u64::MAX, 10, true, Some(Code::PermissionDenied), 0),
        ] {
            let (_directory, lineage) = lineage(false).await;
            let checked = lineage.check(theirs, term, appends, || true).await;
            assert_eq!(checked.err().map(|status| status.code()), code, "{theirs} in term {term}");
            assert_eq!(lineage.number(), number, "{theirs} in term {term}");
            assert_eq!(*lineage.given_up().borrow(), None);
            lineage.store.close();
        }
    }

    #[tokio::test]
    async fn a_higher_number_is_believed_of_a_member_in_a_term_that_can_be() {
        for (theirs, term, is_member, given_up) in [
            (5, 6, true, None),
            (4, 6, true, None),
            (9, 10, true, Some(9)),
            (9, 10, false, None),
            (9, 8, true, None),
        ] {
            let (_directory, lineage) = lineage(true).await;
            let checked = lineage.check(theirs, term, true, || is_member).await;
            assert_eq!(checked.is_ok(), theirs == 5);
            assert_eq!(*lineage.given_up().borrow(), given_up, "{theirs} in term {term}");
            assert_eq!(lineage.number(), 5);
            lineage.store.close();
        }
    }

    #[tokio::test]
    async fn no_controller_of_another_recovery_announces_itself() {
        let (_directory, lineage) = lineage(true).await;
        let code = |theirs| lineage.check_announced(theirs).err().map(|status| status.code());
        assert_eq!(code(4), Some(Code::FailedPrecondition));
        assert_eq!(code(5), None);
        assert_eq!(code(9), Some(Code::PermissionDenied));
        assert_eq!(*lineage.given_up().borrow(), None);
        lineage.store.close();
    }
}
