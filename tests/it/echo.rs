//! What the relay is measured against: the least that an MCP server over stdio can do, a loop that
//! parses each line and answers it.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

fn main() {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let Ok(line) = line else { return };
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} });
        if writeln!(output, "{answer}").is_err() || output.flush().is_err() {
            return;
        }
    }
}
