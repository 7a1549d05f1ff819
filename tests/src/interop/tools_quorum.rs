//! Kafka's tools for the controllers, the features and the brokers of a cluster, against three controllers and
//! three brokers: what they print, and what they are refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::mirroring::start;
use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};
use crate::eventually::eventually;
use crate::foreign::{java, kafka_tool};

const TOPIC: &str = "orders";
const LIMIT: Duration = Duration::from_secs(60);

pub async fn run() -> Result<()> {
    let (mut cluster, mut client) = start(ClusterSpec::new(3, 3)).await?;
    let files = TempDir::with_prefix("kagami-tools-")?;
    client.create_topic(TOPIC, 3, 2, &[]).await?;
    describe_quorum(&cluster).await?;
    voters(&mut cluster, files.path()).await?;
    features(&cluster).await?;
    log_dirs(&cluster, &mut client).await?;
    offsets_that_are_not_there(&cluster, files.path()).await?;
    append_and_subtract(&cluster).await?;
    cluster_tool(&mut cluster).await
}

async fn tool(arguments: &[&str]) -> Result<String> {
    kafka_tool(arguments).await?.success(&arguments.join(" "))
}

/// The tool must fail, and say this.
async fn refused(arguments: &[&str], words: &[&str]) -> Result<()> {
    let outcome = kafka_tool(arguments).await?;
    let said = format!("{}\n{}", outcome.output, outcome.errors);
    ensure!(outcome.code != 0, "{}: succeeded: {said}", arguments.join(" "));
    ensure!(words.iter().any(|word| said.contains(word)), "not {words:?} but: {}", said.trim());
    Ok(())
}

fn expect(said: &str, wanted: &str) -> Result<()> {
    ensure!(said.contains(wanted), "not {wanted:?} but: {}", said.trim());
    Ok(())
}

/// The value behind `NAME:` of describe --status.
fn field<'a>(said: &'a str, name: &str) -> Result<&'a str> {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim).with_context(|| format!("no {name} in: {said}"))
}

/// The rows of describe --replication: node, directory, log end, lag, fetched, caught up, status.
fn rows(said: &str) -> Vec<Vec<&str>> {
    let rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.first().is_some_and(|first| first.parse::<i32>().is_ok())).collect()
}

async fn replication(at: &[&str; 2]) -> Result<String> {
    tool(&["metadata-quorum", at[0], at[1], "describe", "--replication"]).await
}

async fn describe_quorum(cluster: &Cluster) -> Result<()> {
    let (servers, controllers) = (cluster.bootstrap(), cluster.bootstrap_controller());
    let by_controller = ["--bootstrap-controller", controllers.as_str()];
    let said = tool(&["metadata-quorum", by_controller[0], by_controller[1], "describe", "--status"]).await?;
    ensure!(field(&said, "ClusterId")? == cluster.cluster_id(), "{said}");
    let leader: i32 = field(&said, "LeaderId")?.parse()?;
    ensure!(cluster.controllers().contains(&leader), "{said}");
    ensure!(field(&said, "LeaderEpoch")?.parse::<i32>()? > 0, "{said}");
    ensure!(field(&said, "HighWatermark")?.parse::<i64>()? > 0, "{said}");
    ensure!(field(&said, "MaxFollowerLag")?.parse::<i64>()? >= 0, "{said}");
    let voters: Value = serde_json::from_str(field(&said, "CurrentVoters")?)?;
    let voters = voters.as_array().context("a list")?;
    ensure!(voters.len() == 3, "{said}");
    for voter in voters {
        let directory = voter["directoryId"].as_str().unwrap_or_default();
        let endpoint = voter["endpoints"][0].as_str().unwrap_or_default();
        ensure!(directory.len() == 22 && endpoint.starts_with("CONTROLLER://"), "{voter}");
    }
    let observers: Value = serde_json::from_str(field(&said, "CurrentObservers")?)?;
    ensure!(observers.as_array().is_some_and(|observers| observers.len() == 3), "{said}");

    // Through a broker as well.
    let said = replication(&["--bootstrap-server", &servers]).await?;
    let header = said.lines().find(|line| line.starts_with("NodeId")).unwrap_or_default();
    let columns: Vec<&str> = header.split_whitespace().collect();
    let expected = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp"];
    ensure!(columns.starts_with(&expected) && columns.ends_with(&["Status"]), "{said}");
    let rows = rows(&said);
    let of = |status: &str| rows.iter().filter(|row| row.last() == Some(&status)).count();
    ensure!((of("Leader"), of("Follower"), of("Observer")) == (1, 2, 3), "{said}");
    note("metadata-quorum: status, replication");
    Ok(())
}

/// A controller's properties as Kafka's tool reads them.
fn controller_properties(cluster: &Cluster, id: i32, directory: &Path) -> Result<PathBuf> {
    let path = directory.join(format!("controller-{id}.properties"));
    let text = format!(
        "process.roles=controller\nnode.id={id}\nlog.dirs={}\nlisteners=CONTROLLER://{}\n\
         controller.listener.names=CONTROLLER\n",
        cluster.data_directory(id).display(),
        cluster.controller_address(id)
    );
    std::fs::write(&path, text)?;
    Ok(path)
}

async fn voters(cluster: &mut Cluster, directory: &Path) -> Result<()> {
    let added = cluster.add_controller()?;
    cluster.start_node(added)?;
    let controllers = cluster.bootstrap_controller();
    let by_controller = ["--bootstrap-controller", controllers.as_str()];
    let status = |said: &str, id: i32| {
        let id = id.to_string();
        let row = rows(said).into_iter().find(|row| row[0] == id);
        row.map(|row| (row[1].to_owned(), row[row.len() - 1].to_owned()))
    };
    let (id, _) = eventually("the new controller observes", LIMIT, || async {
        let said = replication(&by_controller).await?;
        Ok(status(&said, added).filter(|(_, status)| status == "Observer"))
    })
    .await?;
    let file = controller_properties(cluster, added, directory)?;
    let file = file.to_str().context("a path")?;
    let add =
        [&["metadata-quorum"][..], &by_controller, &["--command-config", file, "add-controller"]].concat();
    let said = tool(&[&add[..], &["--dry-run"]].concat()).await?;
    expect(&said, &format!("DRY RUN of adding controller {added}"))?;
    let said = tool(&add).await?;
    expect(&said, &format!("Added controller {added} with directory id {id}"))?;
    refused(&add, &["already a voter", "DuplicateVoter"]).await?;

    let number = added.to_string();
    let remove = |number: &str, directory: &str| {
        let arguments = ["metadata-quorum", by_controller[0], by_controller[1], "remove-controller"];
        let more = ["--controller-id", number, "--controller-directory-id", directory];
        arguments.iter().chain(&more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let said = replication(&by_controller).await?;
    ensure!(status(&said, added).is_some_and(|(_, status)| status == "Follower"), "{said}");
    let stranger = remove("999", &id);
    let stranger: Vec<&str> = stranger.iter().map(String::as_str).collect();
    refused(&stranger, &["is not a voter", "VoterNotFound"]).await?;
    // The leader, too: it hands over, and the tool asks the next one.
    let leader = rows(&said).into_iter().find(|row| row.last() == Some(&"Leader")).context("a leader")?;
    for (number, directory) in [(leader[0], leader[1]), (number.as_str(), id.as_str())] {
        let arguments = remove(number, directory);
        let said = tool(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        expect(&said, &format!("Removed KRaft controller {number} with directory id {directory}"))?;
    }
    let file = controller_properties(cluster, leader[0].parse()?, directory)?;
    let file = file.to_str().context("a path")?;
    let back =
        [&["metadata-quorum"][..], &by_controller, &["--command-config", file, "add-controller"]].concat();
    expect(&tool(&back).await?, &format!("Added controller {}", leader[0]))?;
    note("metadata-quorum: add-controller, remove-controller, the leader as well");
    Ok(())
}

async fn features(cluster: &Cluster) -> Result<()> {
    let servers = cluster.bootstrap();
    let features = |more: &[&'static str]| {
        let mut arguments = vec!["features".to_owned(), "--bootstrap-server".to_owned(), servers.clone()];
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        arguments
    };
    let described = features(&["describe"]);
    let said = tool(&described.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let line = |name: &str| {
        let line = said.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.with_context(|| format!("no feature {name} in: {said}"))
    };
    expect(line("metadata.version")?, "FinalizedVersionLevel: 4.4-IV")?;
    expect(line("kagami.metadata.version")?, "FinalizedVersionLevel: 1")?;
    for (arguments, wanted) in [
        (&["upgrade", "--feature", "kagami.metadata.version=1"][..], "was upgraded to 1"),
        (&["upgrade", "--feature", "metadata.version=33", "--dry-run"], "can be upgraded to 33"),
    ] {
        let arguments = features(arguments);
        let said = tool(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        expect(&said, wanted)?;
    }
    for arguments in [
        &["upgrade", "--feature", "kagami.metadata.version=2"][..],
        &["upgrade", "--feature", "share.version=1"],
        &["downgrade", "--metadata", "4.0"],
        &["disable", "--feature", "kagami.metadata.version"],
    ] {
        let arguments = features(arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused(&arguments, &["Could not", "Can not"]).await?;
    }
    note("features: described, upgraded, refused");
    Ok(())
}

async fn log_dirs(cluster: &Cluster, client: &mut Client) -> Result<()> {
    let servers = cluster.bootstrap();
    let said =
        tool(&["log-dirs", "--bootstrap-server", &servers, "--describe", "--topic-list", TOPIC]).await?;
    let text = said.lines().find(|line| line.starts_with('{')).with_context(|| format!("no JSON: {said}"))?;
    let shown: Value = serde_json::from_str(text)?;
    let brokers = shown["brokers"].as_array().context("brokers")?;
    ensure!(brokers.len() == 3, "{text}");
    let mut replicas = 0;
    for broker in brokers {
        let id = broker["broker"].as_i64().context("an id")? as i32;
        for directory in broker["logDirs"].as_array().context("directories")? {
            ensure!(directory["error"].is_null(), "{directory}");
            let path = directory["logDir"].as_str().map(PathBuf::from);
            ensure!(path == Some(cluster.data_directory(id)), "{directory}");
            for partition in directory["partitions"].as_array().context("partitions")? {
                ensure!(partition["offsetLag"] == 0 && partition["isFuture"] == false, "{partition}");
                replicas += 1;
            }
        }
    }
    let wanted: usize =
        client.topic(TOPIC).await?.partitions.iter().map(|partition| partition.replica_nodes.len()).sum();
    ensure!(replicas == wanted, "{replicas} replicas, not {wanted}: {text}");
    note("log-dirs");
    Ok(())
}

async fn offsets_that_are_not_there(cluster: &Cluster, directory: &Path) -> Result<()> {
    let path = directory.join("beyond.json");
    let partitions = json!([{"topic": TOPIC, "partition": 0, "offset": 1000}]);
    std::fs::write(&path, json!({"version": 1, "partitions": partitions}).to_string())?;
    let (servers, path) = (cluster.bootstrap(), path.to_str().context("a path")?);
    let arguments = ["delete-records", "--bootstrap-server", &servers, "--offset-json-file", path];
    let outcome = kafka_tool(&arguments).await?;
    let said = format!("{}\n{}", outcome.output, outcome.errors);
    expect(&said, &format!("partition: {TOPIC}-0\terror: "))?;
    expect(&said, "OffsetOutOfRange")?;
    note("delete-records: refused beyond the end");
    Ok(())
}

/// What kafka-configs cannot ask for, and the admin client can.
async fn append_and_subtract(cluster: &Cluster) -> Result<()> {
    let said = java("Configs", &[&cluster.bootstrap(), TOPIC]).await?;
    let steps: Vec<&str> = said.lines().filter(|line| line.starts_with("cleanup.policy")).collect();
    let expected = [
        "cleanup.policy append compact: delete,compact",
        "cleanup.policy append compact: delete,compact",
        "cleanup.policy subtract delete: compact",
        "cleanup.policy subtract delete: compact",
    ];
    ensure!(steps == expected, "{said}");
    expect(&said, "retention.ms append: InvalidRequestException")
        .or_else(|_| expect(&said, "retention.ms append: InvalidConfigurationException"))?;
    expect(&said, "broker 1 append: delete,compact DYNAMIC_BROKER_CONFIG")?;
    note("the admin client's append and subtract");
    Ok(())
}

async fn cluster_tool(cluster: &mut Cluster) -> Result<()> {
    let (servers, controllers) = (cluster.bootstrap(), cluster.bootstrap_controller());
    let by_server = ["--bootstrap-server", servers.as_str()];
    let by_controller = ["--bootstrap-controller", controllers.as_str()];
    for at in [by_server, by_controller] {
        let said = tool(&["cluster", "cluster-id", at[0], at[1]]).await?;
        expect(&said, &format!("Cluster ID: {}", cluster.cluster_id()))?;
    }
    let endpoints = |said: &str, kind: &str| {
        let rows = said.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        rows.filter(|row| row.last().is_some_and(|last| last == kind)).collect::<Vec<_>>()
    };
    let said = tool(&["cluster", "list-endpoints", by_controller[0], by_controller[1]]).await?;
    ensure!(endpoints(&said, "controller").len() >= 3, "{said}");
    cluster.stop(3)?;
    let id = ["--id", "3"];
    let said = eventually("broker 3 is fenced", LIMIT, || async {
        let arguments = ["cluster", "list-endpoints", by_server[0], by_server[1], "--include-fenced-brokers"];
        let said = tool(&arguments).await?;
        Ok(said.contains("fenced").then_some(said))
    })
    .await?;
    let rows = endpoints(&said, "broker");
    let fenced: Vec<&str> =
        rows.iter().filter(|row| row.contains(&"fenced".to_owned())).map(|row| row[0].as_str()).collect();
    ensure!(rows.len() == 3 && fenced == ["3"], "{said}");
    let unregister = ["cluster", "unregister", by_server[0], by_server[1], id[0], id[1]];
    expect(&tool(&unregister).await?, "Broker 3 is no longer registered.")?;
    let again = kafka_tool(&unregister).await?;
    expect(&format!("{}\n{}", again.output, again.errors), "BrokerIdNotRegistered")?;
    note("cluster: cluster-id, list-endpoints, unregister");
    Ok(())
}
