//! One cleaning in memory, for the fuzzer in `tests`.

use std::collections::HashMap;

use protocol::record_batch::batches;

use super::filter::{CleaningRules, Scratch, filter_batch, map_batch};
use super::offset_map::OffsetMap;
use super::transactions::CleanedTransactions;

const MAP_BYTES: usize = 4096;

/// What a cleaner leaves of `records`, which are batches of a log.
pub fn clean(records: &[u8], now_ms: i64) -> Result<Vec<u8>, String> {
    let mut map = OffsetMap::new(MAP_BYTES, 0.9, 64);
    let mut scratch = Scratch::default();
    let mut transactions = CleanedTransactions::new(Vec::new());
    let mut upper_bound = 0;
    for batch in batches(records) {
        let batch = batch.map_err(|error| error.to_string())?;
        let header = &batch.header;
        if header.base_offset < upper_bound
            || header.last_offset_delta < 0
            || header.next_offset() <= header.base_offset
        {
            return Err("offsets do not ascend".to_owned());
        }
        upper_bound = header.next_offset();
        let fits = map_batch(&batch, 0, &mut map, &mut transactions, &mut scratch)
            .map_err(|error| error.to_string())?;
        if !fits {
            break;
        }
    }
    let rules =
        CleaningRules { last_records: HashMap::new(), upper_bound, delete_retention_ms: 1000, now_ms };
    let mut transactions = CleanedTransactions::new(Vec::new());
    let mut out = Vec::new();
    for batch in batches(records) {
        let batch = batch.map_err(|error| error.to_string())?;
        filter_batch(&batch, &map, &mut transactions, &rules, &mut scratch, &mut out)
            .map_err(|error| error.to_string())?;
    }
    Ok(out)
}
