//! Logs, metrics, and the small HTTP server that shows them.
