//! `kagami quorum recover`: offline, on the directory of a controller that is stopped. The only command that
//! can give up what was committed, so it wants to be told the whole set of voters, and a word more.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use common::ids::DirectoryId;
use controller::recovery::{Plan, Position, StoppedController, StoppedVoter, VoterId, check};
use serde_json::json;

use crate::failure::Failure;
use crate::output;

#[derive(Args)]
pub struct RecoverArgs {
    /// The properties file of the controller whose log directory it works on.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The voter that is kept: this controller.
    #[arg(long, value_name = "ID")]
    keep: Option<u64>,
    /// The voters that are lost for good.
    #[arg(long, value_name = "ID,...", value_delimiter = ',', requires = "keep")]
    lost: Vec<u64>,
    /// Another survivor, which must not have more: its directory (of a stopped controller, or a copy), or
    /// what this command has shown for it on its own machine. It is given up as well.
    #[arg(long, value_name = "ID@TERM:END|DIRECTORY", requires = "keep")]
    survivor: Vec<String>,
    /// Do it. It cannot be undone.
    #[arg(long, requires = "keep")]
    confirm: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: RecoverArgs) -> Result<(), Failure> {
    let controller = StoppedController::configured(&arguments.config).map_err(refused)?;
    let found = controller.inspect().await.map_err(refused)?;
    let Some(keep) = arguments.keep else {
        return show(&arguments, controller.cluster_id(), &found, "nothing was written");
    };
    let mut survivors = Vec::new();
    for named in &arguments.survivor {
        survivors.push(position(named, controller.cluster_id()).await?);
    }
    let plan = Plan { keep, lost: arguments.lost.iter().copied().collect(), survivors };
    check(&found, &plan).map_err(refused)?;
    if !arguments.confirm {
        let done = "nothing was written; with --confirm this controller would be the only voter";
        return show(&arguments, controller.cluster_id(), &found, done);
    }
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let after =
        controller.recover(&plan, i64::try_from(now_ms).unwrap_or(i64::MAX)).await.map_err(refused)?;
    let done = format!("recovered (recovery {}): this controller is the only voter", after.recovery);
    show(&arguments, controller.cluster_id(), &found, &done)
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::refused(error.to_string())
}

/// How far another survivor reaches: as it was shown, or as its directory says.
async fn position(named: &str, cluster_id: &str) -> Result<Position, Failure> {
    if let Ok(position) = named.parse() {
        return Ok(position);
    }
    let within = |error: &dyn std::fmt::Display| Failure::refused(format!("--survivor {named}: {error}"));
    let other = StoppedController::in_directory(Path::new(named)).map_err(|error| within(&error))?;
    if other.cluster_id() != cluster_id {
        return Err(within(&format!("it belongs to cluster {}", other.cluster_id())));
    }
    Ok(other.inspect().await.map_err(|error| within(&error))?.position)
}

fn show(arguments: &RecoverArgs, cluster_id: &str, found: &StoppedVoter, done: &str) -> Result<(), Failure> {
    let fate = |node_id: u64| match arguments.keep {
        Some(keep) if keep == node_id => "kept",
        Some(_) if arguments.lost.contains(&node_id) => "lost",
        Some(_) => "survives, given up",
        None => "-",
    };
    let StoppedVoter { voter, position, .. } = found;
    if arguments.json {
        let voters: Vec<_> = found
            .voters
            .iter()
            .map(|(id, address)| {
                json!({
                    "node": id.node_id,
                    "directory_id": DirectoryId(id.directory_id).to_string(),
                    "address": address,
                    "fate": fate(id.node_id),
                })
            })
            .collect();
        return output::print_json(&json!({
            "cluster_id": cluster_id,
            "node": voter.node_id,
            "directory_id": DirectoryId(voter.directory_id).to_string(),
            "position": position.to_string(),
            "last_term": position.last_term,
            "log_end_offset": position.end_index,
            "committed_end_offset": found.committed_end_index,
            "term": found.term,
            "recovery": found.recovery,
            "given_up": found.given_up,
            "voters": voters,
            "done": done,
        }));
    }
    println!(
        "Controller {} of cluster {cluster_id}, directory {}",
        voter.node_id,
        DirectoryId(voter.directory_id)
    );
    println!(
        "Log end {}, of term {}; known to be committed below {}; voted last in term {}",
        position.end_index, position.last_term, found.committed_end_index, found.term
    );
    if found.given_up > 0 {
        println!("Given up by recovery {}: it counts only if nothing is left of that", found.given_up);
    }
    println!("For the recovery of another survivor: --survivor {position}");
    let row = |(id, address): &(VoterId, String)| {
        let directory = DirectoryId(id.directory_id).to_string();
        vec![id.node_id.to_string(), directory, address.clone(), fate(id.node_id).to_owned()]
    };
    output::print_table(
        &["voter", "directory-id", "address", "fate"],
        found.voters.iter().map(row).collect(),
    );
    println!("{done}");
    Ok(())
}
