//! Notices an input that takes too long, and says which it was.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(50);
/// Waiting takes no processor time; nothing under test has a reason to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Of the kernel's accounting, which is always told in hundredths of a second.
const CLOCK_TICK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Current {
    number: u64,
    input: Vec<u8>,
    running: bool,
}

pub struct Watch {
    current: Arc<Mutex<Current>>,
}

impl Watch {
    /// `stuck` is called, from another thread, with an input that has used more processor time than `limit`.
    pub fn start(limit: Duration, stuck: impl Fn(&[u8]) + Send + 'static) -> Watch {
        let current: Arc<Mutex<Current>> = Arc::default();
        let watched = current.clone();
        thread::spawn(move || {
            let mut seen = 0;
            let (mut since, mut used) = (Instant::now(), processor_time());
            loop {
                thread::sleep(TICK);
                let current = watched.lock().unwrap_or_else(PoisonError::into_inner);
                if current.number != seen || !current.running {
                    seen = current.number;
                    (since, used) = (Instant::now(), processor_time());
                } else if processor_time().saturating_sub(used) > limit || since.elapsed() > LONGEST_WAIT {
                    stuck(&current.input);
                    return;
                }
            }
        });
        Watch { current }
    }

    pub fn begin(&self, input: &[u8]) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        current.running = true;
        current.input.clear();
        current.input.extend_from_slice(input);
    }

    pub fn end(&self) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).running = false;
    }
}

/// Of this process: on a busy machine a slow clock is nobody's fault.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold anything; after it come the state and ten numbers, then user and system time.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    CLOCK_TICK * ticks
}
