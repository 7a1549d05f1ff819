//! Internal errors as Kafka's codes and messages: the one mapping.

use protocol::StrBytes;
use protocol::error_code::ErrorCode;

use crate::metadata::ChannelError;

/// What a client is told: a code, and words where the response has room for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: Option<String>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError { code, message: Some(message.into()) }
    }

    /// The words for a nullable `error_message`: our own, else Kafka's for the code.
    pub fn message(&self) -> Option<StrBytes> {
        let text = self.message.as_deref().unwrap_or(self.code.message());
        Some(StrBytes::from_string(text.to_owned()))
    }
}

impl From<ErrorCode> for ApiError {
    fn from(code: ErrorCode) -> ApiError {
        ApiError { code, message: None }
    }
}

impl From<&ChannelError> for ApiError {
    fn from(error: &ChannelError) -> ApiError {
        let code = match error {
            // Retriable, and Kafka's answer where a forwarded request runs out of time.
            ChannelError::NoActiveController { .. } => ErrorCode::RequestTimedOut,
            ChannelError::Refused(_) | ChannelError::Address(_) => ErrorCode::UnknownServerError,
        };
        ApiError::new(code, error.to_string())
    }
}
