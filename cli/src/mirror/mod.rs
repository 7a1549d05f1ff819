//! `kagami mirror`: create mirrors, add topics, fail over, look.

mod change;
mod describe;
mod gather;
mod remove;
mod selection;
mod wait;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::target::AnyTarget;

pub use gather::describe_all;
pub use selection::Selection;

#[derive(Subcommand)]
pub enum MirrorCommand {
    /// Create a mirror: a named pull relation from a source cluster.
    Create {
        #[command(flatten)]
        target: AnyTarget,
        #[arg(long)]
        mirror: String,
        /// The source's brokers, HOST:PORT[,HOST:PORT].
        #[arg(long, value_name = "HOST:PORT")]
        source: String,
        /// Client properties for the source; files they name are sent inline as PEM.
        #[arg(long, value_name = "FILE")]
        mirror_config: Option<PathBuf>,
        /// A mirror config; may be repeated.
        #[arg(long = "config", value_name = "KEY=VALUE")]
        configs: Vec<String>,
    },
    /// Change a mirror's configs: rotate a password, correct an address.
    Alter {
        #[command(flatten)]
        target: AnyTarget,
        #[arg(long)]
        mirror: String,
        /// A mirror config, empty value: back to its default; may be repeated.
        #[arg(long = "config", value_name = "KEY=VALUE", required = true)]
        configs: Vec<String>,
    },
    /// Mirror topics of the source.
    Add {
        #[command(flatten)]
        target: AnyTarget,
        #[arg(long)]
        mirror: String,
        /// A regular expression over whole topic names at the source; may be repeated.
        #[arg(long, value_name = "REGEX", required = true, num_args = 1..)]
        topic: Vec<String>,
        /// Wait until every partition is MIRRORING.
        #[arg(long)]
        wait: bool,
        /// Empty partitions whose source cannot tell what they have in common, and copy them anew.
        #[arg(long)]
        recopy: bool,
    },
    /// Fail over: stop mirroring topics and make them writable here.
    Remove {
        #[command(flatten)]
        target: AnyTarget,
        #[command(flatten)]
        selection: RemoveSelection,
        /// Wait until every partition is writable.
        #[arg(long)]
        wait: bool,
    },
    /// List the mirrors.
    List {
        #[command(flatten)]
        target: AnyTarget,
    },
    /// State, offsets and lag of every partition.
    Describe {
        #[command(flatten)]
        target: AnyTarget,
        /// All mirrors when absent.
        #[arg(long)]
        mirror: Option<String>,
        /// A regular expression over whole topic names.
        #[arg(long, value_name = "REGEX")]
        topic: Option<String>,
        /// Repeat every second until interrupted.
        #[arg(long)]
        watch: bool,
    },
}

#[derive(Args)]
pub struct RemoveSelection {
    #[arg(long)]
    pub mirror: String,
    /// A regular expression over whole names of the mirror's topics; may be repeated.
    #[arg(long, value_name = "REGEX", num_args = 1.., required_unless_present = "all")]
    pub topic: Vec<String>,
    /// All topics of the mirror.
    #[arg(long, conflicts_with = "topic")]
    pub all: bool,
}

pub async fn run(command: MirrorCommand) -> Result<(), Failure> {
    match command {
        MirrorCommand::Create { target, mirror, source, mirror_config, configs } => {
            change::create(target, mirror, source, mirror_config, configs).await
        }
        MirrorCommand::Alter { target, mirror, configs } => change::alter(target, mirror, configs).await,
        MirrorCommand::Add { target, mirror, topic, wait, recopy } => {
            change::add(target, mirror, topic, wait, recopy).await
        }
        MirrorCommand::Remove { target, selection, wait } => remove::remove(target, selection, wait).await,
        MirrorCommand::List { target } => describe::list(target).await,
        MirrorCommand::Describe { target, mirror, topic, watch } => {
            describe::describe(target, mirror, topic, watch).await
        }
    }
}
