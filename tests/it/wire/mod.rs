//! What is on the wire: every kind of broken line, every revision of the protocol, what is offered,
//! and a client that doesn't read. No Emacs is needed for most of it.

mod cost;
mod eras;
mod flood;
mod lines;
mod mutated;
mod offers;

use harness::{Relay, RelayBuilder};
use serde_json::{Value, json};

/// A relay whose Emacs isn't there.
fn without_emacs() -> RelayBuilder {
    RelayBuilder::new()
        .arg("--socket-name")
        .arg("/nonexistent/emacs/server")
}

/// Sends `line` and then a ping; everything that is answered before the ping's answer. So the
/// session has gone on.
fn answers(relay: &mut Relay, line: impl AsRef<[u8]>) -> Vec<Value> {
    relay.send_line(line);
    let ping = relay.begin("ping", json!({}));
    let mut answers = Vec::new();
    loop {
        let message = relay.receive();
        if message["id"] == ping {
            assert_eq!(message["result"], json!({}));
            return answers;
        }
        answers.push(message);
    }
}

/// The metadata of a request of 2026-07-28.
fn modern(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "it", "version": "0" },
    })
}
