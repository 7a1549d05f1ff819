//! The channel and the loader against controllers made of a few lines.

mod channel;
mod lifecycle;
mod loader;
mod quorum;
