//! Faults placed exactly: named points at which a test makes this process wait or die.
//!
//! Only builds with `debug_assertions` have them; in a release build `point` is an empty function. They are
//! driven from outside, by files in the directory that `KAGAMI_FAULTS` names. With PLACE for `POINT` (whoever
//! passes) or `POINT@KEY` (one partition, say):
//!
//! - `PLACE.hold`: who passes waits while the file is there; `PLACE.reached` tells that somebody waits.
//! - `PLACE.crash`: who passes, or waits, renames it to `PLACE.crashed` and dies as by `kill -9`: nothing is
//!   flushed, closed or answered.
//!
//! `clock.skew` holds milliseconds by which this process' wall clock goes wrong.
//!
//! A point costs one look at the file system while the directory is not there.

#[cfg(debug_assertions)]
pub use placed::{clock_skew_ms, point, point_blocking};

/// In a release build: nothing.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &str, _key: impl std::fmt::Display) -> std::future::Ready<()> {
    std::future::ready(())
}

/// In a release build: none.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn clock_skew_ms() -> i64 {
    0
}

/// In a release build: nothing.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point_blocking(_name: &str, _key: impl std::fmt::Display) {}

#[cfg(debug_assertions)]
mod placed {
    use std::fmt::Display;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::time::Duration;

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use tokio::runtime::{Handle, RuntimeFlavor};

    const VARIABLE: &str = "KAGAMI_FAULTS";
    const LOOK_AGAIN: Duration = Duration::from_millis(2);

    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();

    /// Passes a point, unless a test has placed a fault here.
    pub fn point(name: &str, key: impl Display) -> BoxFuture<'static, ()> {
        let places = places(name, &key);
        async move {
            while places.iter().any(|place| place.holds()) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        .boxed()
    }

    /// The same where nothing can be awaited. Other tasks of the runtime go on.
    pub fn point_blocking(name: &str, key: impl Display) {
        let places = places(name, &key);
        let wait = || {
            while places.iter().any(|place| place.holds()) {
                std::thread::sleep(LOOK_AGAIN);
            }
        };
        if !places.iter().any(|place| place.holds()) {
            return;
        }
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                tokio::task::block_in_place(wait);
            }
            _ => wait(),
        }
    }

    /// How far this process' wall clock is from the machine's.
    pub fn clock_skew_ms() -> i64 {
        let Some(directory) = directory() else { return 0 };
        let skew = fs::read_to_string(directory.join("clock.skew")).ok();
        skew.and_then(|skew| skew.trim().parse().ok()).unwrap_or(0)
    }

    fn directory() -> Option<&'static PathBuf> {
        let directory = DIRECTORY.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        directory.as_ref().filter(|directory| directory.is_dir())
    }

    fn places(name: &str, key: &impl Display) -> Vec<Place> {
        directory().map_or_else(Vec::new, |directory| places_in(directory, name, key))
    }

    fn places_in(directory: &Path, name: &str, key: &impl Display) -> Vec<Place> {
        [name.to_owned(), format!("{name}@{key}")].map(|place| Place(directory.join(place))).into()
    }

    struct Place(PathBuf);

    impl Place {
        fn with(&self, ending: &str) -> PathBuf {
            let mut path = self.0.clone().into_os_string();
            path.push(ending);
            path.into()
        }

        /// Whether to wait here; does not return where the process is to die.
        fn holds(&self) -> bool {
            if fs::rename(self.with(".crash"), self.with(".crashed")).is_ok() {
                std::process::abort();
            }
            let holds = self.with(".hold").exists();
            let reached = self.with(".reached");
            // A test that cannot be told waits until its own deadline, and says so.
            if holds && !reached.exists() {
                let _ = fs::write(reached, []);
            }
            holds
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_place_holds_for_its_key_or_for_all() {
            let directory = tempfile::tempdir().unwrap();
            let holds = |key: &str| {
                let places = places_in(directory.path(), "log.append", &key);
                places.iter().any(|place| place.holds())
            };
            assert!(!holds("t-0"));
            fs::write(directory.path().join("log.append@t-0.hold"), []).unwrap();
            assert!(holds("t-0"));
            assert!(!holds("t-1"));
            assert!(directory.path().join("log.append@t-0.reached").exists());
            fs::write(directory.path().join("log.append.hold"), []).unwrap();
            assert!(holds("t-1"));
            fs::remove_file(directory.path().join("log.append.hold")).unwrap();
            assert!(!holds("t-1"));
        }

        #[tokio::test]
        async fn without_a_directory_everybody_passes() {
            point("log.append", 1).await;
            point_blocking("log.append", 1);
        }
    }
}
