//! PURE. Whether a follower's log is a prefix of its leader's (KIP-320, KIP-595): asked before anything
//! is sent, so that a log that parted is cut before it grows.

use common::ids::*;

use crate::fetcher::fetch_state::DivergingEpoch;

/// Where a follower stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerPosition {
    /// Its log is a prefix of ours: what it has counts, and what follows may be sent.
    Prefix,
    Diverges(DivergingEpoch),
    OutOfRange,
}

/// The follower's claim, and the range of the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionQuestion {
    pub fetch_offset: Offset,
    /// `None`: it does not know, or its log is empty.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
}

/// `end_of_epoch`: the greatest epoch at or below the asked one in the leader's log, and its end.
pub fn follower_position(
    question: PositionQuestion,
    end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
) -> FollowerPosition {
    let PositionQuestion { fetch_offset, last_fetched_epoch, log_start_offset, log_end_offset } = question;
    // Before the epochs are compared: below the log start nothing can be said about them.
    if fetch_offset < log_start_offset {
        return FollowerPosition::OutOfRange;
    }
    if let Some(last_fetched) = last_fetched_epoch {
        let Some((epoch, end_offset)) = end_of_epoch(last_fetched) else {
            return FollowerPosition::OutOfRange;
        };
        if epoch < last_fetched || end_offset < fetch_offset {
            return FollowerPosition::Diverges(DivergingEpoch { epoch, end_offset });
        }
    }
    if fetch_offset > log_end_offset { FollowerPosition::OutOfRange } else { FollowerPosition::Prefix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        let ask = |fetch_offset, last_fetched: Option<i32>| {
            let question = PositionQuestion {
                fetch_offset: Offset(fetch_offset),
                last_fetched_epoch: last_fetched.map(LeaderEpoch),
                log_start_offset: Offset(10),
                log_end_offset: Offset(50),
            };
            // Epoch 2 up to 20, epoch 4 up to the end.
            follower_position(question, |epoch| match epoch.0 {
                2 | 3 => Some((LeaderEpoch(2), Offset(20))),
                4 => Some((LeaderEpoch(4), Offset(50))),
                _ => None,
            })
        };
        let diverges = |epoch, end| {
            FollowerPosition::Diverges(DivergingEpoch { epoch: LeaderEpoch(epoch), end_offset: Offset(end) })
        };
        let table = [
            (50, Some(4), FollowerPosition::Prefix),
            (20, Some(2), FollowerPosition::Prefix),
            (15, None, FollowerPosition::Prefix),
            (25, Some(2), diverges(2, 20)),
            (18, Some(3), diverges(2, 20)),
            (51, Some(4), diverges(4, 50)),
            (51, None, FollowerPosition::OutOfRange),
            (9, Some(2), FollowerPosition::OutOfRange),
            (30, Some(7), FollowerPosition::OutOfRange),
        ];
        for (offset, epoch, expected) in table {
            assert_eq!(ask(offset, epoch), expected, "{offset} {epoch:?}");
        }
    }
}
