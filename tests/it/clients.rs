//! The official MCP clients, Python and TypeScript, in each of their modes; and programs that judge
//! servers.

use std::process::Command;

use harness::{Emacs, RelayBuilder, Scratch, relay_program, root, show};

/// Runs a script of `tests/clients` with a relay to an Emacs that is there.
fn run(script: &str) {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    assert_eq!(RelayBuilder::to(&emacs).start().value("1"), "1");
    let output = Command::new(root().join("tests/clients").join(script))
        .arg(relay_program())
        .arg("--socket-name")
        .arg(emacs.socket())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    // Shown also when it passes: what was skipped must be seen.
    show(said.trim());
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("ok:") || said.contains("skipped:"), "{said}");
}

#[test]
fn official_clients_list_call_and_validate() {
    run("run.sh");
}

#[test]
fn validators_have_nothing_to_object_to() {
    run("validators.sh");
}
