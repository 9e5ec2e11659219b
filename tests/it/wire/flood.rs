//! Clients that send more than they read.

use std::io::{BufRead, BufReader, Write};
use std::thread;
use std::time::Duration;

use harness::{Emacs, RelayBuilder, Scratch, wait_until};
use serde_json::{Value, json};

use super::without_emacs;

#[test]
fn who_does_not_read_stalls_itself_and_memory_stays_bounded() {
    let mut child = without_emacs().command().spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let pid = child.id();
    // Pings whose answers nobody reads, and lines that are refused: more than all buffers hold.
    let writer = thread::spawn(move || {
        for id in 0..200_000 {
            let line = if id % 2 == 0 {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
            } else {
                format!(r#"{{"jsonrpc":"1.0","id":{id},"method":"ping"}}"#)
            };
            writeln!(stdin, "{line}").unwrap();
        }
        stdin
    });
    // It stalls: it neither ends nor takes what it can't answer.
    let mut last = 0;
    wait_until("the relay to stop reading", || {
        let now = harness::memory_kib(pid, "VmRSS");
        let same = now == last;
        last = now;
        thread::sleep(Duration::from_millis(200));
        same
    });
    assert!(
        !writer.is_finished(),
        "all was taken without an answer read"
    );
    assert!(last < 20 * 1024, "{last} KiB");
    // As soon as somebody reads, everything is answered.
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answered = vec![false; 200_000];
    for _ in 0..200_000 {
        let message: Value = serde_json::from_str(&stdout.next().unwrap().unwrap()).unwrap();
        let id = message["id"].as_u64().unwrap();
        assert!(!std::mem::replace(
            &mut answered[usize::try_from(id).unwrap()],
            true
        ));
        assert_eq!(message.get("error").is_some(), id % 2 == 1);
    }
    drop(writer.join().unwrap());
    assert!(child.wait().unwrap().success());
}

#[test]
fn more_calls_at_once_than_fit_are_refused_unstarted() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    relay.value("(setq crowd 0)");
    let first = relay.begin_call(json!({ "expression": "(sleep-for 0.5)", "timeout_ms": 20_000 }));
    let ids: Vec<_> = (0..400)
        .map(|_| {
            relay.begin_call(
                json!({ "expression": "(setq crowd (1+ crowd))", "timeout_ms": 20_000 }),
            )
        })
        .collect();
    let mut refused = 0;
    for id in ids {
        let envelope = relay.answer_to(id)["result"]["structuredContent"].clone();
        if envelope["ok"] == false {
            assert_eq!(envelope["error"]["code"], "emacs_unavailable", "{envelope}");
            assert_eq!(
                envelope["error"]["data"]["evaluation"], "not_started",
                "{envelope}"
            );
            refused += 1;
        }
    }
    relay.answer_to(first);
    // One was running and 255 waited.
    assert_eq!(refused, 400 - 255);
    assert_eq!(relay.value("crowd"), "255");
}
