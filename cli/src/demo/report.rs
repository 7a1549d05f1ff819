//! What the demo prints: live on a terminal, plain lines elsewhere, and a summary that tells whether
//! everything held.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::output;

const PLAIN_INTERVAL: Duration = Duration::from_millis(500);

pub struct Report {
    is_terminal: bool,
    last_plain: Option<Instant>,
    rows: Vec<Vec<String>>,
    failed: usize,
}

impl Report {
    pub fn new() -> Report {
        Report { is_terminal: std::io::stdout().is_terminal(), last_plain: None, rows: Vec::new(), failed: 0 }
    }

    /// A line that the next one replaces on a terminal; elsewhere one now and then.
    pub fn progress(&mut self, what: &str, line: &str) {
        if self.is_terminal {
            print!("\r\x1b[2K  {what:<24} {line}");
            let _ = std::io::stdout().flush();
        } else if self.last_plain.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) {
            self.last_plain = Some(Instant::now());
            println!("  {what:<24} {line}");
        }
    }

    pub fn step(&mut self, what: &str, result: &str, took: Duration) {
        self.end_progress();
        println!("• {what:<24} {result}  ({took:.2?})");
        self.rows.push(vec![what.to_owned(), result.to_owned(), format!("{took:.2?}"), "ok".to_owned()]);
    }

    pub fn check(&mut self, what: &str, holds: bool, result: &str) {
        self.end_progress();
        let verdict = if holds { "ok" } else { "FAILED" };
        println!("• {what:<24} {result}  ({verdict})");
        self.failed += usize::from(!holds);
        self.rows.push(vec![what.to_owned(), result.to_owned(), "-".to_owned(), verdict.to_owned()]);
    }

    fn end_progress(&mut self) {
        self.last_plain = None;
        if self.is_terminal {
            print!("\r\x1b[2K");
        }
    }

    /// The table, and the demo's verdict.
    pub fn summary(self, end_offsets: Vec<i64>, took: Duration) -> Result<(), Failure> {
        println!();
        output::print_table(&["step", "result", "took", "held"], self.rows);
        println!();
        println!("end offsets at the destination: {end_offsets:?}; whole demo {took:.1?}");
        if self.failed > 0 {
            return Err(Failure::refused(format!("{} checks did not hold", self.failed)));
        }
        Ok(())
    }
}

/// A size for people.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
