//! Disks that fill up, fail, and give back something else than was written.

mod d01_full_disk;
mod d03_damaged_batch;
mod d05_power_failure;
mod d06_failed_directory;
mod d09_topic_of_the_same_id;
mod d11_log_start;
mod log_dir_moves;
