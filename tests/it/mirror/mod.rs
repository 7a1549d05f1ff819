//! Mirroring, by the numbers of the test cases in KIP-1279's reference.

mod t01_create;
mod t04_add;
mod t05_bytes;
mod t08_read_only;
mod t16_handshake;
mod t18_leader_killed;
mod t20_source_moves;
mod t24_source_changes;
mod t29_create_topics;
mod t42_configs;
mod t49_restart;
mod t51_describe;
mod t55_stop_uncut;
#[cfg(debug_assertions)]
mod t56_killed_between_cut_and_record;
mod t57_compacted;
