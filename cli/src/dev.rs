//! `kagami dev`: a cluster of one controller and one broker in this process, for trying things out.

use std::path::PathBuf;

use clap::Args;

use crate::embedded::{Embedded, Ports};
use crate::failure::Failure;
use crate::topic::key_values;

#[derive(Args)]
pub struct DevCommand {
    /// Where to keep the data; removed afterwards when absent.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// The broker's port; the controller's are the two above it.
    #[arg(long, default_value_t = 9092, value_parser = clap::value_parser!(u16).range(1..=65_533))]
    port: u16,
    /// A key of the properties file, for both; may be repeated.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

pub async fn run(command: DevCommand) -> Result<(), Failure> {
    let temporary;
    let directory = match &command.directory {
        Some(directory) => directory.clone(),
        None => {
            temporary = tempfile::TempDir::with_prefix("kagami-dev-")
                .map_err(|error| Failure::refused(format!("cannot make a directory: {error}")))?;
            temporary.path().to_path_buf()
        }
    };
    let port = command.port;
    let ports = Ports { broker: port, controller: port + 1, quorum: port + 2 };
    let cluster = Embedded::start(&directory, ports, &key_values(&command.overrides)?).await?;
    println!("broker      {}", cluster.bootstrap);
    println!("controller  {}", cluster.bootstrap_controller);
    println!("cluster id  {}", cluster.cluster_id);
    println!("data        {}", directory.display());
    println!("Ctrl-C ends it.");
    wait_for_signal().await?;
    cluster.shutdown().await;
    Ok(())
}

async fn wait_for_signal() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| Failure::refused(format!("cannot listen for signals: {error}")))?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
