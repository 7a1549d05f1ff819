//! An error with its causes in one line.

use std::error::Error;

/// Many of our errors name their cause themselves; it is not said twice.
pub fn reason(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use thiserror::Error;

    #[derive(Debug, Error)]
    #[error("cannot listen: {source}")]
    struct Telling {
        source: std::io::Error,
    }

    #[derive(Debug, Error)]
    #[error("not started")]
    struct Silent {
        #[source]
        cause: Telling,
    }

    #[test]
    fn each_cause_is_said_once() {
        let telling = || Telling { source: std::io::Error::other("in use") };
        assert_eq!(reason(&telling()), "cannot listen: in use");
        assert_eq!(reason(&Silent { cause: telling() }), "not started: cannot listen: in use");
    }
}
