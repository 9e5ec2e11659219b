//! Several relays, many calls, and none at all.

use std::fs;
use std::thread;
use std::time::Duration;

use harness::{Emacs, EmacsBuilder, Relay, RelayBuilder, Scratch};
use serde_json::json;

#[test]
fn two_relays_with_a_thousand_interleaved_calls_each() {
    const CALLS: usize = 1_000;
    const IN_FLIGHT: usize = 16;
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let builder = RelayBuilder::to(&emacs).by("module");
    RelayBuilder::to(&emacs)
        .start()
        .value("(setq load-count 0)");
    let clients: Vec<_> = (1..=2)
        .map(|client: usize| {
            let builder = builder.clone();
            thread::spawn(move || {
                let mut relay = builder.start();
                let mut waiting = std::collections::VecDeque::new();
                for nth in 0..CALLS {
                    let id = relay.begin_eval(&format!(
                        "(progn (setq load-count (1+ load-count)) (list {client} {nth}))"
                    ));
                    waiting.push_back((id, nth));
                    if waiting.len() == IN_FLIGHT || nth + 1 == CALLS {
                        while let Some((id, nth)) = waiting.pop_front() {
                            let answer = relay.answer_to(id);
                            assert_eq!(
                                answer["result"]["structuredContent"]["value"],
                                format!("({client} {nth})")
                            );
                        }
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every answer right");
    }
    assert_eq!(emacs.ask("load-count"), (2 * CALLS).to_string());
}

/// Voluntary and involuntary context switches of all threads of `pid`, together.
fn switches(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("Linux");
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
        .flat_map(|status| {
            let lines: Vec<_> = status
                .lines()
                .filter(|line| line.contains("ctxt_switches"))
                .map(str::to_owned)
                .collect();
            lines
        })
        .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn nothing_to_do_is_nothing_done() {
    if !cfg!(target_os = "linux") {
        harness::skipped(
            "idleness",
            "only Linux counts the context switches of a thread",
        );
        return;
    }
    let scratch = Scratch::new();
    // Nor is Emacs to compile meanwhile what it has loaded.
    let emacs = EmacsBuilder::new("idle")
        .eval_before("(setq native-comp-deferred-compilation nil native-comp-jit-compilation nil)")
        .start(&scratch);
    let mut relays: Vec<Relay> = (0..8).map(|_| RelayBuilder::to(&emacs).start()).collect();
    for relay in &mut relays {
        relay.value("1");
    }
    let count = || {
        let relays: u64 = relays.iter().map(|relay| switches(relay.pid())).sum();
        (relays, switches(emacs.pid()))
    };
    // Let what the calls and the start of Emacs have set in motion settle: it has when two looks agree.
    harness::wait_until("quiet", || {
        let before = count();
        thread::sleep(Duration::from_millis(500));
        count() == before
    });
    let before = count();
    // The one test that measures a time: ten seconds in which nothing should happen.
    thread::sleep(Duration::from_secs(10));
    let after = count();
    let (in_relays, in_emacs) = (after.0 - before.0, after.1 - before.1);
    // A kernel may move a thread to another core.
    assert!(
        in_relays + in_emacs <= 3,
        "context switches: {in_relays} in idle relays, {in_emacs} in Emacs"
    );
    let ours = "(let ((count 0)) (dolist (timer (append timer-list timer-idle-list) count) \
                (when (string-prefix-p \"emacs-runtime-mcp\" (format \"%s\" (timer--function timer))) \
                (setq count (1+ count)))))";
    assert_eq!(emacs.ask(ours), "0");
}

#[test]
fn timed_the_module_path_is_at_least_twenty_times_faster() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let start = |way: &str| RelayBuilder::to(&emacs).by(way).start();
    let (mut module, mut client) = (start("module"), start("emacsclient"));
    let (mut by_module, mut by_client) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        by_module.push(module.eval("(+ 1 1)").took);
        by_client.push(client.eval("(+ 1 1)").took);
    }
    by_module.sort();
    by_client.sort();
    let ratio = by_client[25].as_secs_f64() / by_module[25].as_secs_f64();
    assert!(
        ratio >= 20.0,
        "{ratio:.1}: {:?} against {:?}",
        by_client[25],
        by_module[25]
    );
}

#[test]
fn a_full_queue_refuses_at_once_and_everything_is_answered() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let first = relay.begin_call(json!({ "expression": "(sleep-for 1)", "timeout_ms": 20_000 }));
    let ids: Vec<_> = (0..300)
        .map(|nth| {
            relay.begin_call(json!({ "expression": format!("{nth}"), "timeout_ms": 20_000 }))
        })
        .collect();
    let mut codes = std::collections::HashMap::new();
    for id in ids {
        let envelope = relay.answer_to(id)["result"]["structuredContent"].clone();
        let code = envelope["error"]["code"]
            .as_str()
            .unwrap_or("value")
            .to_owned();
        if code == "emacs_unavailable" {
            assert_eq!(envelope["error"]["data"]["evaluation"], "not_started");
        }
        *codes.entry(code).or_insert(0) += 1;
    }
    assert_eq!(
        relay.answer_to(first)["result"]["structuredContent"]["ok"],
        true
    );
    assert_eq!(
        codes["value"] + codes["emacs_unavailable"],
        300,
        "{codes:?}"
    );
    assert!(codes["emacs_unavailable"] >= 40, "{codes:?}");
}
