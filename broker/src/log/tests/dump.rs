//! Writes a log with everything in it, for Kafka's own dump tool to read: set `KAGAMI_DUMP_DIRECTORY` to
//! keep the files.

use std::sync::Arc;

use common::ids::Offset;

use super::support::*;
use crate::log::{AppendOrigin, LogConfig, OpenState};

#[test]
fn a_log_with_everything_in_it() {
    let mut test = TestLog::new(LogConfig { segment_bytes: 4000, index_interval_bytes: 200, ..config() });
    if let Ok(kept) = std::env::var("KAGAMI_DUMP_DIRECTORY") {
        let path = std::path::Path::new(&kept).join("dump-0");
        std::fs::create_dir_all(&path).unwrap();
        test.log = open(&path, &Arc::clone(&test.config), OpenState { ..clean() });
    }
    for round in 0..20 {
        test.append(plain(3, round), AppendOrigin::Client, round as i32 / 4).unwrap();
        test.append(idempotent(5, 0, 3 * round as i32, 3), AppendOrigin::Client, round as i32 / 4).unwrap();
        test.append(transactional(6, round as i32, 1), AppendOrigin::Coordinator, round as i32 / 4).unwrap();
        test.append(marker(6, round % 3 == 0), AppendOrigin::Coordinator, round as i32 / 4).unwrap();
    }
    test.append(transactional(6, 20, 1), AppendOrigin::Coordinator, 9).unwrap();
    test.log.close().unwrap();
    assert_eq!(test.log.log_end_offset(), Offset(161));
    assert!(test.log.segment_count() > 2);
}
