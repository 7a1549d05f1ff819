//! later
pub struct MirrorConfig;
