//! One controller and one broker in one process, over their real sockets and files.

mod cluster;
mod lifecycle;
mod metadata;
mod produce_fetch;
mod versions;
mod wire;
