//! The official MCP clients, Python and TypeScript, in each of their modes.

use std::process::Command;

use harness::{Emacs, RelayBuilder, Scratch, relay_program, root, show};

#[test]
fn official_clients_list_call_and_validate() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    assert_eq!(RelayBuilder::to(&emacs).start().value("1"), "1");
    let output = Command::new(root().join("tests/clients/run.sh"))
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
