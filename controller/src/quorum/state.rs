//! PURE: the draft. It is the committed image plus the batches in flight, so that a request sees what
//! the requests before it are about to change.

use common::ids::{MetadataOffset, Term};
use common::metadata::{ApplyError, MetadataBatch, MetadataDelta, MetadataImage, MetadataRecord};

/// Present while this controller is active.
#[derive(Debug)]
pub struct Draft {
    term: Term,
    image: MetadataImage,
}

impl Draft {
    /// This controller leads in `term` and has replayed everything before it.
    pub fn new(term: Term, committed: MetadataImage) -> Draft {
        Draft { term, image: committed }
    }

    pub fn image(&self) -> &MetadataImage {
        &self.image
    }

    pub fn term(&self) -> Term {
        self.term
    }

    /// The last batch of the draft.
    pub fn offset(&self) -> MetadataOffset {
        self.image.offset
    }

    /// The batch that these records would be, computed on the draft as it is.
    pub fn batch(&self, records: Vec<MetadataRecord>, timestamp_ms: i64) -> MetadataBatch {
        MetadataBatch {
            term: self.term,
            offset: self.image.offset.next(),
            predecessor_term: self.image.term,
            timestamp_ms,
            records,
        }
    }

    /// Replays a batch that is about to be appended. On an error the draft is as before.
    pub fn replay(&mut self, batch: &MetadataBatch) -> Result<(), ApplyError> {
        self.image.apply(batch, &mut MetadataDelta::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    #[test]
    fn batches_follow_each_other_and_name_their_predecessor() {
        let committed = with_brokers(&[1]);
        let mut draft = Draft::new(Term(7), committed.clone());
        let one = draft.batch(vec![register(2, None)], 5);
        assert_eq!((one.offset, one.predecessor_term, one.term), (MetadataOffset(3), Term(1), Term(7)));
        draft.replay(&one).unwrap();
        let two = draft.batch(vec![register(3, None)], 6);
        assert_eq!((two.offset, two.predecessor_term), (MetadataOffset(4), Term(7)));
        draft.replay(&two).unwrap();
        assert_eq!(draft.offset(), MetadataOffset(4));
        // A batch whose predecessor never became true is ignored by everybody.
        let mut other = committed;
        assert!(other.apply(&two, &mut MetadataDelta::default()).is_err());
        assert_eq!(other.offset, MetadataOffset(2));
    }

    #[test]
    fn records_that_contradict_the_image_leave_the_draft_as_it_is() {
        let mut draft = Draft::new(Term(1), MetadataImage::default());
        let bad = draft.batch(vec![fence(1, 1, true)], 0);
        assert!(draft.replay(&bad).is_err());
        assert_eq!(draft.image(), &MetadataImage::default());
    }
}
