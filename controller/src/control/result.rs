//! What an operation gives: the records that make it true, and the answer for when they are committed.

use common::metadata::MetadataRecord;
use protocol::error_code::ErrorCode;

/// Records to commit in one atomic step, and the response once they are.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerResult<T> {
    pub records: Vec<MetadataRecord>,
    pub response: T,
}

impl<T> ControllerResult<T> {
    pub fn new(records: Vec<MetadataRecord>, response: T) -> ControllerResult<T> {
        ControllerResult { records, response }
    }

    /// An answer that changes nothing.
    pub fn unchanged(response: T) -> ControllerResult<T> {
        ControllerResult { records: Vec::new(), response }
    }

    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> ControllerResult<U> {
        ControllerResult { records: self.records, response: into(self.response) }
    }
}

/// A refusal: Kafka's code and a sentence for the person who asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct ControlError {
    pub code: ErrorCode,
    pub message: String,
}

impl ControlError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ControlError {
        ControlError { code, message: message.into() }
    }
}

/// Short form for refusals.
pub(crate) fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, ControlError> {
    Err(ControlError::new(code, message))
}
