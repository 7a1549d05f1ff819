//! The identity of a log directory: `meta.properties`, and the lock that keeps a second process out.
