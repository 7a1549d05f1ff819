//! Why the command ends with another exit code than 0.

use std::fmt;

use protocol::error_code::ErrorCode;

#[derive(Debug)]
pub enum Failure {
    /// The cluster refused, or a check failed.
    Refused(String),
    /// The command was given wrongly.
    Usage(String),
    /// Not done in time; it may still be going on.
    TimedOut(String),
}

impl Failure {
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::Refused(message.into())
    }

    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }

    pub fn timed_out(message: impl Into<String>) -> Failure {
        Failure::TimedOut(message.into())
    }

    /// An error code of an answer, with its message where the answer has one.
    pub fn code(what: &str, code: i16, message: Option<&str>) -> Failure {
        let name =
            ErrorCode::from_code(code).map_or_else(|| format!("error {code}"), |e| e.name().to_owned());
        match message.filter(|message| !message.is_empty()) {
            Some(message) => Failure::Refused(format!("{what}: {name}: {message}")),
            None => Failure::Refused(format!("{what}: {name}")),
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Refused(_) => 1,
            Failure::Usage(_) => 2,
            Failure::TimedOut(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(message) | Failure::Usage(message) => f.write_str(message),
            Failure::TimedOut(message) => write!(f, "timed out: {message}"),
        }
    }
}
