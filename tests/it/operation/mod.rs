//! What an operator sees: refusals to start, health, metrics.

mod t01_refusals;
mod t02_http;
