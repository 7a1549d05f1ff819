//! The controller quorum, and what it notices of brokers.

mod controllers;
mod q01_leader_dies_during_create;
mod q03_leader_cut_off;
mod q06_flipped_bits;
mod q09_strange_requests;
mod q11_slow_disk;
mod t01_fast_detection;
mod t02_voters;
mod t03_no_quorum;
mod t04_recover;
