//! openraft's runtime, simulated. Channels and locks are those of tokio: they know of no runtime.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::{self, AsyncRuntime};
use openraft::impls::TokioRuntime;
use parking_lot::Mutex;
use rand::TryRng;

use super::executor::{self, Executor, Owner, Timer};

pub struct SimulatedRuntime(Rc<Executor>);

impl fmt::Debug for SimulatedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedRuntime")
    }
}

impl AsyncRuntime for SimulatedRuntime {
    type JoinError = Cancelled;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = Instant;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = SeededRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        spawn_as(executor::owner(), future)
    }

    fn sleep(duration: Duration) -> Sleep {
        Self::sleep_until(Instant(executor::now_ns()) + duration)
    }

    fn sleep_until(deadline: Instant) -> Sleep {
        Sleep { due_ns: executor::due_ns(deadline.0), timer: None }
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Timeout<F> {
        Timeout { future: Box::pin(future), sleep: Self::sleep(duration) }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Instant, future: F) -> Timeout<F> {
        Timeout { future: Box::pin(future), sleep: Self::sleep_until(deadline) }
    }

    fn is_panic(_error: &Cancelled) -> bool {
        // A panic ends the whole simulation.
        false
    }

    fn thread_rng() -> SeededRng {
        SeededRng
    }

    fn new(_threads: usize) -> SimulatedRuntime {
        SimulatedRuntime(Executor::new(0))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    async fn spawn_blocking<F, T>(work: F) -> Result<T, io::Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(work())
    }
}

impl Drop for SimulatedRuntime {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Spawns a task of somebody else.
pub fn spawn_as<T>(owner: Owner, future: T) -> JoinHandle<T::Output>
where
    T: Future + Send + 'static,
    T::Output: Send + 'static,
{
    let joint = Arc::new(Mutex::new(Joint { result: None, waker: None }));
    let completion = Completion(joint.clone());
    executor::spawn(
        owner,
        Box::pin(async move {
            let output = future.await;
            completion.0.lock().finish(Ok(output));
        }),
    );
    JoinHandle(joint)
}

/// The task was killed.
#[derive(Debug, thiserror::Error)]
#[error("killed")]
pub struct Cancelled;

#[derive(Debug, thiserror::Error)]
#[error("the time is up")]
pub struct Elapsed;

struct Joint<T> {
    result: Option<Result<T, Cancelled>>,
    waker: Option<Waker>,
}

impl<T> Joint<T> {
    fn finish(&mut self, result: Result<T, Cancelled>) {
        if self.result.is_none() {
            self.result = Some(result);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

struct Completion<T>(Arc<Mutex<Joint<T>>>);

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        self.0.lock().finish(Err(Cancelled));
    }
}

pub struct JoinHandle<T>(Arc<Mutex<Joint<T>>>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut joint = self.0.lock();
        match joint.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                joint.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

pub struct Sleep {
    due_ns: u64,
    timer: Option<Timer>,
}

impl Sleep {
    /// By the true time, whatever the owner's clock shows.
    pub fn truly(duration: Duration) -> Sleep {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Sleep { due_ns: executor::true_now_ns().saturating_add(nanos), timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.timer = None;
        if executor::true_now_ns() >= self.due_ns {
            return Poll::Ready(());
        }
        self.timer = Some(Timer::set(self.due_ns, context.waker().clone()));
        Poll::Pending
    }
}

pub struct Timeout<F> {
    future: Pin<Box<F>>,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut self.sleep).poll(context).map(|()| Err(Elapsed))
    }
}

/// Draws from the one source of chance.
pub struct SeededRng;

impl TryRng for SeededRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((executor::random(|random| random.number()) >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(executor::random(|random| random.number()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill_with(|| executor::random(|random| random.number()) as u8);
        Ok(())
    }
}

/// As the clock of its owner shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl async_runtime::Instant for Instant {
    fn now() -> Instant {
        Instant(executor::now_ns())
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(duration)))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_openrafts_suite_of_runtimes() {
        openraft::testing::runtime::Suite::<SimulatedRuntime>::test_all();
    }
}
