//! Random operations on a log and on a plain list of batches, which must agree after each one.

use common::ids::{LeaderEpoch, Offset};
use proptest::prelude::*;

use super::support::*;
use crate::log::{AppendOrigin, LogConfig, OpenState};

#[derive(Clone, Debug)]
enum Operation {
    Produce { count: i64 },
    Copy { gap: i64, counts: Vec<i64> },
    Truncate { back: i64 },
    RaiseStart { by: i64 },
    Retain,
    Flush,
    Restart,
    Crash { torn_bytes: u64 },
    NewEpoch,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (1..5_i64).prop_map(|count| Operation::Produce { count }),
        3 => (0..4_i64, prop::collection::vec(1..5_i64, 1..8))
            .prop_map(|(gap, counts)| Operation::Copy { gap, counts }),
        2 => (0..30_i64).prop_map(|back| Operation::Truncate { back }),
        1 => (0..20_i64).prop_map(|by| Operation::RaiseStart { by }),
        1 => Just(Operation::Retain),
        1 => Just(Operation::Flush),
        1 => Just(Operation::Restart),
        2 => (0..200_u64).prop_map(|torn_bytes| Operation::Crash { torn_bytes }),
        1 => Just(Operation::NewEpoch),
    ]
}

#[derive(Default)]
struct Model {
    /// (first, last, epoch)
    batches: Vec<(i64, i64, i32)>,
    start: i64,
    end: i64,
    epoch: i32,
}

impl Model {
    fn push(&mut self, first: i64, count: i64) {
        self.batches.push((first, first + count - 1, self.epoch));
        self.end = first + count;
    }

    fn truncate(&mut self, target: i64) {
        if target >= self.end {
            return;
        }
        let keep = self.batches.iter().take_while(|batch| batch.1 < target).count();
        let end = self.batches.get(keep).map_or(target, |batch| batch.0.min(target));
        self.batches.truncate(keep);
        self.end = end;
        if target <= self.start || end <= self.start {
            (self.start, self.end) = (target.min(self.start), target.min(self.start));
            self.batches.clear();
        }
    }

    fn visible(&self) -> Vec<(i64, i64)> {
        self.batches.iter().filter(|batch| batch.1 >= self.start).map(|batch| (batch.0, batch.1)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_does_what_a_list_does(operations in prop::collection::vec(operation(), 1..60)) {
        let mut test = TestLog::new(LogConfig { segment_bytes: 500, index_interval_bytes: 80, ..config() });
        let mut model = Model::default();
        let mut flushed = Offset(0);
        for operation in operations {
            match operation {
                Operation::Produce { count } => {
                    test.append(plain(count, 0), AppendOrigin::Client, model.epoch).unwrap();
                    model.push(model.end, count);
                }
                Operation::Copy { gap, counts } => {
                    let mut records = Vec::new();
                    for count in counts {
                        let first = model.end + gap;
                        records.extend(copied(first, model.epoch, count));
                        model.push(first, count);
                    }
                    test.log.append_as_follower(&records, NOW).unwrap();
                }
                Operation::Truncate { back } => {
                    let target = (model.end - back).max(0);
                    test.log.truncate_to(Offset(target)).unwrap();
                    model.truncate(target);
                    flushed = flushed.min(Offset(model.end));
                }
                Operation::RaiseStart { by } => {
                    test.log.increase_log_start_offset(Offset(model.start + by));
                    model.start = (model.start + by).min(model.end);
                }
                Operation::Retain => {
                    test.log.delete_old_segments(NOW, Offset(model.end)).unwrap();
                }
                Operation::Flush => flushed = test.log.flush().unwrap(),
                Operation::Restart => {
                    test.restart();
                    flushed = test.log.recovery_point();
                }
                Operation::Crash { torn_bytes } => {
                    // Garbage behind the end, as a write that did not get through leaves it.
                    let newest = std::fs::read_dir(test.directory.path()).unwrap()
                        .map(|entry| entry.unwrap().path())
                        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
                        .max();
                    if let Some(newest) = newest && torn_bytes > 0 {
                        let mut bytes = std::fs::read(&newest).unwrap();
                        let torn = copied(model.end, model.epoch, 9);
                        bytes.extend(&torn[..(torn_bytes as usize).min(torn.len() - 1)]);
                        std::fs::write(&newest, bytes).unwrap();
                    }
                    test.reopen(OpenState {
                        clean_shutdown: false,
                        recovery_point: flushed,
                        log_start_offset: Offset(model.start),
                    });
                    // As the directory's checkpoint is lowered when its logs are opened.
                    flushed = flushed.min(test.log.recovery_point());
                }
                Operation::NewEpoch => {
                    model.epoch += 1;
                    test.log.start_epoch(LeaderEpoch(model.epoch), Offset(model.end)).unwrap();
                }
            }
            prop_assert_eq!(test.log.log_start_offset(), Offset(model.start));
            // A crash forgets where a cleaned log ended; the last batch's end it knows.
            let last = model.batches.last().map_or(model.start, |batch| batch.1 + 1).max(model.start);
            prop_assert!((last..=model.end).contains(&test.log.log_end_offset().0));
            model.end = test.log.log_end_offset().0;
            for max_bytes in [1, 300, 1 << 20] {
                prop_assert_eq!(test.batches(max_bytes), model.visible());
            }
            for batch in model.batches.iter().filter(|batch| batch.1 >= model.start) {
                prop_assert_eq!(test.log.epoch_at(Offset(batch.0.max(model.start))), Some(LeaderEpoch(batch.2)));
            }
        }
    }
}
