//! PURE. Which of a partition's cuts a replica still has to apply (decision 10d).

use common::ids::*;
use common::metadata::image::TopicImage;
use common::metadata::record::Cut;

/// What a replica does before it fetches or leads under an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPlan {
    /// The lowest offset of the cuts not yet applied; `None`: the log stays as it is.
    pub truncate_to: Option<Offset>,
    /// A LOSS cut named this replica: beyond what `truncate_to` says its tail stays.
    pub keeps_tail: bool,
    /// To be noted once the truncation is durable.
    pub note: CutId,
}

/// `None`: every cut has been applied already. Elections, restarts and reassignments change nothing
/// in this: two clusters may use one epoch for one offset, so epochs alone cannot find the difference.
pub fn plan(
    cuts: &[Cut],
    last_applied: Option<CutId>,
    broker_id: BrokerId,
    directory: DirectoryId,
) -> Option<CutPlan> {
    let unapplied = || cuts.iter().filter(move |cut| Some(cut.id) > last_applied);
    let note = unapplied().map(|cut| cut.id).max()?;
    // A LOSS cut on an ordinary topic keeps the tail of the replica that asked for it: the one in that
    // directory, since another disk in the same broker holds another log.
    let keeps_tail =
        |cut: &Cut| cut.leader_keeps_tail && cut.broker_id == broker_id && cut.directory == directory;
    let truncate_to = unapplied().filter(|cut| !keeps_tail(cut)).map(|cut| cut.offset).min();
    let keeps_tail = unapplied().any(keeps_tail);
    Some(CutPlan { truncate_to, keeps_tail, note })
}

/// A copy that has made its STOPPING cut and is not released. No second one comes after an unclean
/// election, so its LOSS cut takes what was left undecided, too (decision 10, LOSS with the suffix).
pub fn stopping_cut_stands(topic: &TopicImage, partition: i32) -> bool {
    let of_partition = usize::try_from(partition).ok().and_then(|index| topic.partitions.get(index));
    topic.mirror.as_ref().is_some_and(|mirror| mirror.removed)
        && !topic.is_writable(partition)
        && of_partition.is_some_and(|partition| partition.mirror.stopping_cut.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::metadata::record::CutKind;

    const DIRECTORY: DirectoryId = DirectoryId(uuid::Uuid::from_bytes([1; 16]));
    const OTHER_DIRECTORY: DirectoryId = DirectoryId(uuid::Uuid::from_bytes([2; 16]));

    fn cut(id: i64, offset: i64, keeps_tail: bool) -> Cut {
        Cut {
            id: CutId(id),
            kind: if keeps_tail { CutKind::Loss } else { CutKind::Preparing },
            association: None,
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(1),
            broker_id: BrokerId(1),
            directory: DIRECTORY,
            leader_keeps_tail: keeps_tail,
        }
    }

    fn planned(cuts: &[Cut], noted: Option<i64>) -> Option<(Option<i64>, i64)> {
        plan(cuts, noted.map(CutId), BrokerId(1), DIRECTORY)
            .map(|plan| (plan.truncate_to.map(|offset| offset.0), plan.note.0))
    }

    #[test]
    fn counterexample_01_a_cut_already_applied_is_not_applied_again() {
        // r2 was in the ISR at the cut to 100 and noted it; it leads after the release and many writes.
        assert_eq!(planned(&[cut(10, 100, false)], Some(10)), None);
    }

    #[test]
    fn counterexample_02_a_replica_that_missed_the_cut_truncates_before_it_leads() {
        assert_eq!(planned(&[cut(10, 50, false)], None), Some((Some(50), 10)));
        assert_eq!(planned(&[cut(10, 50, false)], Some(9)), Some((Some(50), 10)));
    }

    #[test]
    fn counterexample_03_the_lowest_missed_cut_counts() {
        let cuts = [cut(10, 50, false), cut(20, 200, false)];
        // Away since before the first cut: whatever was copied between belongs to another lineage.
        assert_eq!(planned(&cuts, Some(7)), Some((Some(50), 20)));
        assert_eq!(planned(&cuts, Some(10)), Some((Some(200), 20)));
        // A power cut undid truncation and note alike: both are done again.
        assert_eq!(planned(&cuts, None), Some((Some(50), 20)));
    }

    #[test]
    fn counterexample_19_a_loss_cut_keeps_the_tail_of_the_replica_and_directory_it_names() {
        let cuts = [cut(30, 80, true)];
        assert_eq!(planned(&cuts, None), Some((None, 30)));
        let elsewhere = plan(&cuts, None, BrokerId(1), OTHER_DIRECTORY);
        let truncates = Some(CutPlan { truncate_to: Some(Offset(80)), keeps_tail: false, note: CutId(30) });
        assert_eq!(elsewhere, truncates);
        let another_broker = plan(&cuts, None, BrokerId(2), DIRECTORY);
        assert_eq!(another_broker, truncates);
    }

    #[test]
    fn a_kept_tail_does_not_hide_an_older_missed_cut() {
        assert_eq!(planned(&[cut(10, 50, false), cut(30, 80, true)], None), Some((Some(50), 30)));
    }

    #[test]
    fn no_cuts_nothing_to_do() {
        assert_eq!(planned(&[], None), None);
    }
}
