//! A fuzzer of all that reads bytes which somebody else wrote: clients, sources of mirrors, disks, operators.
//!
//! Inputs are valid ones (made by the product's own writers, and the files under `tests/fuzz/corpus`), mutated with
//! an eye to lengths, counts, varints and checksums. It runs on a stable compiler, so no coverage guides it; instead
//! an input with an outcome that was not seen before (which error, at which place, of which message) becomes a base
//! for others. A failure is a panic, an allocation above the target's declared bound, or more than a second of work.

pub mod corpus;
pub mod meter;
pub mod mutate;
pub mod outcome;
pub mod pool;
pub mod run;
pub mod scratch;
pub mod targets;
pub mod watch;

use crate::simulation::random::Random;
pub use outcome::Trail;

/// A family of readers under test.
pub trait Target {
    /// Valid inputs, from which all others descend.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Pieces that mean something to these readers.
    fn words(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Makes checksums, lengths and selectors right again, mostly: what stops at the first check tests little.
    fn repair(&self, _input: &mut Vec<u8>, _random: &mut Random) {}

    /// What reading an input may allocate at a time.
    fn bound_bytes(&self, input: &[u8]) -> usize;

    fn longest_input_bytes(&self) -> usize {
        1024
    }

    /// Reads the input. Everything follows from it alone.
    fn run(&mut self, input: &[u8]) -> Trail;
}

/// The declared bounds are of this form: a floor for tables and messages of errors, and a factor, since a byte may
/// become a structure.
pub const fn bound(floor_bytes: usize, factor: usize, input: &[u8]) -> usize {
    floor_bytes + factor * input.len()
}
