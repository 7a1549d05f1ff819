//! Tables for people, JSON for programs.

use comfy_table::{Table, presets};

use crate::failure::Failure;

/// A table as Kafka's tools print them: headings in capitals, columns apart, no lines.
pub fn print_table(headings: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for line in table.to_string().lines() {
        println!("{}", line.trim_end().strip_prefix(' ').unwrap_or(line.trim_end()));
    }
}

pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::refused(format!("cannot print JSON: {error}")))?;
    println!("{text}");
    Ok(())
}

/// An offset, or `-` where it is not known.
pub fn known(value: i64) -> String {
    if value < 0 { "-".to_owned() } else { value.to_string() }
}
