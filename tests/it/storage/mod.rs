//! Disks that fill up and fail.

mod d01_full_disk;
