//! `kagami storage`: ids, and formatting of log directories before the first start.

use std::path::PathBuf;

use clap::Subcommand;
use uuid::Uuid;

use crate::failure::Failure;

#[derive(Subcommand)]
pub enum StorageCommand {
    /// Print a new cluster id.
    RandomUuid,
    /// Write meta.properties into each of a node's log directories.
    Format {
        /// The node's properties file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The cluster id, the same for all nodes; make one with `kagami storage random-uuid`.
        #[arg(long, value_name = "ID", allow_hyphen_values = true)]
        cluster_id: String,
        /// Leave directories alone that are formatted already.
        #[arg(long)]
        ignore_formatted: bool,
    },
}

pub fn run(command: StorageCommand) -> Result<(), Failure> {
    match command {
        StorageCommand::RandomUuid => {
            println!("{}", random_uuid());
            Ok(())
        }
        StorageCommand::Format { config, cluster_id, ignore_formatted } => {
            let formatted = common::storage::format_node(&config, &cluster_id, ignore_formatted)
                .map_err(|error| Failure::refused(error.to_string()))?;
            for line in formatted {
                println!("{line}");
            }
            Ok(())
        }
    }
}

/// A random id that never begins with `-`, which tools would take for a flag.
pub fn random_uuid() -> String {
    loop {
        let id = common::ids::TopicId(Uuid::new_v4()).to_string();
        if !id.starts_with('-') {
            return id;
        }
    }
}
