//! DescribeLogDirs: 3 adds the error of the whole, 4 the volume's size, 5 whether it is cordoned.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;

use crate::wire::{setters, structure};

structure! {
    pub struct DescribeLogDirsResponse {
        throttle_time_ms: i32,
        error_code: i16 [since 3],
        results: Vec<DescribeLogDirsResult>,
    }

    pub struct DescribeLogDirsResult {
        error_code: i16,
        log_dir: StrBytes,
        topics: Vec<DescribeLogDirsTopic>,
        /// -1: not known.
        total_bytes: i64 [since 4] = -1,
        /// -1: not known.
        usable_bytes: i64 [since 4] = -1,
        is_cordoned: bool [since 5],
    }

    pub struct DescribeLogDirsTopic {
        name: TopicName,
        partitions: Vec<DescribeLogDirsPartition>,
    }

    pub struct DescribeLogDirsPartition {
        partition_index: i32,
        partition_size: i64,
        offset_lag: i64,
        is_future_key: bool,
    }
}

setters! {
    DescribeLogDirsResponse {
        with_throttle_time_ms, throttle_time_ms: i32;
        with_error_code, error_code: i16;
        with_results, results: Vec<DescribeLogDirsResult>;
    }
    DescribeLogDirsResult {
        with_error_code, error_code: i16;
        with_log_dir, log_dir: StrBytes;
        with_topics, topics: Vec<DescribeLogDirsTopic>;
        with_total_bytes, total_bytes: i64;
        with_usable_bytes, usable_bytes: i64;
        with_is_cordoned, is_cordoned: bool;
    }
    DescribeLogDirsTopic {
        with_name, name: TopicName;
        with_partitions, partitions: Vec<DescribeLogDirsPartition>;
    }
    DescribeLogDirsPartition {
        with_partition_index, partition_index: i32;
        with_partition_size, partition_size: i64;
        with_offset_lag, offset_lag: i64;
        with_is_future_key, is_future_key: bool;
    }
}
