//! Between the consensus and the listener: nothing passes once the log was shut down.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::listener::Listener;

/// openraft ends its core first and its state machine task some time later; without the gate a
/// listener could be called after `shutdown` returned.
#[derive(Clone)]
pub(crate) struct Gate {
    listener: Arc<Mutex<Option<Arc<dyn Listener>>>>,
}

impl Gate {
    pub fn new(listener: Arc<dyn Listener>) -> Gate {
        Gate { listener: Arc::new(Mutex::new(Some(listener))) }
    }

    /// Calls the listener, or returns `None` after [`Gate::close`].
    pub fn call<T>(&self, call: impl FnOnce(&dyn Listener) -> T) -> Option<T> {
        self.listener.lock().as_deref().map(call)
    }

    /// Waits for a call under way.
    pub fn close(&self) {
        *self.listener.lock() = None;
    }
}
