//! PURE: what is said of a refresh. A source that sets what this cluster does not take is refused the same in
//! each cycle, every few seconds; it is worth a line when it begins and when it changes.

use std::collections::HashSet;

/// Lines kept of a cycle; beyond that they are said again.
const MOST_LINES: usize = 10_000;

#[derive(Debug, Default)]
pub struct Remarks {
    before: HashSet<String>,
    now: HashSet<String>,
}

impl Remarks {
    /// Whether the last cycle, and this one so far, had nothing to say like this.
    pub fn is_new(&mut self, line: &str) -> bool {
        if self.now.len() < MOST_LINES && !self.now.contains(line) {
            self.now.insert(line.to_owned());
            return !self.before.contains(line);
        }
        !self.now.contains(line)
    }

    /// A cycle was gone through to its end. One that was not has left out what it would have said.
    pub fn next_cycle(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_said_once_and_what_comes_back_again() {
        let mut remarks = Remarks::default();
        assert!(remarks.is_new("a"));
        assert!(!remarks.is_new("a"), "twice in one cycle");
        for _ in 0..3 {
            remarks.next_cycle();
            assert!(!remarks.is_new("a"));
        }
        assert!(remarks.is_new("b"));
        remarks.next_cycle();
        assert!(!remarks.is_new("b"));
        remarks.next_cycle();
        assert!(remarks.is_new("a"), "it was gone for a cycle");
    }
}
