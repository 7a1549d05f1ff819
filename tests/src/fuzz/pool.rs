//! Inputs from which others are made: the seeds, and what showed something new.

use std::collections::HashMap;

use super::outcome::Trail;
use crate::simulation::random::Random;

const MOST_ENTRIES: usize = 4096;

#[derive(Default)]
pub struct Pool {
    inputs: Vec<Vec<u8>>,
    /// Where the shortest input with an outcome stands.
    by_signature: HashMap<u64, usize>,
    seeds: usize,
}

impl Pool {
    pub fn add_seed(&mut self, input: Vec<u8>, trail: &Trail) {
        self.by_signature.entry(trail.signature()).or_insert(self.inputs.len());
        self.inputs.push(input);
        self.seeds = self.inputs.len();
    }

    /// Takes an input with a new outcome, or a shorter one with a known outcome.
    pub fn offer(&mut self, input: &[u8], trail: &Trail) {
        match self.by_signature.get(&trail.signature()) {
            None if self.inputs.len() < MOST_ENTRIES + self.seeds => {
                self.by_signature.insert(trail.signature(), self.inputs.len());
                self.inputs.push(input.to_vec());
            }
            Some(place) if *place >= self.seeds && input.len() < self.inputs[*place].len() => {
                self.inputs[*place] = input.to_vec();
            }
            _ => {}
        }
    }

    /// Half of the time a seed.
    pub fn pick(&self, random: &mut Random) -> &[u8] {
        let end = if random.chance(500) { self.seeds } else { self.inputs.len() };
        self.inputs.get(random.below(end)).map_or(&[], Vec::as_slice)
    }

    pub fn outcomes(&self) -> usize {
        self.by_signature.len()
    }
}
