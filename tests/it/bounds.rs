//! What printing costs: memory that doesn't grow with the value, and time.

use std::fs;
use std::time::{Duration, Instant};

use harness::{Emacs, EmacsBuilder, Relay, RelayBuilder, Scratch, memory_kib};
use serde_json::json;

#[test]
fn a_huge_value_is_printed_in_little_memory() {
    if !cfg!(target_os = "linux") {
        harness::skipped(
            "memory of printing",
            "only Linux tells a peak that can be reset",
        );
        return;
    }
    let megabytes: u64 = std::env::var("HUGE_MB")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    let timeout = json!(120_000);
    relay.call(json!({ "expression": format!("(progn (setq huge (make-string {megabytes}000000 ?a)) nil)"), "timeout_ms": timeout }));
    // What the printer's code itself takes is there before.
    relay.call(json!({ "expression": "(make-string 1100000 ?b)", "max_output_chars": 262_144 }));
    fs::write(format!("/proc/{}/clear_refs", emacs.pid()), "5").expect("our own process");
    let before = memory_kib(emacs.pid(), "VmRSS");
    let answer = relay
        .call(json!({ "expression": "huge", "timeout_ms": timeout, "max_output_chars": 262_144 }));
    assert_eq!(answer.envelope["original_chars"], megabytes * 1_000_000 + 2);
    let grown = memory_kib(emacs.pid(), "VmHWM").saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} KiB more at the peak");
}

#[test]
fn a_structure_that_prints_for_ever_ends_in_time_and_memory_stays_flat() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    relay.value("1");
    let before = memory_kib(emacs.pid(), "VmRSS");
    for form in [
        "(let ((x 1)) (dotimes (_ 40) (setq x (cons x x))) x)",
        "(let ((r (record 'tree nil nil)) (l nil)) (dotimes (_ 40) (setq l (record 'tree l l))) (aset r 1 l) (aset r 2 l) r)",
    ] {
        let answer = relay.call(json!({ "expression": form, "timeout_ms": 1_000 }));
        assert_eq!(
            (answer.code(), answer.evaluation()),
            ("evaluation_timeout", "interrupted"),
            "{form}"
        );
    }
    let grown = memory_kib(emacs.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} KiB more");
    assert_eq!(relay.value("1"), "1");
}

#[test]
fn timed_long_values_are_fast_on_both_paths() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let text = "(make-string 262142 ?a)";
    let plain = (0..3).map(|_| {
        let begun = Instant::now();
        assert_eq!(emacs.ask(text).len(), 262_144);
        begun.elapsed()
    });
    let plain = plain.min().expect("three");
    // From the request to the answer, as the relay says: the test's own parsing, unoptimized, takes
    // longer than all the rest.
    let ours = |way: &str| {
        let mut relay = RelayBuilder::to(&emacs).by(way).start();
        let times = (0..3).map(|_| {
            let answer = relay.call(
                json!({ "expression": text, "max_output_chars": 262_144, "timeout_ms": 60_000 }),
            );
            assert_eq!(answer.envelope["truncated"], false);
            Duration::from_millis(answer.envelope["elapsed_ms"].as_u64().expect("a number") + 1)
        });
        times.min().expect("three")
    };
    let (module, client) = (ours("module"), ours("emacsclient"));
    harness::show(&format!(
        "262,144 characters: plain emacsclient {plain:?}, module {module:?}, ours by emacsclient {client:?}"
    ));
    assert!(plain >= module * 20, "plain {plain:?}, module {module:?}");
    assert!(
        plain >= client * 4,
        "plain {plain:?}, ours by emacsclient {client:?}"
    );
}

/// Values of calls `from` to `to`, while garbage is collected all the time.
fn nested_values(relay: &mut Relay, from: u32, to: u32) {
    for nth in from..to {
        let form = format!("(list {nth} (vector (make-string 100 ?x) '((a . b) \"c\")))");
        let wanted = format!("({nth} [\"{}\" ((a . b) \"c\")])", "x".repeat(100));
        assert_eq!(relay.value(&form), wanted);
    }
}

#[test]
fn collecting_garbage_during_calls_breaks_nothing_and_memory_stays_flat() {
    // B77
    let scratch = Scratch::new();
    let mut strict = EmacsBuilder::new("strict")
        .arg_before("--module-assertions")
        .start(&scratch);
    let mut relay = RelayBuilder::to(&strict).by("module").start();
    relay.value("(progn (setq gc-cons-threshold 1) nil)");
    nested_values(&mut relay, 0, 300);
    assert!(strict.is_alive());
    // Asserting, Emacs keeps what a call had for good: memory is looked at without.
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    relay.value("(progn (run-at-time 0.1 0.1 #'garbage-collect) nil)");
    nested_values(&mut relay, 0, 1_000);
    let before = memory_kib(emacs.pid(), "VmRSS");
    nested_values(&mut relay, 1_000, 2_000);
    let grown = memory_kib(emacs.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < 1024, "{grown} KiB more after 1,000 calls");
}

#[test]
fn native_functions_survive_any_string() {
    // B74
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    for string in [
        "(concat \"é\" \"\\377\")",
        "(encode-coding-string \"你好\" 'utf-8)",
        "(string #xd800)",
        "(string #x3fff80 0)",
    ] {
        for call in [
            "(emacs-runtime-mcp-core--start S (make-pipe-process :name \"x\") S S S)",
            "(emacs-runtime-mcp-core--stage 1 S)",
            "(emacs-runtime-mcp-core--finish 1 (vector S S 1 nil S S S))",
            "(emacs-runtime-mcp-core--finish 1 (vector nil S 1 nil S S S))",
            "(emacs-runtime-mcp-core--finish S S)",
        ] {
            emacs.ask(&format!(
                "(condition-case err (progn {} 'fine) (error 'signalled))",
                call.replace('S', string)
            ));
            assert!(emacs.is_alive(), "{call} with {string}");
        }
    }
    assert_eq!(RelayBuilder::to(&emacs).start().value("1"), "1");
}
