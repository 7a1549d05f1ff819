//! Whole quorums in one process, over real connections.

mod quorum;
mod t01_single_voter;
mod t02_three_voters;
mod t03_founding;
mod t04_snapshot;
mod t05_voters;
mod t06_recovery;
mod t07_faults;
