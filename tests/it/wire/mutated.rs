//! Lines and frames by the hundred thousand with a few bytes wrong: nobody falls over, and nothing
//! that asks is left without an answer.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use harness::{Emacs, RelayBuilder, Scratch, memory_kib};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::without_emacs;

/// A few bytes of `text` changed, left out, doubled or put in, as `random` has it.
fn mutate(text: &[u8], random: &mut SmallRng) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..text.len());
        let byte = *[
            b'"', b'{', b'}', b'[', b']', b',', b':', b'\\', b'0', 0xff, 0, b' ', b'\r', b'u',
        ]
        .get(random.random_range(0..20))
        .unwrap_or(&random.random());
        match random.random_range(0..5) {
            0 => text[at] = byte,
            1 => text.insert(at, byte),
            2 => drop(text.remove(at)),
            3 => {
                let piece = text[at..text.len().min(at + 9)].to_vec();
                text.splice(at..at, piece);
            }
            _ => text.truncate(at.max(1)),
        }
        if text.is_empty() {
            text.push(byte);
        }
    }
    text.retain(|byte| *byte != b'\n');
    text
}

/// A seed that the failing test's output shows.
#[allow(
    clippy::print_stderr,
    reason = "captured, and shown where the test fails"
)]
fn seeded() -> SmallRng {
    let seed = std::env::var("SEED")
        .map_or_else(|_| rand::random(), |text| text.parse().expect("a number"));
    eprintln!("SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

/// The id by which `line` has to be answered, if it is one message that asks.
fn asks(line: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(line).ok()?;
    let id = message.as_object()?.get("id")?;
    // Of two ids either may be meant.
    let ids = line.windows(4).filter(|piece| piece == b"\"id\"").count();
    let valid = id.is_string() || id.is_i64();
    let response = message.get("method").is_none()
        && (message.get("result").is_some() || message.get("error").is_some());
    (valid && ids == 1 && !response).then(|| id.to_string())
}

#[test]
fn a_hundred_thousand_mutated_lines_leave_no_request_unanswered() {
    const LINES: usize = 100_000;
    let mut random = seeded();
    let mut child = without_emacs().command().spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        let mut answers = HashMap::new();
        for line in stdout.lines() {
            let message: Value = serde_json::from_str(&line.unwrap()).expect("whole lines of JSON");
            assert!(
                message.get("result").is_some() || message.get("error").is_some(),
                "{message}"
            );
            *answers.entry(message["id"].to_string()).or_insert(0_usize) += 1;
        }
        answers
    });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "it", "version": "0" } });
    writeln!(
        stdin,
        "{}",
        json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello })
    )
    .unwrap();
    let (mut asked, mut early) = (Vec::new(), 0);
    for nth in 0..LINES {
        let id = format!("m-{nth}");
        let original = match random.random_range(0..5) {
            0 => json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }),
            1 => {
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": { "cursor": "c" } })
            }
            2 => {
                json!({ "method": "tools/call", "params": { "name": "emacs_eval", "arguments": { "expression": "(é \"\\u{1f600}\")", "timeout_ms": 100 } }, "jsonrpc": "2.0", "id": id })
            }
            3 => json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": hello }),
            _ => {
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 12_345 } })
            }
        };
        let mut line = mutate(original.to_string().as_bytes(), &mut random);
        asked.extend(asks(&line));
        line.push(b'\n');
        stdin.write_all(&line).unwrap();
        if nth == LINES / 10 {
            early = memory_kib(child.id(), "VmRSS");
        }
    }
    let late = memory_kib(child.id(), "VmRSS");
    drop(stdin);
    let answers = reader.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(asked.len() > LINES / 10, "only {} lines asked", asked.len());
    for id in asked {
        assert!(answers.contains_key(&id), "{id} is unanswered");
    }
    assert!(late < early + 1024, "{early} KiB, then {late} KiB");
}

#[test]
fn mutated_frames_harm_neither_emacs_nor_other_relays() {
    const FRAMES: usize = 20_000;
    let mut random = seeded();
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    relay.value("1");
    let version = env!("CARGO_PKG_VERSION");
    let hello = json!({ "hello": { "protocol": emacs_runtime_mcp_protocol::PROTOCOL, "version": version } });
    let connect = || {
        let stream = UnixStream::connect(emacs.module_socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    };
    let (mut sent, mut connections) = (0, 0);
    while sent < FRAMES {
        let mut stream = connect();
        connections += 1;
        // Every tenth hello is mutated too.
        let mut greeting = hello.to_string().into_bytes();
        if connections % 10 == 0 {
            greeting = mutate(&greeting, &mut random);
        }
        greeting.push(b'\n');
        let mut open = stream.write_all(&greeting).is_ok();
        for _ in 0..20 {
            let frame = match random.random_range(0..3) {
                0 => {
                    json!({ "eval": { "id": sent, "expression": "(list 1 2)", "timeout_ms": 1_000, "left_ms": 1_000, "max_output_chars": 100 } })
                }
                1 => json!({ "cancel": { "id": sent } }),
                _ => json!({ "ask": { "id": sent } }),
            };
            let mut frame = mutate(frame.to_string().as_bytes(), &mut random);
            frame.push(b'\n');
            sent += 1;
            open = open && stream.write_all(&frame).is_ok();
        }
        // It ends the connection or answers; what it writes are whole lines of JSON.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            serde_json::from_slice::<Value>(line).expect("JSON");
        }
        if connections % 50 == 0 {
            assert_eq!(relay.value("(+ 1 1)"), "2");
        }
    }
    assert!(emacs.is_alive());
    assert_eq!(relay.value("(+ 1 1)"), "2");
}
