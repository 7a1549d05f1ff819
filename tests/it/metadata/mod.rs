//! Brokers and topics as the controllers know them.

mod t01_registration;
mod t02_topics;
mod t03_segments;
