//! Runs everything of a simulation in one thread: which of the tasks that could go on is next comes from the
//! seed, and time passes only when there is none.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::random::Random;

/// A process whose tasks end together: one life of a node, or [`WORLD`].
pub type Owner = u32;
/// Clients, operators and faults.
pub const WORLD: Owner = 0;
/// The future that the executor was given to complete.
const MAIN: u64 = 0;
/// What a step of a task takes, so that one that never waits cannot stop the time.
const STEP_NS: u64 = 500;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Executor>>> = const { RefCell::new(None) };
}

pub struct Executor {
    now_ns: Cell<u64>,
    random: RefCell<Random>,
    next_number: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    /// In order.
    ready: Arc<Mutex<Vec<u64>>>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    /// Whose task runs.
    owner: Cell<Owner>,
    /// Owners that stand still, with their tasks that could go on.
    paused: RefCell<BTreeMap<Owner, Vec<u64>>>,
    /// Thousandths of the true speed at which an owner's clock runs.
    clocks: RefCell<BTreeMap<Owner, u64>>,
    steps: Cell<u64>,
    digest: Cell<u64>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    owner: Owner,
    /// Away while it runs.
    work: Option<Work>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    number: u64,
    queued: AtomicBool,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            insert(&mut self.ready.lock(), self.number);
        }
    }
}

/// By number, not by the order of being woken: tokio's watch channel wakes in an order of its own chance.
fn insert(ready: &mut Vec<u64>, number: u64) {
    let place = ready.partition_point(|other| *other < number);
    ready.insert(place, number);
}

impl Executor {
    pub fn new(seed: u64) -> Rc<Executor> {
        Rc::new(Executor {
            // Not zero: some sums go back a little from the first moment.
            now_ns: Cell::new(3_600_000_000_000),
            random: RefCell::new(Random::new(seed)),
            next_number: Cell::new(MAIN + 1),
            tasks: RefCell::default(),
            ready: Arc::default(),
            timers: RefCell::default(),
            owner: Cell::new(WORLD),
            paused: RefCell::default(),
            clocks: RefCell::default(),
            steps: Cell::new(0),
            digest: Cell::new(0xcbf2_9ce4_8422_2325),
        })
    }

    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Of who did what when.
    pub fn digest(&self) -> u64 {
        self.digest.get()
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Runs until the future is complete. What other tasks had still to do stays for the next call.
    pub fn block_on<F: Future>(self: &Rc<Self>, future: F) -> F::Output {
        let before = CURRENT.replace(Some(self.clone()));
        let _restore = Restore(before);
        let mut future = std::pin::pin!(future);
        let main = self.waker(MAIN);
        main.clone().wake();
        loop {
            let Some(number) = self.next() else { panic!("nothing can happen any more") };
            if number != MAIN {
                self.poll(number);
                continue;
            }
            main.queued.store(false, Ordering::Relaxed);
            self.owner.set(WORLD);
            let waker = Waker::from(main.clone());
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
        }
    }

    /// Drops all tasks.
    pub fn clear(self: &Rc<Self>) {
        let before = CURRENT.replace(Some(self.clone()));
        let _restore = Restore(before);
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop(timers);
    }

    fn waker(&self, number: u64) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { number, queued: AtomicBool::new(false), ready: self.ready.clone() })
    }

    /// A task that can go on. Time passes where there is none.
    fn next(&self) -> Option<u64> {
        loop {
            let number = {
                let mut ready = self.ready.lock();
                let index = self.random.borrow_mut().below(ready.len());
                if index < ready.len() { Some(ready.remove(index)) } else { None }
            };
            let Some(number) = number else {
                if self.fire() {
                    continue;
                }
                return None;
            };
            let owner = self.tasks.borrow().get(&number).map_or(WORLD, |task| task.owner);
            if let Some(waiting) = self.paused.borrow_mut().get_mut(&owner) {
                waiting.push(number);
                continue;
            }
            self.steps.set(self.steps.get() + 1);
            self.now_ns.set(self.now_ns.get() + STEP_NS);
            let mixed = (self.digest.get() ^ number ^ self.now_ns.get().rotate_left(17)).rotate_left(5);
            self.digest.set(mixed.wrapping_mul(0x0100_0000_01b3));
            // What is due by now may compete with what was ready before.
            while self.timers.borrow().first_key_value().is_some_and(|((at, _), _)| *at <= self.now_ns.get())
            {
                self.fire();
            }
            return Some(number);
        }
    }

    /// Wakes whom the earliest timer is for.
    fn fire(&self) -> bool {
        let first = self.timers.borrow_mut().pop_first();
        let Some(((at, _), waker)) = first else { return false };
        self.now_ns.set(self.now_ns.get().max(at));
        waker.wake();
        true
    }

    fn poll(&self, number: u64) {
        let taken = self.tasks.borrow_mut().get_mut(&number).and_then(|task| {
            task.waker.queued.store(false, Ordering::Relaxed);
            Some((task.owner, task.waker.clone(), task.work.take()?))
        });
        // It may have ended after it was woken.
        let Some((owner, waker, mut work)) = taken else { return };
        self.owner.set(owner);
        let waker = Waker::from(waker);
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        let mut tasks = self.tasks.borrow_mut();
        if polled.is_pending() {
            // If it is not there, it was killed by what it did itself.
            if let Some(task) = tasks.get_mut(&number) {
                task.work = Some(work);
            }
        } else {
            tasks.remove(&number);
            drop(tasks);
            drop(work);
        }
    }

    fn number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        number
    }
}

struct Restore(Option<Rc<Executor>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

fn with<T>(work: impl FnOnce(&Executor) -> T) -> T {
    let current = CURRENT.with_borrow(Option::clone);
    work(&current.expect("a simulation runs"))
}

pub fn random<T>(draw: impl FnOnce(&mut Random) -> T) -> T {
    with(|executor| draw(&mut executor.random.borrow_mut()))
}

pub fn true_now_ns() -> u64 {
    with(Executor::now_ns)
}

/// As the clock of whoever asks shows it.
pub fn now_ns() -> u64 {
    with(|executor| executor.now_ns() / 1_000 * executor.clock_speed())
}

/// The true time at which that clock will show `local_ns`.
pub fn due_ns(local_ns: u64) -> u64 {
    with(|executor| local_ns.div_ceil(executor.clock_speed()).saturating_mul(1_000))
}

impl Executor {
    fn clock_speed(&self) -> u64 {
        self.clocks.borrow().get(&self.owner.get()).copied().unwrap_or(1_000)
    }
}

pub fn set_clock(owner: Owner, thousandths: u64) {
    with(|executor| {
        executor.clocks.borrow_mut().insert(owner, thousandths);
    });
}

pub fn owner() -> Owner {
    with(|executor| executor.owner.get())
}

pub fn spawn(owner: Owner, work: Work) {
    with(|executor| {
        let number = executor.number();
        let waker = executor.waker(number);
        executor.tasks.borrow_mut().insert(number, Task { owner, work: Some(work), waker: waker.clone() });
        waker.wake();
    });
}

/// All tasks of an owner end where they stand.
pub fn kill(owner: Owner) {
    let killed: Vec<Task> = with(|executor| {
        executor.paused.borrow_mut().remove(&owner);
        let mut tasks = executor.tasks.borrow_mut();
        let of_owner = tasks.iter().filter(|(_, task)| task.owner == owner).map(|(number, _)| *number);
        let of_owner: Vec<u64> = of_owner.collect();
        of_owner.iter().filter_map(|number| tasks.remove(number)).collect()
    });
    drop(killed);
}

/// An owner stands still, as a stopped process does.
pub fn pause(owner: Owner) {
    with(|executor| {
        executor.paused.borrow_mut().entry(owner).or_default();
    });
}

pub fn resume(owner: Owner) {
    with(|executor| {
        let waiting = executor.paused.borrow_mut().remove(&owner).unwrap_or_default();
        let mut ready = executor.ready.lock();
        waiting.into_iter().for_each(|number| insert(&mut ready, number));
    });
}

/// A timer that is set; it is taken back by being dropped.
pub struct Timer(u64, u64);

impl Timer {
    pub fn set(at_ns: u64, waker: Waker) -> Timer {
        with(|executor| {
            let number = executor.number();
            executor.timers.borrow_mut().insert((at_ns, number), waker);
            Timer(at_ns, number)
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let current = CURRENT.with_borrow(Option::clone);
        let waker = current.map(|executor| executor.timers.borrow_mut().remove(&(self.0, self.1)));
        drop(waker);
    }
}
