//! PURE. What the cleaner has to know of transactions while it goes through a log in order: whose
//! batches were aborted, and which markers have lost all the data they decide about.

use std::collections::{HashMap, HashSet};

use common::ids::ProducerId;
use protocol::record_batch::BatchHeader;

use crate::log::producer_state::BatchContent;
use crate::log::transaction_index::AbortedTransaction;

#[derive(Clone, Copy, Debug)]
struct OpenAbort {
    transaction: AbortedTransaction,
    /// A batch of it still stands in the log.
    has_data: bool,
}

/// What is to be done with a control batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlVerdict {
    /// None of the data it decides about is left: it may go once its delete horizon has passed.
    pub decides_nothing: bool,
    /// The transaction has to stay in the index of the segment that holds the marker.
    pub index: Option<AbortedTransaction>,
}

#[derive(Debug, Default)]
pub(crate) struct CleanedTransactions {
    /// By first offset, the lowest last.
    waiting: Vec<AbortedTransaction>,
    aborting: HashMap<ProducerId, OpenAbort>,
    committing: HashSet<ProducerId>,
}

impl CleanedTransactions {
    /// `aborted` are all aborted transactions with a batch in the part that is gone through.
    pub fn new(mut aborted: Vec<AbortedTransaction>) -> CleanedTransactions {
        aborted.sort_unstable_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        CleanedTransactions { waiting: aborted, ..CleanedTransactions::default() }
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(transaction) = self.waiting.pop_if(|next| next.first_offset.0 <= offset) {
            let open = OpenAbort { transaction, has_data: false };
            self.aborting.entry(transaction.producer_id).or_insert(open);
        }
    }

    /// Whether the batch belongs to an aborted transaction.
    pub fn on_data(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        let producer_id = ProducerId(header.producer_id);
        match self.aborting.get_mut(&producer_id) {
            Some(open) => {
                open.has_data = true;
                true
            }
            None => {
                self.committing.insert(producer_id);
                false
            }
        }
    }

    pub fn on_control(&mut self, header: &BatchHeader, content: BatchContent) -> ControlVerdict {
        self.begin_up_to(header.last_offset());
        let producer_id = ProducerId(header.producer_id);
        match content {
            BatchContent::Marker { commit: true, .. } => {
                ControlVerdict { decides_nothing: !self.committing.remove(&producer_id), index: None }
            }
            BatchContent::Marker { commit: false, .. } => {
                let index = self
                    .aborting
                    .remove(&producer_id)
                    .and_then(|open| open.has_data.then_some(open.transaction));
                ControlVerdict { decides_nothing: index.is_none(), index }
            }
            // One that an earlier cleaning emptied. Others are of a type that decides about no data.
            _ => ControlVerdict { decides_nothing: header.records_count == 0, index: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ids::Offset;
    use protocol::record_batch::{BatchBuilder, EndTxnMarker};

    fn header(producer: i64, offset: i64, control: bool) -> BatchHeader {
        let builder = BatchBuilder::new().base_offset(offset).producer(producer, 0, 0);
        let batch = if control {
            builder.end_txn_marker(1, EndTxnMarker { committed: true, coordinator_epoch: 0 })
        } else {
            builder.transactional().record(1, Some(b"k"), Some(b"v"))
        };
        BatchHeader::parse(&batch.build()).unwrap()
    }

    fn aborted(producer: i64, first: i64, last: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    fn marker(commit: bool) -> BatchContent {
        BatchContent::Marker { commit, coordinator_epoch: 0 }
    }

    #[test]
    fn markers_are_of_use_while_their_data_stands() {
        let mut seen = CleanedTransactions::new(vec![aborted(7, 20, 25), aborted(7, 3, 9)]);
        // Producer 7 aborts twice, producer 8 commits between.
        assert!(seen.on_data(&header(7, 3, false)));
        assert!(!seen.on_data(&header(8, 4, false)));
        let verdict = seen.on_control(&header(7, 9, true), marker(false));
        assert_eq!(verdict, ControlVerdict { decides_nothing: false, index: Some(aborted(7, 3, 9)) });
        let verdict = seen.on_control(&header(8, 10, true), marker(true));
        assert_eq!(verdict, ControlVerdict { decides_nothing: false, index: None });
        // The data of the second is gone already, and so is that of another commit.
        let verdict = seen.on_control(&header(7, 25, true), marker(false));
        assert_eq!(verdict, ControlVerdict { decides_nothing: true, index: None });
        assert!(seen.on_control(&header(8, 26, true), marker(true)).decides_nothing);
        // Committed data of a producer that aborted before.
        assert!(!seen.on_data(&header(7, 30, false)));
    }

    #[test]
    fn control_batches_that_decide_nothing() {
        let mut seen = CleanedTransactions::default();
        let full = header(7, 3, true);
        assert!(!seen.on_control(&full, BatchContent::OtherControl).decides_nothing, "unknown type");
        let emptied = BatchHeader { records_count: 0, ..full };
        assert!(seen.on_control(&emptied, BatchContent::OtherControl).decides_nothing);
    }
}
