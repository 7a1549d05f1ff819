//! The fuzzer's own tests: readers that are wrong, each in one way.

use super::TargetEntry;
use crate::fuzz::{Target, Trail, bound};

#[derive(Clone, Copy)]
enum Fault {
    /// Trusts a length.
    Panic,
    /// Makes room for what a count claims.
    Allocation,
    Abort,
    Hang,
}

/// Not among the targets that run by themselves.
pub const OWN_TESTS: &[TargetEntry] = &[
    TargetEntry { name: "own-panic", make: || Box::new(Wrong(Fault::Panic)) },
    TargetEntry { name: "own-allocation", make: || Box::new(Wrong(Fault::Allocation)) },
    TargetEntry { name: "own-abort", make: || Box::new(Wrong(Fault::Abort)) },
    TargetEntry { name: "own-hang", make: || Box::new(Wrong(Fault::Hang)) },
];

struct Wrong(Fault);

impl Target for Wrong {
    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![vec![0, 0, 0, 3, 1, 2, 3]]
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(1 << 10, 8, input)
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((count, rest)) = input.split_first_chunk::<4>() else { return trail };
        let count = u32::from_be_bytes(*count) as usize;
        let is_false = count > rest.len();
        match self.0 {
            Fault::Panic => trail.note(rest[..count].len() as i32),
            Fault::Allocation => trail.note(Vec::<u8>::with_capacity(count & 0xff_ffff).len() as i32),
            Fault::Abort if is_false => std::process::abort(),
            Fault::Hang if is_false => loop {
                std::hint::spin_loop();
            },
            Fault::Abort | Fault::Hang => {}
        }
        trail.accept();
        trail
    }
}
