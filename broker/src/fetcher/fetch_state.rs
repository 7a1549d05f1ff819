//! PURE. What a follower makes of one partition's part of its leader's answer.

use common::ids::*;
use protocol::ErrorCode;

/// The follower's own log, at the moment the answer is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLog {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub high_watermark: Offset,
}

/// What the leader said. Offsets of -1 are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderAnswer {
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    pub diverging: Option<DivergingEpoch>,
    pub has_records: bool,
}

/// The end of the largest epoch the leader knows at or below the one the follower fetched last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivergingEpoch {
    pub epoch: LeaderEpoch,
    pub end_offset: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// Append the records, if any, and take over high watermark and log start.
    Append,
    /// The logs part somewhere: cut to `truncation_offset`, fetch again.
    Truncate(DivergingEpoch),
    /// Nothing here is at the leader any more: drop all, start at its log start.
    RestartAt(Offset),
    /// Fetch again after a pause.
    Pause,
}

pub fn action(answer: &LeaderAnswer, local: &LocalLog) -> FollowerAction {
    match answer.error {
        ErrorCode::None => match answer.diverging {
            Some(diverging) => FollowerAction::Truncate(diverging),
            None => FollowerAction::Append,
        },
        ErrorCode::OffsetOutOfRange => out_of_range(answer, local),
        // NOT_LEADER, FENCED and UNKNOWN epochs, unknown topic: one of the two has not seen the newest
        // metadata yet, which changes leader or epoch here and with it this fetch.
        _ => FollowerAction::Pause,
    }
}

/// An end above the leader's shows as a diverging epoch. What remains: retention or DeleteRecords has
/// passed our end, or our log is empty and begins where the leader's has never been.
fn out_of_range(answer: &LeaderAnswer, local: &LocalLog) -> FollowerAction {
    let leader_start = answer.log_start_offset;
    if leader_start.0 < 0 {
        return FollowerAction::Pause;
    }
    let is_empty = local.log_start_offset >= local.log_end_offset;
    if leader_start > local.log_end_offset || (is_empty && leader_start != local.log_end_offset) {
        FollowerAction::RestartAt(leader_start)
    } else {
        FollowerAction::Pause
    }
}

/// Where to cut. `own_end`: the end of the largest epoch at or below the leader's in the own log.
/// Cutting to our own end of a smaller epoch asks again from there, and so walks down until both agree.
pub fn truncation_offset(
    leader: DivergingEpoch,
    own_end: Option<(LeaderEpoch, Offset)>,
    local: &LocalLog,
) -> Offset {
    if leader.end_offset.0 < 0 {
        return local.high_watermark;
    }
    let target = match own_end {
        _ if leader.epoch == LeaderEpoch::UNKNOWN => leader.end_offset,
        Some((own_epoch, own_end)) if own_epoch != leader.epoch => own_end,
        Some((_, own_end)) => own_end.min(leader.end_offset),
        None => leader.end_offset,
    };
    target.min(local.log_end_offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(start: i64, end: i64, high_watermark: i64) -> LocalLog {
        LocalLog {
            log_start_offset: Offset(start),
            log_end_offset: Offset(end),
            high_watermark: Offset(high_watermark),
        }
    }

    fn answer(error: ErrorCode, log_start: i64) -> LeaderAnswer {
        LeaderAnswer {
            error,
            high_watermark: Offset(-1),
            log_start_offset: Offset(log_start),
            diverging: None,
            has_records: false,
        }
    }

    fn diverging(epoch: i32, end: i64) -> DivergingEpoch {
        DivergingEpoch { epoch: LeaderEpoch(epoch), end_offset: Offset(end) }
    }

    #[test]
    fn actions() {
        use FollowerAction::*;
        let log = local(10, 50, 40);
        let table = [
            (answer(ErrorCode::None, 0), log, Append),
            (
                LeaderAnswer { diverging: Some(diverging(3, 45)), ..answer(ErrorCode::None, 0) },
                log,
                Truncate(diverging(3, 45)),
            ),
            (answer(ErrorCode::OffsetOutOfRange, 80), log, RestartAt(Offset(80))),
            (answer(ErrorCode::OffsetOutOfRange, 20), log, Pause),
            (answer(ErrorCode::OffsetOutOfRange, -1), log, Pause),
            (answer(ErrorCode::OffsetOutOfRange, 20), local(50, 50, 50), RestartAt(Offset(20))),
            (answer(ErrorCode::FencedLeaderEpoch, 0), log, Pause),
            (answer(ErrorCode::UnknownLeaderEpoch, 0), log, Pause),
            (answer(ErrorCode::NotLeaderOrFollower, 0), log, Pause),
            (answer(ErrorCode::UnknownTopicId, 0), log, Pause),
            (answer(ErrorCode::KafkaStorageError, 0), log, Pause),
        ];
        for (answer, log, expected) in table {
            assert_eq!(action(&answer, &log), expected, "{answer:?} {log:?}");
        }
    }

    #[test]
    fn truncation() {
        let log = local(0, 100, 60);
        let own = |epoch: i32, end: i64| Some((LeaderEpoch(epoch), Offset(end)));
        let table = [
            // Same epoch on both sides: the shorter one decides.
            (diverging(3, 80), own(3, 90), 80),
            (diverging(3, 95), own(3, 90), 90),
            // Our largest epoch at or below the leader's is smaller: cut to its end, ask again.
            (diverging(3, 80), own(2, 70), 70),
            // We know nothing at or below it.
            (diverging(3, 80), None, 80),
            (diverging(3, 180), None, 100),
            // The leader knows nothing at or below our epoch: an empty epoch cache of a mirror partition.
            (diverging(-1, 20), own(0, 10), 20),
            (diverging(-1, 0), None, 0),
            // The leader could not say: only what was committed is certain.
            (diverging(-1, -1), own(3, 90), 60),
        ];
        for (leader, own_end, expected) in table {
            assert_eq!(truncation_offset(leader, own_end, &log), Offset(expected), "{leader:?} {own_end:?}");
        }
    }
}
