//! CI runs many more with `simulate`; see docs/simulation.md.

use kagami_tests::simulation::{Mutation, Run};

#[test]
fn seeds_hold() {
    for seed in 1..=60 {
        let outcome = Run::of(seed, 1_500).go();
        assert_eq!(outcome.violation, None, "simulate --steps 1500 --seed {seed} --trace");
    }
}

#[test]
fn the_same_seed_runs_the_same_way() {
    let traced = || Run { trace: true, ..Run::of(7, 1_000) }.go();
    let (first, second) = (traced(), traced());
    assert_eq!(first.trace, second.trace);
    assert_eq!(first.steps, second.steps);
}

/// A simulation that finds nothing proves nothing.
#[test]
fn a_rule_that_is_taken_out_is_missed() {
    for mutation in [Mutation::HighWatermarkDoesNotWait, Mutation::ReadOnlyIsWritable] {
        let found = (1..=300).any(|seed| {
            let run = Run { mutation: Some(mutation), ..Run::of(seed, 1_500) };
            run.go().violation.is_some()
        });
        assert!(found, "{}", mutation.name());
    }
}
