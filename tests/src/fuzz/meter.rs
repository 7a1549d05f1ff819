//! What the process has allocated, from the allocator of the program that runs the fuzzer.

/// How a program measures: its allocator is chosen in its own root.
#[derive(Clone, Copy)]
pub struct Meter {
    pub current_bytes: fn() -> usize,
    pub peak_bytes: fn() -> usize,
    /// The peak becomes what is allocated now.
    pub reset_peak: fn(),
}

impl Meter {
    /// The most that was allocated at a time while `work` ran, beyond what was before.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> (T, usize) {
        let before = (self.current_bytes)();
        (self.reset_peak)();
        let result = work();
        (result, (self.peak_bytes)().saturating_sub(before))
    }
}

/// The most memory that the process has used, decoders written in C included; 0 where the system does not tell.
pub fn peak_resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    kibibytes.unwrap_or(0) * 1024
}
