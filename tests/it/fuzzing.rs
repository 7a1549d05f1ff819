//! The fuzzer (`kagami_tests::fuzz`) for a few seconds: all inputs that ever failed, and a thousand new ones a
//! target. `scripts/fuzz.sh` is the long run.

use std::process::Command;

use kagami_tests::fuzz::corpus;
use kagami_tests::fuzz::targets::{OWN_TESTS, TARGETS};

/// Of each target, in a debug build.
const INPUTS: &str = "1000";

#[test]
fn no_target_fails_on_the_corpus_and_on_a_thousand_inputs() {
    let failures = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz"))
        .args(["--inputs", INPUTS, "--limit-ms", "20000", "--failures"])
        .arg(failures.path())
        .output()
        .unwrap();
    let (lines, reasons) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{lines}\n{reasons}");
    for entry in TARGETS {
        let line = lines.lines().find(|line| line.starts_with(&format!("{}: {INPUTS} inputs", entry.name)));
        assert!(line.is_some_and(|line| line.ends_with(" 0 failures")), "{}:\n{lines}", entry.name);
    }
}

/// A file in a folder that no target reads would be forgotten.
#[test]
fn every_folder_of_the_corpus_is_a_target() {
    for folder in std::fs::read_dir(corpus::directory()).unwrap() {
        let folder = folder.unwrap().file_name();
        assert!(TARGETS.iter().any(|entry| *entry.name == *folder), "{folder:?}");
    }
}

/// The fuzzer itself: readers that are wrong are found, and what they were given is kept and read again.
#[test]
fn wrong_readers_are_found_and_their_inputs_are_kept() {
    let failures = tempfile::tempdir().unwrap();
    let fuzz = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fuzz"));
        let output = command.arg("--failures").arg(failures.path()).args(arguments).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&told).into_owned())
    };
    for entry in OWN_TESTS {
        let name = entry.name;
        let (success, told) = fuzz(&["--target", name, "--inputs", "2000", "--limit-ms", "300"]);
        assert!(!success, "{name}: {told}");
        let kept: Vec<_> = std::fs::read_dir(failures.path().join(name)).unwrap().flatten().collect();
        assert_eq!(kept.len(), 1, "{name}: one of a kind: {told}");
        // One that ends a process, or does not end, would do so here.
        let path = kept[0].path();
        match name {
            "own-panic" => assert!(!fuzz(&["--replay", path.to_str().unwrap()]).0),
            "own-allocation" => assert!(fuzz(&["--replay", path.to_str().unwrap()]).1.contains("ABOVE")),
            _ => {}
        }
    }
}
