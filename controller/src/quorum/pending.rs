//! PURE: replies that wait for their entry. Entries are answered in the order in which they were
//! appended; the first one that fails takes all later ones with it, since those were computed on it.

use std::collections::VecDeque;

/// Entries in flight, oldest first, each with the replies that wait for it.
#[derive(Debug)]
pub struct Pending<R> {
    entries: VecDeque<Vec<R>>,
}

impl<R> Default for Pending<R> {
    fn default() -> Self {
        Pending { entries: VecDeque::new() }
    }
}

impl<R> Pending<R> {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry was appended.
    pub fn appended(&mut self, replies: Vec<R>) {
        self.entries.push_back(replies);
    }

    /// Something that changes nothing, but was decided on the draft: it waits for the newest entry in
    /// flight, and is given back where there is none.
    pub fn wait_for_newest(&mut self, reply: R) -> Option<R> {
        match self.entries.back_mut() {
            Some(newest) => {
                newest.push(reply);
                None
            }
            None => Some(reply),
        }
    }

    /// The oldest entry has ended; its replies.
    pub fn ended(&mut self) -> Vec<R> {
        self.entries.pop_front().unwrap_or_default()
    }

    /// All replies that wait. The entries stay until their end is known.
    pub fn take_replies(&mut self) -> Vec<R> {
        self.entries.iter_mut().flat_map(std::mem::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_come_in_the_order_of_the_log() {
        let mut pending = Pending::default();
        assert_eq!(pending.wait_for_newest(0), Some(0), "nothing in flight: answered at once");
        pending.appended(vec![1, 2]);
        pending.appended(vec![3]);
        assert_eq!(pending.wait_for_newest(4), None);
        assert_eq!(pending.ended(), vec![1, 2]);
        assert_eq!(pending.ended(), vec![3, 4]);
        assert!(pending.is_empty());
    }

    #[test]
    fn the_first_failure_takes_all() {
        let mut pending = Pending::default();
        pending.appended(vec![1]);
        pending.appended(vec![2]);
        assert_eq!(pending.take_replies(), vec![1, 2]);
        assert_eq!(pending.len(), 2, "the log still decides about the entries");
        assert_eq!(pending.ended(), Vec::<i32>::new());
    }
}
