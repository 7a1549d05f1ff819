//! The channel and the loader against controllers made of a few lines.

mod channel;
mod loader;
mod quorum;
