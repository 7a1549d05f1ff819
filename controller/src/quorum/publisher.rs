//! Committed batches for subscribed brokers: a bounded ring. Who falls behind it gets a snapshot, so a
//! slow broker never makes a queue grow.

use std::collections::VecDeque;

use bytes::Bytes;
use common::ids::{MetadataOffset, Term};
use common::metadata::{MetadataBatch, codec};
use parking_lot::Mutex;
use tokio::sync::watch;

const MAX_BATCHES: usize = 16_384;
const MAX_BYTES: usize = 16 << 20;
/// One message of the stream; a single larger batch goes alone.
const MAX_MESSAGE_BATCHES: usize = 256;
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The newest committed batches, encoded.
pub struct Publisher {
    ring: Mutex<Ring>,
    /// (offset, term) of the last committed batch.
    position: watch::Sender<(MetadataOffset, Term)>,
}

struct Ring {
    /// Batches that follow each other up to the last committed one.
    batches: VecDeque<(Term, Bytes)>,
    bytes: usize,
    /// The batch before the first in the ring.
    before: (MetadataOffset, Term),
}

/// What a subscriber at some offset gets next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Batches after its offset, and the last of them.
    Batches {
        batches: Vec<Bytes>,
        last: MetadataOffset,
        last_term: Term,
    },
    UpToDate,
    /// Its offset is no longer in the ring.
    Behind,
    /// It has batches that are not committed here.
    Ahead,
    /// Its batch at that offset is another one.
    Diverged,
}

impl Default for Publisher {
    fn default() -> Self {
        Publisher::new()
    }
}

impl Publisher {
    pub fn new() -> Publisher {
        let start = (MetadataOffset::ZERO, Term(0));
        Publisher {
            ring: Mutex::new(Ring { batches: VecDeque::new(), bytes: 0, before: start }),
            position: watch::Sender::new(start),
        }
    }

    /// Batches were committed, in order.
    pub fn publish(&self, batches: &[MetadataBatch]) {
        let Some(last) = batches.last() else { return };
        let mut ring = self.ring.lock();
        for batch in batches {
            let bytes = codec::encode_batches(std::slice::from_ref(batch));
            ring.bytes += bytes.len();
            ring.batches.push_back((batch.term, bytes));
        }
        while ring.batches.len() > 1 && (ring.batches.len() > MAX_BATCHES || ring.bytes > MAX_BYTES) {
            if let Some((term, bytes)) = ring.batches.pop_front() {
                ring.bytes -= bytes.len();
                ring.before = (ring.before.0.next(), term);
            }
        }
        drop(ring);
        self.position.send_replace((last.offset, last.term));
    }

    /// A snapshot replaced the image.
    pub fn reset(&self, offset: MetadataOffset, term: Term) {
        let mut ring = self.ring.lock();
        *ring = Ring { batches: VecDeque::new(), bytes: 0, before: (offset, term) };
        drop(ring);
        self.position.send_replace((offset, term));
    }

    /// Wakes at each commit.
    pub fn position(&self) -> watch::Receiver<(MetadataOffset, Term)> {
        self.position.subscribe()
    }

    /// What follows the batch (`offset`, `term`).
    pub fn next(&self, offset: MetadataOffset, term: Term) -> Next {
        let ring = self.ring.lock();
        let Ok(skip) = usize::try_from(offset.0 - ring.before.0.0) else { return Next::Behind };
        if skip > ring.batches.len() {
            return Next::Ahead;
        }
        let term_here = match skip.checked_sub(1).and_then(|index| ring.batches.get(index)) {
            Some((term, _)) => *term,
            None => ring.before.1,
        };
        if term_here != term {
            return Next::Diverged;
        }
        let mut batches = Vec::new();
        let mut bytes = 0;
        let mut last_term = term;
        for (batch_term, batch) in ring.batches.range(skip..).take(MAX_MESSAGE_BATCHES) {
            bytes += batch.len();
            if !batches.is_empty() && bytes > MAX_MESSAGE_BYTES {
                break;
            }
            batches.push(batch.clone());
            last_term = *batch_term;
        }
        if batches.is_empty() {
            return Next::UpToDate;
        }
        let last = MetadataOffset(offset.0 + batches.len() as i64);
        Next::Batches { batches, last, last_term }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(offset: i64, term: u64, size: usize) -> MetadataBatch {
        let name = "x".repeat(size);
        MetadataBatch {
            term: Term(term),
            offset: MetadataOffset(offset),
            predecessor_term: Term(term),
            timestamp_ms: 0,
            records: vec![common::metadata::MetadataRecord::FeatureLevel { name, level: 1 }],
        }
    }

    fn count(next: Next) -> (usize, i64) {
        match next {
            Next::Batches { batches, last, .. } => (batches.len(), last.0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_subscriber_gets_what_follows_its_batch() {
        let publisher = Publisher::new();
        assert_eq!(publisher.next(MetadataOffset(0), Term(0)), Next::UpToDate);
        publisher.publish(&[batch(1, 1, 1), batch(2, 1, 1)]);
        publisher.publish(&[batch(3, 2, 1)]);
        assert_eq!(count(publisher.next(MetadataOffset(0), Term(0))), (3, 3));
        assert_eq!(count(publisher.next(MetadataOffset(2), Term(1))), (1, 3));
        assert_eq!(publisher.next(MetadataOffset(3), Term(2)), Next::UpToDate);
        assert_eq!(publisher.next(MetadataOffset(3), Term(1)), Next::Diverged);
        assert_eq!(publisher.next(MetadataOffset(4), Term(2)), Next::Ahead);
        assert_eq!(*publisher.position().borrow(), (MetadataOffset(3), Term(2)));
    }

    #[test]
    fn messages_and_the_ring_are_bounded() {
        let publisher = Publisher::new();
        let many: Vec<MetadataBatch> = (1..=400).map(|offset| batch(offset, 1, 1)).collect();
        publisher.publish(&many);
        assert_eq!(count(publisher.next(MetadataOffset(0), Term(0))), (256, 256));
        let large: Vec<MetadataBatch> = (401..=440).map(|offset| batch(offset, 1, 600_000)).collect();
        publisher.publish(&large);
        assert_eq!(publisher.next(MetadataOffset(400), Term(1)), Next::Behind);
        assert_eq!(count(publisher.next(MetadataOffset(430), Term(1))), (1, 431));
        publisher.reset(MetadataOffset(900), Term(3));
        assert_eq!(publisher.next(MetadataOffset(440), Term(1)), Next::Behind);
        assert_eq!(publisher.next(MetadataOffset(900), Term(3)), Next::UpToDate);
    }
}
