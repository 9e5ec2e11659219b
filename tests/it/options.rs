//! Options and environment at start-up: what is wrong is said by its name, on stderr, with exit code
//! 2, and nothing goes to stdout.

use std::process::Output;

use harness::{RelayBuilder, Scratch};

fn run(builder: &RelayBuilder) -> Output {
    let mut child = builder.command().spawn().expect("a relay; run make build");
    drop(child.stdin.take());
    child.wait_with_output().expect("it ends")
}

fn refused(builder: RelayBuilder, names: &[&str]) {
    let output = run(&builder);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    for name in names {
        assert!(said.contains(name), "{said} should name {name}");
    }
}

#[test]
fn both_selectors_together_are_refused() {
    let relay = RelayBuilder::new;
    refused(
        relay()
            .arg("--socket-name")
            .arg("a")
            .arg("--server-file")
            .arg("/f"),
        &["--socket-name", "--server-file"],
    );
    refused(
        relay()
            .arg("--socket-name")
            .arg("a")
            .env("EMACS_RUNTIME_MCP_SERVER_FILE", "/f"),
        &["--socket-name", "EMACS_RUNTIME_MCP_SERVER_FILE"],
    );
    refused(
        relay()
            .env("EMACS_RUNTIME_MCP_SOCKET_NAME", "a")
            .env("EMACS_RUNTIME_MCP_SERVER_FILE", "/f"),
        &[
            "EMACS_RUNTIME_MCP_SOCKET_NAME",
            "EMACS_RUNTIME_MCP_SERVER_FILE",
        ],
    );
}

#[test]
fn values_out_of_range_are_refused() {
    for (option, value) in [
        ("--timeout-ms", "99"),
        ("--timeout-ms", "120001"),
        ("--timeout-ms", "x"),
        ("--timeout-ms", ""),
        ("--max-output-chars", "0"),
        ("--max-output-chars", "262145"),
        ("--transport", "tcp"),
        ("--log-level", "loud"),
        ("--socket-name", ""),
        ("--server-file", ""),
        ("--emacsclient", ""),
        ("--server-id", "nobody"),
        ("--log-file", "/nonexistent/log"),
    ] {
        let name = if option == "--log-file" {
            "/nonexistent/log"
        } else {
            option
        };
        refused(RelayBuilder::new().arg(option).arg(value), &[name]);
    }
    for (variable, value) in [
        ("EMACS_RUNTIME_MCP_TIMEOUT_MS", "1"),
        ("EMACS_RUNTIME_MCP_MAX_OUTPUT_CHARS", "many"),
        ("EMACS_RUNTIME_MCP_TRANSPORT", "x"),
        ("EMACS_RUNTIME_MCP_LOG", "x"),
        ("EMACS_RUNTIME_MCP_SERVER_ID", "eval,nobody"),
    ] {
        refused(RelayBuilder::new().env(variable, value), &[variable]);
    }
    refused(
        RelayBuilder::new().arg("--no-such-option"),
        &["--no-such-option"],
    );
}

#[test]
fn empty_variables_are_unset_ones() {
    let mut builder = RelayBuilder::new();
    for name in [
        "EMACSCLIENT",
        "SOCKET_NAME",
        "SERVER_FILE",
        "TIMEOUT_MS",
        "MAX_OUTPUT_CHARS",
        "TRANSPORT",
        "SERVER_ID",
        "LOG",
        "LOG_FILE",
    ] {
        builder = builder.env(&format!("EMACS_RUNTIME_MCP_{name}"), "");
    }
    let output = run(&builder);
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn help_and_version_are_for_people() {
    let output = run(&RelayBuilder::new().arg("--help"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for word in [
        "--emacsclient",
        "--socket-name",
        "--server-file",
        "--timeout-ms",
        "--max-output-chars",
        "--transport",
        "--server-id",
        "--log-level",
        "--log-file",
        "EMACS_RUNTIME_MCP_LOG",
        "SECURITY",
    ] {
        assert!(text.contains(word), "{word} is missing");
    }
    let output = run(&RelayBuilder::new().arg("--version"));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        format!("emacs-runtime-mcp {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_log_file_is_private_appended_to_and_no_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let scratch = Scratch::new();
    let log = scratch.path().join("log");
    let builder = RelayBuilder::new()
        .arg("--log-file")
        .arg(&log)
        .arg("--log-level")
        .arg("info");
    for _ in 0..2 {
        let mut relay = builder.start();
        relay.close_input();
        assert!(relay.wait().success());
        assert_eq!(relay.stderr(), "");
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.lines().count() >= 2, "{text}");
    assert_eq!(
        std::fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let link = scratch.path().join("link");
    symlink(&log, &link).unwrap();
    refused(RelayBuilder::new().arg("--log-file").arg(&link), &["link"]);
}
