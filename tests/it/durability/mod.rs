//! What was acknowledged stays.

mod t01_broker_killed;
mod t02_broker_restarts;
mod t03_controllers_killed;
