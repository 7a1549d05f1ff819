//! `kagami quorum`: the controllers: who leads, who belongs to them, and what becomes of brokers for good.

mod change;
mod describe;
mod recover;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::target::AnyTarget;

#[derive(Subcommand)]
pub enum QuorumCommand {
    /// Leader, epoch, voters and observers.
    Describe {
        #[command(flatten)]
        target: AnyTarget,
    },
    /// Make a controller that runs, and observes the quorum, a voter.
    Add {
        #[command(flatten)]
        controller: Controller,
        #[command(flatten)]
        target: AnyTarget,
    },
    /// Take a voter out of the quorum.
    Remove {
        #[command(flatten)]
        controller: Controller,
        #[command(flatten)]
        target: AnyTarget,
    },
    /// Hand the leadership to a voter.
    TransferLeader {
        /// The voter that is to lead.
        #[arg(long, value_name = "ID")]
        node_id: i32,
        #[command(flatten)]
        target: AnyTarget,
    },
    /// After a majority of the voters is lost for good: make the survivor with the most the only voter.
    ///
    /// Run it where that controller was stopped. Without --confirm nothing is written: it shows what the
    /// controller has, and what would be given up.
    Recover(recover::RecoverArgs),
    /// Take a broker that is stopped out of the cluster for good.
    UnregisterBroker {
        #[arg(long, value_name = "ID")]
        node_id: i32,
        #[command(flatten)]
        target: AnyTarget,
    },
}

/// Which one of the controllers.
#[derive(Args, Clone, Debug)]
pub struct Controller {
    #[arg(long, value_name = "ID")]
    node_id: i32,
    /// The id of its formatted directory, where the node id alone does not tell.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    directory_id: Option<String>,
}

pub async fn run(command: QuorumCommand) -> Result<(), Failure> {
    match command {
        QuorumCommand::Describe { target } => describe::run(target).await,
        QuorumCommand::Add { controller, target } => change::add(controller, target).await,
        QuorumCommand::Remove { controller, target } => change::remove(controller, target).await,
        QuorumCommand::TransferLeader { node_id, target } => change::transfer(node_id, target).await,
        QuorumCommand::Recover(arguments) => recover::run(arguments).await,
        QuorumCommand::UnregisterBroker { node_id, target } => change::unregister(node_id, target).await,
    }
}
