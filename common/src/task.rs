//! Tasks with owners. Nothing else in the daemons calls `tokio::spawn`: a group knows the name of each
//! task, what its end means, and ends all of them with a deadline.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The name of a task, as logs show it.
pub type TaskName = Cow<'static, str>;

/// Owner of a set of tasks. Clones own the same set.
#[derive(Clone, Debug, Default)]
pub struct TaskGroup {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    failed: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    running: BTreeMap<u64, Running>,
    failure: Option<String>,
}

#[derive(Debug)]
struct Running {
    name: TaskName,
    /// Missing for the moment between registration and spawn.
    abort: Option<AbortHandle>,
}

impl TaskGroup {
    pub fn new() -> TaskGroup {
        TaskGroup::default()
    }

    /// Cancelled when the group shuts down. A task that outlives this by the deadline is aborted.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shared.shutdown.clone()
    }

    /// Runs a task that may end whenever it likes. A panic is logged with its name.
    pub fn spawn<F>(&self, name: impl Into<TaskName>, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name.into(), future, |_, name, end| {
            if let Err(panic) = end {
                tracing::error!(task = %name, "task panicked: {panic}");
            }
        });
    }

    /// Runs a task without which the process is of no use: its error, its panic, or its end before the
    /// group shuts down is a failure of the group, which `failed` reports.
    pub fn spawn_critical<F, E>(&self, name: impl Into<TaskName>, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        self.start(name.into(), future, |group, name, end| {
            let problem = match end {
                Ok(Ok(())) if group.shared.shutdown.is_cancelled() => return,
                Ok(Ok(())) => "ended unexpectedly".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(panic) => format!("panicked: {panic}"),
            };
            tracing::error!(task = %name, "critical task failed: {problem}");
            group.shared.state.lock().failure.get_or_insert(format!("{name}: {problem}"));
            group.shared.failed.cancel();
        });
    }

    /// Resolves with the first failure of a critical task; else never.
    pub async fn failed(&self) -> String {
        self.shared.failed.cancelled().await;
        self.shared.state.lock().failure.clone().unwrap_or_default()
    }

    /// Tells all tasks to end and waits for them until the deadline; the rest is aborted and named.
    /// Nothing can be spawned afterwards.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<TaskName> {
        self.shared.shutdown.cancel();
        self.shared.tracker.close();
        if tokio::time::timeout(deadline, self.shared.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let late: Vec<TaskName> = {
            let state = self.shared.state.lock();
            for running in state.running.values() {
                if let Some(abort) = &running.abort {
                    abort.abort();
                }
            }
            state.running.values().map(|running| running.name.clone()).collect()
        };
        tracing::warn!(tasks = ?late, "tasks did not end within {deadline:?} and were aborted");
        // Aborting takes effect at a task's next await; one that blocks its thread cannot be stopped.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.shared.tracker.wait()).await;
        late
    }

    /// How many tasks run now.
    pub fn len(&self) -> usize {
        self.shared.tracker.len()
    }

    pub fn is_empty(&self) -> bool {
        self.shared.tracker.is_empty()
    }

    fn start<F, T>(
        &self,
        name: TaskName,
        future: F,
        on_end: impl FnOnce(&TaskGroup, &TaskName, Result<T, String>) + Send + 'static,
    ) where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let group = self.clone();
        let id = {
            let mut state = self.shared.state.lock();
            if self.shared.tracker.is_closed() {
                tracing::debug!(task = %name, "not started: the group is shutting down");
                return;
            }
            let id = state.next_id;
            state.next_id += 1;
            state.running.insert(id, Running { name: name.clone(), abort: None });
            id
        };
        let registration = Registration { group, id };
        let task = self.shared.tracker.spawn(async move {
            let end = catch_panic(future).await;
            on_end(&registration.group, &name, end);
        });
        if let Some(running) = self.shared.state.lock().running.get_mut(&id) {
            running.abort = Some(task.abort_handle());
        }
    }
}

/// Removes the task from the list however it ends: aborted ones are dropped without running on.
struct Registration {
    group: TaskGroup,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.group.shared.state.lock().running.remove(&self.id);
    }
}

async fn catch_panic<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(panic_message(&*payload))),
        }
    })
    .await
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(message) = payload.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = payload.downcast_ref::<String>() {
        message.clone()
    } else {
        "without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shutdown_waits_for_tasks_and_names_those_that_are_late() {
        let group = TaskGroup::new();
        let token = group.shutdown_token();
        group.spawn("polite", async move { token.cancelled().await });
        group.spawn("stubborn", std::future::pending());
        assert_eq!(group.len(), 2);
        assert_eq!(group.shutdown(Duration::from_millis(20)).await, vec![TaskName::from("stubborn")]);
        assert!(group.is_empty());
        group.spawn("too late", std::future::pending());
        assert!(group.is_empty());
    }

    #[tokio::test]
    async fn a_critical_task_that_ends_early_fails_the_group() {
        let group = TaskGroup::new();
        group.spawn_critical("ends", async { Ok::<(), String>(()) });
        assert_eq!(group.failed().await, "ends: ended unexpectedly");

        let group = TaskGroup::new();
        group.spawn_critical("errs", async { Err("no disk") });
        assert_eq!(group.failed().await, "errs: no disk");

        let group = TaskGroup::new();
        group.spawn_critical("panics", async {
            if group_is_needed() {
                panic!("broken");
            }
            Ok::<(), String>(())
        });
        assert_eq!(group.failed().await, "panics: panicked: broken");
    }

    fn group_is_needed() -> bool {
        true
    }

    #[tokio::test]
    async fn a_critical_task_may_end_after_shutdown_began() {
        let group = TaskGroup::new();
        let token = group.shutdown_token();
        group.spawn_critical("listener", async move {
            token.cancelled().await;
            Ok::<(), String>(())
        });
        assert!(group.shutdown(Duration::from_secs(5)).await.is_empty());
        assert!(group.shared.state.lock().failure.is_none());
    }

    #[tokio::test]
    async fn a_panic_ends_only_its_own_task() {
        let group = TaskGroup::new();
        group.spawn("panics", async { panic!("expected by this test") });
        let token = group.shutdown_token();
        group.spawn("goes on", async move { token.cancelled().await });
        while group.len() > 1 {
            tokio::task::yield_now().await;
        }
        assert!(group.shutdown(Duration::from_secs(5)).await.is_empty());
    }
}
