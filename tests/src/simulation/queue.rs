//! What is going to happen, in the order of time; events of one millisecond in the order they were sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::event::Event;

#[derive(Default)]
pub struct Queue {
    order: BinaryHeap<Reverse<(i64, u64, u32)>>,
    events: Vec<Option<Event>>,
    free: Vec<u32>,
    sent: u64,
}

impl Queue {
    pub fn push(&mut self, at_ms: i64, event: Event) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                (self.events.len() - 1) as u32
            }
        };
        self.sent += 1;
        self.order.push(Reverse((at_ms, self.sent, place)));
    }

    pub fn pop(&mut self) -> Option<(i64, Event)> {
        let Reverse((at_ms, _, place)) = self.order.pop()?;
        self.free.push(place);
        self.events[place as usize].take().map(|event| (at_ms, event))
    }
}
