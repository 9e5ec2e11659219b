//! Which Emacs a relay finds, and what it says when there is none. A selected Emacs that isn't there
//! is never started.

use std::path::Path;
use std::process::Command;

use harness::{Emacs, EmacsBuilder, RelayBuilder, Scratch};

/// Both ways into the same Emacs.
const WAYS: [&str; 2] = ["module", "emacsclient"];

fn pid_by(builder: &RelayBuilder, way: &str) -> String {
    let answer = builder.clone().by(way).start().eval("(emacs-pid)");
    assert_eq!(answer.meta["transport"], way, "{answer:?}");
    answer.value()
}

fn reaches(builder: &RelayBuilder, emacs: &Emacs) {
    for way in WAYS {
        assert_eq!(pid_by(builder, way), emacs.pid().to_string(), "by {way}");
    }
}

#[test]
fn by_default_by_name_by_socket_and_by_inherited_variables() {
    let scratch = Scratch::new();
    let default = EmacsBuilder::new("server").start(&scratch);
    let named = EmacsBuilder::new("work").start(&scratch);
    let relay = || RelayBuilder::new().beside(&scratch);
    reaches(&relay(), &default);
    reaches(&relay().arg("--socket-name").arg("work"), &named);
    reaches(&relay().arg("--socket-name").arg(named.socket()), &named);
    reaches(
        &relay().env("EMACS_RUNTIME_MCP_SOCKET_NAME", "work"),
        &named,
    );
    reaches(&relay().env("EMACS_SOCKET_NAME", "work"), &named);
    // B09's kind: what is inherited must not win over what is said.
    reaches(
        &relay()
            .env("EMACS_SOCKET_NAME", "work")
            .arg("--socket-name")
            .arg("server"),
        &default,
    );
}

#[test]
fn by_names_with_blanks_accents_and_dashes() {
    // B69
    let scratch = Scratch::new();
    for name in ["my work é", "-x"] {
        let emacs = EmacsBuilder::new(name).start(&scratch);
        reaches(
            &RelayBuilder::new()
                .beside(&scratch)
                .arg("--socket-name")
                .arg(name),
            &emacs,
        );
    }
}

#[test]
fn by_the_server_file_of_a_tcp_server() {
    let scratch = Scratch::new();
    // The fixture waits for a socket; the TCP server is one more, started by hand.
    let other = EmacsBuilder::new("other").start(&scratch);
    let tcp = EmacsBuilder::new("tcp").without_module().start(&scratch);
    let folder = scratch.folder("auth");
    tcp.ask(&format!(
        "(progn (run-at-time 0 nil (lambda () (setq server-use-tcp t server-auth-dir {folder:?}) (server-start nil t) \
         (add-to-list 'load-path {:?}) (require 'emacs-runtime-mcp-module))) nil)",
        harness::lisp()
    ));
    let file = folder.join("tcp");
    harness::wait_until("the server file", || {
        file.exists() && folder.join("tcp.mcp").exists()
    });
    let relay = || RelayBuilder::new().beside(&scratch);
    reaches(&relay().arg("--server-file").arg(&file), &tcp);
    reaches(&relay().env("EMACS_SERVER_FILE", &file), &tcp);
    // A leftover EMACS_SOCKET_NAME wins over --server-file in emacsclient itself.
    reaches(
        &relay()
            .env("EMACS_SOCKET_NAME", other.socket())
            .arg("--server-file")
            .arg(&file),
        &tcp,
    );
}

#[test]
fn in_whatever_folder_emacs_and_relay_think_of() {
    // B65: the Emacs has XDG_RUNTIME_DIR or TMPDIR, the relay has not.
    for builder in [
        EmacsBuilder::new("odd-place"),
        EmacsBuilder::new("odd-place").without_runtime_dir(),
    ] {
        let scratch = Scratch::new();
        let emacs = builder.start(&scratch);
        let relay = RelayBuilder::new().arg("--socket-name").arg("odd-place");
        if cfg!(target_os = "linux") {
            reaches(&relay, &emacs);
        } else {
            let answer = relay.start().eval("1");
            assert_eq!(answer.code(), "emacs_unavailable");
        }
    }
}

#[test]
fn two_of_one_name_in_unusual_folders_are_both_named() {
    if !cfg!(target_os = "linux") {
        harness::skipped("two servers of one name", "only Linux can list them");
        return;
    }
    let (one, two) = (Scratch::new(), Scratch::new());
    let first = EmacsBuilder::new("twice-there").start(&one);
    let second = EmacsBuilder::new("twice-there").start(&two);
    let answer = RelayBuilder::new()
        .arg("--socket-name")
        .arg("twice-there")
        .start()
        .eval("1");
    assert_eq!(answer.code(), "emacs_unavailable");
    for emacs in [&first, &second] {
        let socket = emacs.socket().to_str().unwrap();
        assert!(answer.message().contains(socket), "{}", answer.message());
    }
}

#[test]
fn nobody_there_names_the_places_and_starts_nothing() {
    let scratch = Scratch::new();
    let marker = scratch.path().join("started");
    let editor = scratch.path().join("editor");
    std::fs::write(&editor, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    Command::new("chmod")
        .arg("+x")
        .arg(&editor)
        .status()
        .unwrap();
    let name = format!("nobody-{}", std::process::id());
    for way in ["auto", "module", "emacsclient"] {
        let answer = RelayBuilder::new()
            .beside(&scratch)
            .env("ALTERNATE_EDITOR", &editor)
            .arg("--socket-name")
            .arg(&name)
            .by(way)
            .start()
            .eval("1");
        assert_eq!(answer.code(), "emacs_unavailable");
        let looked_at = answer.envelope["error"]["data"]["looked_at"].to_string();
        let place = scratch.path().join("run/emacs").join(&name);
        assert!(looked_at.contains(place.to_str().unwrap()), "{looked_at}");
        assert!(answer.took.as_millis() < 2_000);
    }
    let list = Command::new("ps")
        .args(["-eo", "args"])
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    assert!(
        !String::from_utf8_lossy(&list)
            .lines()
            .any(|line| line.contains(&name)
                && line.contains("emacs")
                && !line.contains("emacs-runtime-mcp"))
    );
    assert!(!marker.exists());
}

#[test]
fn what_is_no_server_file_is_unavailable() {
    // B66
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    let garbage = scratch.path().join("garbage");
    std::fs::write(&garbage, "garbage").unwrap();
    for file in [emacs.socket(), &garbage, Path::new("/nonexistent/server")] {
        let answer = RelayBuilder::new()
            .beside(&scratch)
            .arg("--server-file")
            .arg(file)
            .start()
            .eval("1");
        assert_eq!(answer.code(), "emacs_unavailable", "{file:?}: {answer:?}");
        assert_eq!(answer.evaluation(), "", "nothing can have run: {answer:?}");
    }
}

#[test]
fn a_name_that_is_too_long_is_a_clear_error_at_once() {
    // B68
    let scratch = Scratch::new();
    for way in ["auto", "module", "emacsclient"] {
        let answer = RelayBuilder::new()
            .beside(&scratch)
            .arg("--socket-name")
            .arg("n".repeat(120))
            .by(way)
            .start()
            .eval("1");
        assert_eq!(answer.code(), "emacs_unavailable");
        assert!(answer.message().contains("shorter"), "{}", answer.message());
        assert!(answer.took.as_millis() < 1_000);
    }
}

#[test]
fn an_emacsclient_that_cannot_be_run_is_named() {
    // B70
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    for program in [
        "~/bin/emacsclient",
        "no-such-emacsclient",
        "/nonexistent/emacsclient",
    ] {
        let answer = RelayBuilder::to(&emacs)
            .arg("--emacsclient")
            .arg(program)
            .start()
            .eval("1");
        assert_eq!(answer.code(), "emacs_unavailable");
        assert!(answer.message().contains(program), "{}", answer.message());
    }
    let answer = RelayBuilder::to(&emacs)
        .env("PATH", "/nonexistent")
        .env("EMACS_RUNTIME_MCP_EMACSCLIENT", "")
        .start()
        .eval("1");
    assert_eq!(answer.code(), "emacs_unavailable");
    assert!(
        answer.message().contains("emacsclient") && answer.message().contains("PATH"),
        "{}",
        answer.message()
    );
}

#[test]
fn a_folder_that_others_can_write_is_not_trusted() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let folder = emacs.socket().parent().unwrap();
    Command::new("chmod")
        .arg("777")
        .arg(folder)
        .status()
        .unwrap();
    for way in WAYS {
        let answer = RelayBuilder::to(&emacs).by(way).start().eval("1");
        assert_eq!(answer.code(), "emacs_unavailable");
        assert!(
            answer.message().contains("written by others"),
            "{}",
            answer.message()
        );
    }
    Command::new("chmod")
        .arg("700")
        .arg(folder)
        .status()
        .unwrap();
    reaches(&RelayBuilder::to(&emacs), &emacs);
}

/// Runs `inner` of this file again, as another process with file systems of its own mounted on /run
/// and /tmp/emacsUID, so that the usual places are there and nobody's.
fn with_own_mounts(inner: &str) {
    let script = "uid=$(id -u) && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/user && \
                  mkdir -m 700 /run/user/$uid && mkdir -p -m 700 /tmp/emacs$uid && \
                  mount -t tmpfs -o mode=700 tmpfs /tmp/emacs$uid && exec \"$@\"";
    let unshare = |command: &[&std::ffi::OsStr]| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--user", "--map-root-user", "--mount"])
            .args(command);
        unshare.output()
    };
    let sh = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), "sh".as_ref()];
    let possible = unshare(&[sh[0], sh[1], sh[2], sh[3], "true".as_ref()]);
    if !possible.is_ok_and(|output| output.status.success()) {
        harness::skipped("the usual folders", "no mount namespace can be had here");
        return;
    }
    let test = std::env::current_exe().unwrap();
    let args = ["--ignored", "--exact", inner, "--nocapture"].map(std::ffi::OsStr::new);
    let output = unshare(&[&sh[..], &[test.as_os_str()], &args].concat()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn with_the_environment_that_official_clients_pass_on() {
    with_own_mounts("selection::in_the_usual_folders_with_a_bare_environment");
}

#[test]
#[ignore = "runs in a mount namespace, see with_own_mounts"]
fn in_the_usual_folders_with_a_bare_environment() {
    let scratch = Scratch::new();
    let uid = nix::unistd::geteuid();
    let runtime = format!("/run/user/{uid}");
    for name in ["server", "given"] {
        let relay = || {
            let relay = RelayBuilder::new();
            if name == "server" {
                relay
            } else {
                relay.arg("--socket-name").arg(name)
            }
        };
        let in_runtime = EmacsBuilder::new(name)
            .env("XDG_RUNTIME_DIR", &runtime)
            .start(&scratch);
        assert_eq!(
            in_runtime.socket(),
            Path::new(&format!("{runtime}/emacs/{name}"))
        );
        reaches(&relay(), &in_runtime);
        drop(in_runtime);
        // What the killed one left over must not hide the next.
        let in_tmp = EmacsBuilder::new(name)
            .without_runtime_dir()
            .env("TMPDIR", "/tmp")
            .start(&scratch);
        assert_eq!(
            in_tmp.socket(),
            Path::new(&format!("/tmp/emacs{uid}/{name}"))
        );
        reaches(&relay(), &in_tmp);
    }
}
