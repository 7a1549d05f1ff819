//! Failover, with brokers or controllers gone.

mod t01_controller_port;
