//! One controller in process, asked as brokers and admin clients ask it.

mod admin;
mod brokers;
mod harness;
mod restart;
mod stream;
