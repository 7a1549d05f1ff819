//! The bit fields of authorized operations. Without an authorizer everybody may do everything, and
//! that is what Kafka answers, too.

/// Not asked for.
pub const OMITTED: i32 = i32::MIN;

const READ: u32 = 3;
const WRITE: u32 = 4;
const CREATE: u32 = 5;
const DELETE: u32 = 6;
const ALTER: u32 = 7;
const DESCRIBE: u32 = 8;
const CLUSTER_ACTION: u32 = 9;
const DESCRIBE_CONFIGS: u32 = 10;
const ALTER_CONFIGS: u32 = 11;
const IDEMPOTENT_WRITE: u32 = 12;

pub const CLUSTER: i32 = 1 << CREATE
    | 1 << ALTER
    | 1 << DESCRIBE
    | 1 << CLUSTER_ACTION
    | 1 << DESCRIBE_CONFIGS
    | 1 << ALTER_CONFIGS
    | 1 << IDEMPOTENT_WRITE;

pub const TOPIC: i32 = 1 << READ
    | 1 << WRITE
    | 1 << CREATE
    | 1 << DELETE
    | 1 << ALTER
    | 1 << DESCRIBE
    | 1 << DESCRIBE_CONFIGS
    | 1 << ALTER_CONFIGS;

pub fn cluster(asked: bool) -> i32 {
    if asked { CLUSTER } else { OMITTED }
}

pub fn topic(asked: bool) -> i32 {
    if asked { TOPIC } else { OMITTED }
}
