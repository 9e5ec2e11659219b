//! Emacs and relay come, go and break, in whatever order.

use std::time::Duration;

use harness::{Emacs, RelayBuilder, Scratch, emacsclient_program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).expect("it runs");
}

/// A way into Emacs, and how to start an Emacs in which auto takes it.
type Way = (&'static str, fn(&Scratch) -> Emacs);

/// Both ways.
fn ways() -> [Way; 2] {
    [
        ("module", Emacs::start),
        ("emacsclient", Emacs::start_without_module),
    ]
}

#[test]
fn emacs_may_crash_and_come_back_between_two_calls() {
    // B64
    for (way, start) in ways() {
        let scratch = Scratch::new();
        let mut emacs = start(&scratch);
        let mut relay = RelayBuilder::to(&emacs).start();
        assert_eq!(relay.eval("1").meta["transport"], way);
        emacs.crash();
        let answer = relay.eval("1");
        assert_eq!(answer.code(), "emacs_unavailable", "{answer:?}");
        assert!(answer.took < Duration::from_secs(1), "{answer:?}");
        let _emacs = emacs.again(&scratch);
        let answer = relay.eval("1");
        assert_eq!(
            (answer.value().as_str(), &answer.meta["transport"]),
            ("1", &json!(way))
        );
    }
}

#[test]
fn emacs_may_crash_during_a_call_and_the_form_is_not_run_again() {
    for (_, start) in ways() {
        let scratch = Scratch::new();
        let mut emacs = start(&scratch);
        let mut relay = RelayBuilder::to(&emacs).start();
        let file = scratch.path().join("ran");
        let id = relay.begin_eval(&format!(
            "(progn (write-region \"x\" nil {file:?} t 'quiet) (sleep-for 30))"
        ));
        wait_until("the form to run", || {
            std::fs::read(&file).is_ok_and(|text| text == b"x")
        });
        emacs.crash();
        let crashed = std::time::Instant::now();
        let error = relay.answer_to(id)["result"]["structuredContent"]["error"].clone();
        assert!(crashed.elapsed() < Duration::from_secs(1));
        assert_eq!(error["code"], "emacs_unavailable");
        assert_eq!(error["data"]["evaluation"], "unknown");
        let _emacs = emacs.again(&scratch);
        assert_eq!(relay.value("'again"), "again");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "x");
    }
}

#[test]
fn a_form_that_ends_emacs_is_not_a_success() {
    // B62
    for (_, start) in ways() {
        let scratch = Scratch::new();
        let mut emacs = start(&scratch);
        let mut relay = RelayBuilder::to(&emacs).start();
        let answer = relay.eval("(kill-emacs)");
        assert_eq!(
            (answer.code(), answer.evaluation()),
            ("emacs_unavailable", "unknown"),
            "{answer:?}"
        );
        wait_until("Emacs's end", || !emacs.is_alive());
        let _emacs = emacs.again(&scratch);
        assert_eq!(relay.value("1"), "1");
    }
}

#[test]
fn a_module_that_is_loaded_later_serves_the_next_call() {
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    assert_eq!(relay.eval("1").meta["transport"], "emacsclient");
    emacs.ask(&format!(
        "(progn (add-to-list 'load-path {:?}) (require 'emacs-runtime-mcp-module) nil)",
        harness::lisp()
    ));
    assert_eq!(relay.eval("1").meta["transport"], "module");
    emacs.ask("(emacs-runtime-mcp-stop)");
    assert!(!emacs.module_socket().exists());
    let answer = relay.eval("1");
    assert_eq!(
        (answer.value().as_str(), &answer.meta["transport"]),
        ("1", &json!("emacsclient"))
    );
    emacs.ask("(emacs-runtime-mcp-restart)");
    assert_eq!(relay.eval("1").meta["transport"], "module");
}

#[test]
fn a_form_may_stop_and_restart_what_brought_it() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let first = relay.begin_eval("(progn (emacs-runtime-mcp-stop) 'stopped)");
    assert_eq!(
        relay.answer_to(first)["result"]["structuredContent"]["value"],
        "stopped"
    );
    assert!(!emacs.module_socket().exists());
    emacs.ask("(emacs-runtime-mcp-start)");
    let mut relay = RelayBuilder::to(&emacs).start();
    let first = relay.begin_eval("(progn (sleep-for 0.1) (emacs-runtime-mcp-restart) 'restarted)");
    let second = relay.begin_eval("'second");
    assert_eq!(
        relay.answer_to(first)["result"]["structuredContent"]["value"],
        "restarted"
    );
    // It was given back unbegun, and the relay took it to the new listener.
    assert_eq!(
        relay.answer_to(second)["result"]["structuredContent"]["value"],
        "second"
    );
    let answer = relay.eval("'third");
    assert_eq!(
        (answer.value().as_str(), &answer.meta["transport"]),
        ("third", &json!("module"))
    );
}

#[test]
fn timed_end_of_input_ends_the_relay_at_once_when_it_is_idle() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    for started in [true, false] {
        let mut relay = if started {
            RelayBuilder::to(&emacs).start()
        } else {
            RelayBuilder::to(&emacs).spawn()
        };
        let begun = std::time::Instant::now();
        relay.close_input();
        assert!(relay.wait().success());
        assert!(begun.elapsed() < Duration::from_millis(500));
        assert_eq!(relay.stderr(), "");
    }
}

#[test]
fn timed_end_of_input_lets_a_short_call_end_and_cuts_a_long_one() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let id = relay.begin_eval("(progn (sleep-for 0.5) 'done)");
    relay.close_input();
    assert_eq!(
        relay.answer_to(id)["result"]["structuredContent"]["value"],
        "done"
    );
    assert!(relay.wait().success());

    // B102
    for (way, start) in ways() {
        let scratch = Scratch::new();
        let emacs = start(&scratch);
        let file = scratch.path().join("runs");
        let mut relay = RelayBuilder::to(&emacs).start();
        relay.begin_call(json!({
            "expression": format!("(progn (write-region \"x\" nil {file:?} nil 'quiet) (sleep-for 60))"),
            "timeout_ms": 100_000,
        }));
        wait_until("the form to run", || file.exists());
        let begun = std::time::Instant::now();
        relay.close_input();
        assert!(relay.wait().success());
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "{way}: {took:?}");
        wait_until("every emacsclient's end", || !runs_emacsclient(&emacs));
    }
}

#[test]
fn signals_end_the_relay_and_its_calls_are_answered() {
    for (_, start) in ways() {
        let scratch = Scratch::new();
        let emacs = start(&scratch);
        for number in [Signal::SIGTERM, Signal::SIGINT] {
            let mut relay = RelayBuilder::to(&emacs).start();
            relay.value("1");
            let file = scratch.path().join(number.as_str());
            let id = relay.begin_eval(&format!(
                "(progn (write-region \"x\" nil {file:?} t 'quiet) (sleep-for 1))"
            ));
            wait_until("the form to run", || file.exists());
            signal(relay.pid(), number);
            let answer = relay.answer_to(id);
            assert_eq!(
                answer["result"]["structuredContent"]["error"]["code"],
                "emacs_unavailable"
            );
            assert!(relay.wait().success());
        }
        wait_until("every emacsclient's end", || !runs_emacsclient(&emacs));
    }
}

/// Whether some emacsclient of ours is connected to `emacs`.
fn runs_emacsclient(emacs: &Emacs) -> bool {
    let list = std::process::Command::new("ps")
        .args(["-eo", "args"])
        .output()
        .expect("ps")
        .stdout;
    let program = emacsclient_program();
    let (program, socket) = (
        program.to_string_lossy().into_owned(),
        emacs.socket().display().to_string(),
    );
    String::from_utf8_lossy(&list)
        .lines()
        .any(|line| line.starts_with(&program) && line.contains(&socket))
}

#[test]
fn a_client_that_reads_no_more_ends_the_relay() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut child = RelayBuilder::to(&emacs).command().spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    use std::io::Write;
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":1,"method":"ping"}}"#).unwrap();
    wait_until("the relay's end", || child.try_wait().unwrap().is_some());
}

#[test]
fn a_child_of_the_relay_never_reads_its_input() {
    // B53
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let mut relay = RelayBuilder::to(&emacs).spawn();
    let call = |id: u32, form: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": { "name": "emacs_eval", "arguments": { "expression": form } } })
        .to_string()
    };
    relay.initialize("2025-11-25");
    relay.send_line(format!(
        "{}\n{}",
        call(50, "(call-process \"cat\")"),
        call(51, "'second")
    ));
    assert_eq!(
        relay.answer_to(50)["result"]["structuredContent"]["value"],
        "0"
    );
    assert_eq!(
        relay.answer_to(51)["result"]["structuredContent"]["value"],
        "second"
    );
}

#[test]
fn timed_an_emacs_that_is_stopped_by_the_system_costs_a_timeout_and_nothing_more() {
    for (_, start) in ways() {
        let scratch = Scratch::new();
        let emacs = start(&scratch);
        let mut relay = RelayBuilder::to(&emacs).start();
        relay.value("1");
        signal(emacs.pid(), Signal::SIGSTOP);
        let answer = relay.call(json!({ "expression": "(setq stopped-ran t)", "timeout_ms": 300 }));
        signal(emacs.pid(), Signal::SIGCONT);
        assert_eq!(
            (answer.code(), answer.evaluation()),
            ("evaluation_timeout", "unknown"),
            "{answer:?}"
        );
        assert!(
            (300..=550).contains(&answer.envelope["elapsed_ms"].as_u64().unwrap()),
            "{answer:?}"
        );
        assert_eq!(relay.value("'after"), "after");
        // Its time was over when Emacs woke up.
        assert_eq!(relay.value("(boundp 'stopped-ran)"), "nil");
    }
}
