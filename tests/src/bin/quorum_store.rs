//! Proof of the quorum's store (cases Q5 and Q6 of what breaks a quorum): killed at points of its writing, torn at each byte of its last batch,
//! damaged by flips of single bits, and kept bounded over millions of entries. A store opens with what was
//! acknowledged (and at most the one operation that was under way), or it is refused; it never opens with
//! less.

// This program's output is what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use raft_log::proof::{self, Contents, Random, Script, Writing};
use tempfile::TempDir;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 500)]
    kills: u64,
    #[arg(long, default_value_t = 2000)]
    flips: u64,
    #[arg(long, default_value_t = 5_000_000)]
    entries: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Internal: writes in this directory until the armed point ends the process.
    #[arg(long, hide = true)]
    child: Option<std::path::PathBuf>,
    #[arg(long, hide = true, default_value_t = 0)]
    points: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(directory) = &arguments.child {
        return runtime.block_on(child(directory, arguments.seed, arguments.points));
    }
    // sled answers some damage with a panic, which the store catches. Nobody else has an excuse.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|location| location.file().contains("/sled-")) {
            print(panic);
        }
    }));
    let started = Instant::now();
    let whole = runtime.block_on(kills(arguments.seed, arguments.kills))?;
    println!("killed at {} points: {whole} operations acknowledged, none lost", arguments.kills);
    let torn = runtime.block_on(torn(arguments.seed))?;
    println!("torn at {torn} bytes of the last batch: the batch is there or it is not");
    let (refused, kept) = runtime.block_on(flips(arguments.seed, arguments.flips))?;
    println!("{} bits flipped: {refused} refused, {kept} opened with all that was written", arguments.flips);
    if arguments.entries > 0 {
        let directory = TempDir::new()?;
        let (early, largest) =
            runtime.block_on(proof::fill(directory.path(), arguments.entries, 20_000, 2000))?;
        println!("{} entries: {early} bytes after a fifth, {largest} at most", arguments.entries);
        ensure!(largest <= early.max(64 << 20) * 2, "the store grows");
    }
    println!("done in {:?}", started.elapsed());
    Ok(())
}

async fn child(directory: &Path, seed: u64, points: u64) -> Result<()> {
    let mut writing = Writing::begin(directory, seed).await?;
    let mut out = std::io::stdout();
    out.write_all(b".")?;
    out.flush()?;
    proof::arm(points);
    for _ in 0..10_000 {
        writing.step().await?;
        out.write_all(b".")?;
        out.flush()?;
    }
    Ok(())
}

/// Gives how many operations were acknowledged.
async fn kills(seed: u64, kills: u64) -> Result<usize> {
    let mut acknowledged = 0;
    for point in 1..=kills {
        let directory = TempDir::new()?;
        let output = Command::new(std::env::current_exe()?)
            .arg("--child")
            .arg(directory.path())
            .args(["--seed", &(seed + point % 50).to_string(), "--points", &point.to_string()])
            .stderr(Stdio::null())
            .output()?;
        // The first dot is the store itself.
        let done = output.stdout.len().checked_sub(1).context("the child did not begin")?;
        let contents = proof::read(directory.path()).await.map_err(anyhow::Error::msg)?;
        let mut script = Script::new(seed + point % 50);
        let whole = script.skip(done).clone();
        let one_more = script.skip(1).clone();
        ensure!(
            contents == whole || contents == one_more || is_between(&contents, &whole, &one_more),
            "killed at point {point} after {done} operations: {contents:?}\nexpected {whole:?}\nor {one_more:?}"
        );
        acknowledged += done;
    }
    Ok(acknowledged)
}

/// A purge or a truncation that was under way: its parts are on disk in the order of the log.
fn is_between(contents: &Contents, before: &Contents, after: &Contents) -> bool {
    contents.vote == after.vote && contents.snapshot == before.snapshot && {
        let fewer = before.entries.len() > after.entries.len();
        fewer && contents.entries == after.entries
    }
}

async fn written(directory: &Path, seed: u64, operations: usize) -> Result<Writing> {
    let mut writing = Writing::begin(directory, seed).await?;
    for _ in 0..operations {
        writing.step().await?;
    }
    Ok(writing)
}

/// Gives how many bytes were tried.
async fn torn(seed: u64) -> Result<usize> {
    let directory = TempDir::new()?;
    let mut writing = written(directory.path(), seed, 60).await?;
    let before = TempDir::new()?;
    copy(directory.path(), before.path())?;
    let old = writing.contents().clone();
    writing.step().await?;
    let new = writing.contents().clone();
    let (old_file, new_file) =
        (fs::read(before.path().join("store/db"))?, fs::read(directory.path().join("store/db"))?);
    let differs = |at: &usize| old_file.get(*at) != new_file.get(*at);
    let first = (0..new_file.len()).find(differs).context("nothing was written")?;
    let last = (0..new_file.len()).rev().find(differs).context("nothing was written")?;
    let step = ((last - first) / 1500).max(1);
    let mut tried = 0;
    for cut in (first..=last + 1).step_by(step) {
        let torn = TempDir::new()?;
        copy(before.path(), torn.path())?;
        let mut bytes = new_file[..cut].to_vec();
        bytes.extend_from_slice(old_file.get(cut..).unwrap_or_default());
        fs::write(torn.path().join("store/db"), bytes)?;
        let contents = proof::read(torn.path()).await.map_err(anyhow::Error::msg);
        let contents = contents.with_context(|| format!("cut at {cut} of {first}..={last}"))?;
        ensure!(contents == old || contents == new, "cut at {cut}: {contents:?}");
        tried += 1;
    }
    writing.close();
    Ok(tried)
}

/// Gives (refused, opened whole).
async fn flips(seed: u64, flips: u64) -> Result<(u64, u64)> {
    let directory = TempDir::new()?;
    let writing = written(directory.path(), seed, 120).await?;
    let expected = writing.contents().clone();
    writing.close();
    let mut random = Random::new(seed);
    let (mut refused, mut kept) = (0, 0);
    for _ in 0..flips {
        let copied = TempDir::new()?;
        copy(directory.path(), copied.path())?;
        let files: Vec<_> = files(copied.path())?.into_iter().filter(|(_, length)| *length > 0).collect();
        let total: u64 = files.iter().map(|(_, length)| length).sum();
        let mut at = random.below(total);
        let mut damaged = None;
        for (path, length) in &files {
            if at < *length {
                damaged = Some(path);
                break;
            }
            at -= length;
        }
        let path = damaged.context("a file")?;
        let mut bytes = fs::read(path)?;
        bytes[at as usize] ^= 1 << random.below(8);
        fs::write(path, bytes)?;
        match proof::read(copied.path()).await {
            Err(_) => refused += 1,
            Ok(contents) if contents == expected => kept += 1,
            Ok(contents) => {
                bail!("byte {at} of {} flipped: opened with {contents:?}, not {expected:?}", path.display())
            }
        }
    }
    Ok((refused, kept))
}

fn files(directory: &Path) -> Result<Vec<(std::path::PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata()? {
            metadata if metadata.is_dir() => found.extend(files(&entry.path())?),
            metadata => found.push((entry.path(), metadata.len())),
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}
