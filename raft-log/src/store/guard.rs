//! sled answers some kinds of damage with a panic. Whatever reads or writes it runs in here, so that a
//! damaged store is an error that names it, and never a thread that is gone while others wait for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::store::damaged;

pub const UNREADABLE: &str = "sled cannot read it";

/// `None` if `work` panicked. What it touches is given up with it: nobody sees it half changed.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Runs `work`; a panic in it is damage.
pub fn guarded<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    caught(work).unwrap_or_else(|| Err(damaged(UNREADABLE)))
}

/// Gives the database back: dropping it writes, and a damaged one may refuse with a panic.
pub fn close(database: Option<sled::Db>) {
    if caught(|| drop(database)).is_none() {
        tracing::error!("the quorum's store could not be closed: it is damaged");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_damage() {
        let error = guarded::<()>(|| panic!("as sled does")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
    }
}
