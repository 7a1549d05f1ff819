//! Foreign programs. Each runs in a process group of its own, which is killed when its handle goes: no
//! outcome of a test leaves a process behind.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What a program did.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

impl Outcome {
    /// The output of a program that succeeded.
    pub fn success(self, what: &str) -> Result<String> {
        ensure!(
            self.code == 0,
            "{what}: exit code {}: {}",
            self.code,
            last_lines(&format!("{}\n{}", self.output, self.errors))
        );
        Ok(self.output)
    }
}

/// As much of a program's words as a message can bear.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

/// Kills what is left of a program's group.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.0.take() {
            let _ = std::process::Command::new("kill")
                .args(["-KILL", "--", &format!("-{id}")])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Runs a program to its end.
pub async fn run(what: &str, mut command: Command, within: Duration) -> Result<Outcome> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {what}"))?;
    let mut group = Group(child.id());
    let output = match timeout(within, child.wait_with_output()).await {
        Ok(output) => output.with_context(|| format!("wait for {what}"))?,
        Err(_) => bail!("{what} did not end within {within:?}"),
    };
    group.0 = None;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Outcome {
        code: output.status.code().unwrap_or(-1),
        output: text(&output.stdout),
        errors: text(&output.stderr),
    })
}

/// A program that answers each line of its input by a line.
pub struct Conversation {
    what: String,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
    _group: Group,
}

impl Conversation {
    pub fn start(what: &str, mut command: Command) -> Result<Conversation> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {what}"))?;
        let group = Group(child.id());
        let input = child.stdin.take().context("its input")?;
        let output = child.stdout.take().context("its output")?;
        Ok(Conversation {
            what: what.to_owned(),
            input,
            output: BufReader::new(output).lines(),
            _child: child,
            _group: group,
        })
    }

    /// Sends a line; the answer must begin with "ok", what follows is returned.
    pub async fn ask(&mut self, line: &str, within: Duration) -> Result<String> {
        let what = format!("{}: {line}", self.what);
        let exchange = async {
            self.input.write_all(format!("{line}\n").as_bytes()).await?;
            self.input.flush().await?;
            self.output.next_line().await
        };
        let answer = timeout(within, exchange)
            .await
            .with_context(|| format!("{what}: no answer within {within:?}"))?
            .with_context(|| what.clone())?
            .with_context(|| format!("{what}: it ended"))?;
        match answer.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => bail!("{what}: {answer}"),
        }
    }
}
