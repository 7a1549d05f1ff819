//! Disks that fill up and fail.

mod d01_full_disk;
mod d06_failed_directory;
