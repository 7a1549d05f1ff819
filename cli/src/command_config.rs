//! `--command-config`: a client properties file with Kafka's names.

use std::path::Path;

use common::config::properties::Properties;

use crate::failure::Failure;

/// Reads the file and refuses what this build cannot do, rather than connect in another way than asked.
pub fn check(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let properties =
        Properties::load(path).map_err(|error| Failure::usage(format!("--command-config: {error}")))?;
    match properties.get("security.protocol") {
        None | Some("PLAINTEXT") => Ok(()),
        Some(protocol) => Err(Failure::usage(format!(
            "--command-config: security.protocol={protocol} is not supported yet; allowed: PLAINTEXT"
        ))),
    }
}
