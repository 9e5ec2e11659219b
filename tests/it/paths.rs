//! What only one of the paths can do wrong: a wrapper around emacsclient that prints, a reply that is
//! none, an Emacs in which somebody else's form runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::{Emacs, RelayBuilder, Scratch, emacsclient_program, wait_until};
use serde_json::json;

fn script(scratch: &Scratch, text: &str) -> std::path::PathBuf {
    let path = scratch.path().join("fake-emacsclient");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn an_emacsclient_that_prints_something_else_breaks_the_protocol() {
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let real = emacsclient_program();
    for text in [
        "echo hello".to_owned(),
        "echo '\"nil =%% 1 nil nil nil nil\"'".to_owned(),
        "echo '\"file\"'".to_owned(),
        format!("echo wrapped; exec {} \"$@\"", real.to_string_lossy()),
    ] {
        let program = script(&scratch, &text);
        let answer = RelayBuilder::to(&emacs)
            .arg("--emacsclient")
            .arg(program)
            .start()
            .eval("1");
        assert_eq!(
            (answer.code(), answer.evaluation()),
            ("bridge_protocol_error", "unknown"),
            "{text}: {answer:?}"
        );
    }
}

#[test]
fn an_emacsclient_that_prints_too_much_or_nothing() {
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let eval = |text: &str| {
        let program = script(&scratch, text);
        RelayBuilder::to(&emacs)
            .arg("--emacsclient")
            .arg(program)
            .start()
            .call(json!({ "expression": "1", "timeout_ms": 5_000 }))
    };
    let answer = eval("head -c 2000000 /dev/zero");
    assert_eq!(answer.code(), "output_too_large", "{answer:?}");
    let answer = eval("exit 0");
    assert_eq!(
        (answer.code(), answer.evaluation()),
        ("emacs_unavailable", "unknown")
    );
    let answer = eval("echo '*ERROR*: no' >&2; exit 1");
    assert_eq!(answer.code(), "bridge_protocol_error");
    assert!(answer.message().contains("*ERROR*: no"));
}

#[test]
fn the_emacsclient_process_is_always_ended() {
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let pid = scratch.path().join("pid");
    let program = script(
        &scratch,
        &format!("echo $$ > {}; exec sleep 60", pid.display()),
    );
    let mut relay = RelayBuilder::to(&emacs)
        .arg("--emacsclient")
        .arg(program)
        .start();
    let answer = relay.call(json!({ "expression": "1", "timeout_ms": 300 }));
    assert_eq!(answer.code(), "evaluation_timeout");
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    wait_until("its end", || {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_err()
    });
}

#[test]
fn a_form_of_the_other_path_is_waited_for_and_never_nested() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut module = RelayBuilder::to(&emacs).by("module").start();
    let mut client = RelayBuilder::to(&emacs).by("emacsclient").start();
    let file = scratch.path().join("order");
    let form = |name: &str| {
        format!(
            "(progn (write-region \"<{name} \" nil {file:?} t 'quiet) (sleep-for 0.3) (write-region \"{name}> \" nil {file:?} t 'quiet) '{name})"
        )
    };
    for (first, second) in [("module", "client"), ("client", "module")] {
        fs::write(&file, "").unwrap();
        let begin = |relay: &mut harness::Relay, name: &str| relay.begin_eval(&form(name));
        let (one, two) = if first == "module" {
            let one = begin(&mut module, first);
            wait_until("the first", || {
                !fs::read_to_string(&file).unwrap().is_empty()
            });
            (one, begin(&mut client, second))
        } else {
            let one = begin(&mut client, first);
            wait_until("the first", || {
                !fs::read_to_string(&file).unwrap().is_empty()
            });
            (one, begin(&mut module, second))
        };
        let (m, c) = if first == "module" {
            (one, two)
        } else {
            (two, one)
        };
        assert_eq!(
            module.answer_to(m)["result"]["structuredContent"]["value"],
            "module"
        );
        assert_eq!(
            client.answer_to(c)["result"]["structuredContent"]["value"],
            "client"
        );
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            format!("<{first} {first}> <{second} {second}> ")
        );
    }
}

#[test]
fn orphaned_folders_of_dead_relays_are_removed() {
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let folder = emacs.socket().parent().unwrap().to_owned();
    let mut relay = RelayBuilder::to(&emacs).start();
    assert_eq!(relay.value("1"), "1");
    relay.crash();
    let left = || {
        fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("mcp-"))
            .count()
    };
    assert_eq!(left(), 1, "a crash leaves its folder");
    let mut next = RelayBuilder::to(&emacs).start();
    assert_eq!(next.value("1"), "1");
    assert_eq!(left(), 1, "only the living one's is there");
    next.close_input();
    next.wait();
    assert_eq!(left(), 0);
}
