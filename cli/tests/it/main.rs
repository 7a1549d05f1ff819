//! The command as a program: usage, exit codes, and the demo.

use std::process::{Command, Output};

fn kagami(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kagami")).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn random_uuids_are_valid_cluster_ids_and_never_look_like_flags() {
    for _ in 0..20 {
        let output = kagami(&["storage", "random-uuid"]);
        let id = text(&output.stdout).trim().to_owned();
        assert!(output.status.success());
        assert!(!id.starts_with('-') && common::ids::TopicId::parse(&id).is_some(), "{id}");
    }
}

#[test]
fn format_takes_an_id_that_begins_with_a_dash_and_refuses_a_second_time() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let properties = directory.path().join("node.properties");
    std::fs::write(
        &properties,
        format!(
            "node.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\ncontroller.quorum.voters=100@127.0.0.1:9093\nlog.dirs={}\n",
            data.display()
        ),
    )
    .unwrap();
    let file = properties.display().to_string();
    let id = "-AAAAAAAAAAAAAAAAAAAAA";
    let format = ["storage", "format", "--config", &file, "--cluster-id", id];
    let first = kagami(&format);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(std::fs::read_to_string(data.join("meta.properties")).unwrap().contains(id));
    let second = kagami(&format);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("formatted"), "{}", text(&second.stderr));
    let again = kagami(&[&format[..], &["--ignore-formatted"]].concat());
    assert!(again.status.success(), "{}", text(&again.stderr));
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_wrong() {
    for (arguments, says) in [
        (&["mirror", "create", "--mirror", "m", "--source", "a:1"][..], "--bootstrap-server"),
        (&["mirror", "list", "--bootstrap-server", "nowhere"][..], "HOST:PORT"),
        (&["mirror", "remove", "--bootstrap-server", "127.0.0.1:1", "--mirror", "m"][..], "--topic"),
        (
            &["mirror", "add", "--bootstrap-server", "127.0.0.1:1", "--mirror", "m", "--topic", "("][..],
            "--topic",
        ),
        (&["topic", "create", "--bootstrap-server", "a:1", "--topic", "t", "--config", "x"][..], "KEY=VALUE"),
        (
            &["quorum", "describe", "--bootstrap-server", "a:1", "--bootstrap-controller", "b:1"][..],
            "cannot be used",
        ),
        (&["frobnicate"][..], "frobnicate"),
    ] {
        let output = kagami(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn nobody_there_ends_with_3_within_the_timeout() {
    let started = std::time::Instant::now();
    let output = kagami(&["topic", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

/// The demo checks itself: it ends with 0 only if everything held.
#[test]
fn the_demo_mirrors_fails_over_and_finds_both_logs_equal() {
    let output = kagami(&["demo", "--records", "5000"]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let out = text(&output.stdout);
    for line in ["READ_ONLY_TOPIC", "every partition takes writes", "equal, byte for byte"] {
        assert!(out.contains(line), "{line} is not in\n{out}");
    }
}
