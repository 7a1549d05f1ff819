//! Topics chosen by regular expressions over whole names.

use regex::Regex;

use crate::failure::Failure;

/// Names that begin so are internal; an expression does not choose them, only their own name does.
const INTERNAL_PREFIX: &str = "__";

pub struct Selection {
    patterns: Vec<(String, Regex)>,
}

impl Selection {
    pub fn new(patterns: &[String]) -> Result<Selection, Failure> {
        let compile = |pattern: &String| {
            Regex::new(&format!("^(?:{pattern})$"))
                .map(|regex| (pattern.clone(), regex))
                .map_err(|error| Failure::usage(format!("--topic {pattern:?}: {error}")))
        };
        Ok(Selection { patterns: patterns.iter().map(compile).collect::<Result<_, _>>()? })
    }

    pub fn all() -> Selection {
        Selection { patterns: Vec::new() }
    }

    pub fn contains(&self, topic: &str) -> bool {
        if self.patterns.is_empty() {
            return true;
        }
        self.patterns.iter().any(|(pattern, regex)| {
            pattern == topic || (!topic.starts_with(INTERNAL_PREFIX) && regex.is_match(topic))
        })
    }
}

/// Whether a pattern is just a topic's name: it can be added without asking the source.
pub fn is_literal(pattern: &str) -> bool {
    !pattern.is_empty()
        && pattern.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_and_leave_internal_topics_alone() {
        let selection = Selection::new(&["orders.*".to_owned(), "a|b".to_owned(), "__x".to_owned()]).unwrap();
        for (topic, chosen) in [
            ("orders", true),
            ("orders-1", true),
            ("my-orders", false),
            ("b", true),
            ("ab", false),
            ("__x", true),
        ] {
            assert_eq!(selection.contains(topic), chosen, "{topic}");
        }
        let everything = Selection::new(&[".*".to_owned()]).unwrap();
        assert!(everything.contains("t") && !everything.contains("__mirror_state"));
        assert!(Selection::new(&["(".to_owned()]).is_err());
    }
}
