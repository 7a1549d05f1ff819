//! Tests of whole logs; those of single parts stand beside the parts.

mod appending;
mod cleaning;
mod cleaning_support;
mod compacted_cuts;
mod crash_points;
mod cut_points;
mod damage;
mod dump;
mod managing;
mod model;
mod moving;
mod moving_faults;
mod moving_support;
mod reading;
mod recovering;
mod replacing;
mod restarting;
mod retaining;
mod support;
mod truncating;
mod validating;
