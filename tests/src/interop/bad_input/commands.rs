//! Bad flags and settings of the daemons and the command, and S9: mirror configs that arrive over the wire.

use std::time::Duration;

use anyhow::{Result, ensure};
use protocol::messages::DescribeConfigsRequest;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::{Request, Response};
use tokio::process::Command;

use super::Target;
use crate::client::{error_name, text};
use crate::cluster::binary;
use crate::process::{self, Outcome};

const LIMIT: Duration = Duration::from_secs(15);
const SECRET: &str = "hunter2-secret";
const MIRROR_RESOURCE: i8 = 64;

async fn execute(program: &str, arguments: &[&str]) -> Result<Outcome> {
    let mut command = Command::new(binary(program)?);
    command.args(arguments);
    process::run(&format!("{program} {}", arguments.join(" ")), command, LIMIT).await
}

pub(super) async fn run(target: &mut Target) -> Result<()> {
    daemons().await?;
    usage().await?;
    mirror_configs(target).await?;
    target.ensure_healthy("bad flags and configs").await
}

/// A wrong setting ends the start with a line that names it.
async fn daemons() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir_all(&data)?;
    let file = directory.path().join("node.properties");
    let path = file.display().to_string();
    let common = format!(
        "node.id=1\nlog.dirs={}\ncontroller.quorum.voters=1@127.0.0.1:1\nquorum.listener=127.0.0.1:1\n",
        data.display()
    );
    for program in ["kagami-broker", "kagami-controller"] {
        let listener = if program == "kagami-broker" { "PLAINTEXT" } else { "CONTROLLER" };
        let good = format!("{common}listeners={listener}://127.0.0.1:1\n");
        let cases = [
            (format!("{good}default.replication.factor=many\n"), "default.replication.factor"),
            (format!("{good}broker.session.timeout.ms=-4\n"), "broker.session.timeout.ms"),
            (format!("{common}listeners=HTTP//nowhere\n"), "listeners"),
            (good.replace("node.id=1\n", ""), "node.id"),
            // Never started unformatted.
            (good.clone(), "format"),
        ];
        for (properties, named) in cases {
            std::fs::write(&file, properties)?;
            let outcome = execute(program, &["--config", &path]).await?;
            let said = format!("{}{}", outcome.output, outcome.errors);
            ensure!(outcome.code != 0, "{program} started with a bad {named}");
            ensure!(said.contains(named), "{program} with a bad {named} said {said:?}");
            ensure!(!said.contains("panicked"), "{program} with a bad {named}: {said}");
        }
        for arguments in [&["--config", "/no/such/file"][..], &["--no-such-flag"], &[]] {
            let outcome = execute(program, arguments).await?;
            ensure!(outcome.code != 0, "{program} {arguments:?} started");
        }
    }
    Ok(())
}

/// Wrong usage is exit code 2, whatever the cluster.
async fn usage() -> Result<()> {
    let cases: [&[&str]; 8] = [
        &["no-such-command"],
        &["mirror", "create", "--mirror", "m", "--source", "a:1"],
        &["mirror", "create", "--bootstrap-server", "nonsense", "--mirror", "m", "--source", "a:1"],
        &["mirror", "add", "--bootstrap-server", "127.0.0.1:1", "--mirror", "m"],
        &["mirror", "remove", "--bootstrap-server", "127.0.0.1:1", "--mirror", "m", "--all", "--topic", "t"],
        &["mirror", "add", "--bootstrap-server", "127.0.0.1:1", "--mirror", "m", "--topic", "("],
        &["topic", "create", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--partitions", "many"],
        &["verify", "--bootstrap-server", "127.0.0.1:1", "--mirror", "m", "--timeout", "0"],
    ];
    for arguments in cases {
        let outcome = execute("kagami", arguments).await?;
        ensure!(
            outcome.code == 2,
            "kagami {arguments:?}: exit code {}: {}",
            outcome.code,
            outcome.errors.trim()
        );
    }
    let nobody = ["topic", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"];
    let outcome = execute("kagami", &nobody).await?;
    ensure!(outcome.code == 3, "kagami at a port where nobody listens: exit code {}", outcome.code);
    Ok(())
}

async fn mirror_configs(target: &mut Target) -> Result<()> {
    let server = target.broker.clone();
    let huge = format!("sasl.jaas.config={}", "x".repeat(100 << 10));
    let bad_configs = [
        "ssl.truststore.location=/etc/passwd",
        "ssl.keystore.location=/etc/passwd",
        "sasl.jaas.config=com.sun.security.auth.module.JndiLoginModule required user.provider.url=\"ldap://127.0.0.1/x\";",
        "sasl.login.callback.handler.class=java.lang.Object",
        "sasl.oauthbearer.token.endpoint.url=http://127.0.0.1/",
        "ssl.truststore.certificates=${file:/etc/passwd:x}",
        "request.timeout.ms=${env:HOME}",
        "request.timeout.ms=-1",
        "security.protocol=SASL_PLAINTEXT",
        "no.such.key=1",
        huge.as_str(),
    ];
    for config in bad_configs {
        let arguments = [
            "mirror",
            "create",
            "--bootstrap-server",
            &server,
            "--mirror",
            "bad",
            "--source",
            "127.0.0.1:1",
            "--config",
            config,
        ];
        let outcome = execute("kagami", &arguments).await?;
        let shown = &config[..config.len().min(60)];
        ensure!(
            outcome.code == 1,
            "mirror with {shown}: exit code {}: {}",
            outcome.code,
            outcome.errors.trim()
        );
        let key = config.split('=').next().unwrap_or_default();
        ensure!(
            outcome.errors.contains(key),
            "mirror with {shown} was refused with {:?}",
            outcome.errors.trim()
        );
    }
    for name in ["", ".", "..", "a:b", "a.removed", &"x".repeat(250)] {
        let arguments =
            ["mirror", "create", "--bootstrap-server", &server, "--mirror", name, "--source", "127.0.0.1:1"];
        let outcome = execute("kagami", &arguments).await?;
        ensure!(
            outcome.code == 1,
            "mirror named {name:?}: exit code {}: {}",
            outcome.code,
            outcome.errors.trim()
        );
    }
    secrets(target, &server).await
}

/// A password goes in and never comes out.
async fn secrets(target: &mut Target, server: &str) -> Result<()> {
    let password = format!("ssl.key.password={SECRET}");
    let create = [
        "mirror",
        "create",
        "--bootstrap-server",
        server,
        "--mirror",
        "secretive",
        "--source",
        "127.0.0.1:1",
        "--config",
        &password,
    ];
    let outcome = execute("kagami", &create).await?;
    ensure!(outcome.code == 0, "mirror with a password: {}", outcome.errors.trim());
    let again = execute("kagami", &create).await?;
    ensure!(again.code == 1, "the same mirror again: exit code {}", again.code);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(MIRROR_RESOURCE)
        .with_resource_name(text("secretive"));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = target.client.call_at(server, Request::DescribeConfigs(request), 4).await?;
    let Response::DescribeConfigs(response) = response else { anyhow::bail!("something else was answered") };
    let described = response.results.first();
    ensure!(
        described.is_some_and(|result| result.error_code == 0 && !result.configs.is_empty()),
        "describe of the mirror: {}",
        described.map_or_else(|| "nothing".to_owned(), |result| error_name(result.error_code))
    );
    let shown = format!("{response:?}");
    ensure!(!shown.contains(SECRET), "the password is shown: {shown}");
    for node in [target.cluster.controllers(), target.cluster.brokers()].concat() {
        ensure!(!target.cluster.log(node).contains(SECRET), "the password is in the log of node {node}");
    }
    Ok(())
}
