//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Where the hard limit is none: what kernels allow at most unless they are told otherwise (`fs.nr_open`).
const NR_OPEN: u64 = 1 << 20;

/// Raises the soft limit to the hard one: the soft one is low for the sake of programs that use `select`, and a
/// broker has a file for each segment that is read and a socket for each client.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(NR_OPEN);
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
        Ok(()) => info!(from = limit.current, to = wanted, "limit of open files raised"),
        Err(error) => warn!(%error, limit = limit.current, "limit of open files cannot be raised"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let lowered = before.current.unwrap_or(NR_OPEN) - 1;
        setrlimit(Resource::Nofile, Rlimit { current: Some(lowered), maximum: before.maximum }).unwrap();
        raise_limit();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.maximum, before.maximum);
        assert!(after.current > Some(lowered) && after.current >= before.current, "{before:?} {after:?}");
    }
}
