//! Loading the module and the socket it makes: what can be wrong is one clear warning, nothing is
//! taken over, and the fallback serves.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Emacs, EmacsBuilder, RelayBuilder, Scratch, Terminal, root, wait_until};

/// The text of *Warnings*.
fn warnings(emacs: &Emacs) -> String {
    emacs.ask("(if (get-buffer \"*Warnings*\") (with-current-buffer \"*Warnings*\" (buffer-string)) \"\")")
}

/// Waits for the only warning there is and checks that it says `words`.
fn warns_once(emacs: &Emacs, words: &[&str]) {
    wait_until("a warning", || {
        warnings(emacs).contains("emacs-runtime-mcp")
    });
    let text = warnings(emacs);
    assert_eq!(
        text.matches("Warning (emacs-runtime-mcp)").count(),
        1,
        "{text}"
    );
    for word in words {
        assert!(text.contains(word), "{text} should say {word}");
    }
}

/// A copy of the Lisp folder without its core.
fn lisp_without_core(scratch: &Scratch) -> PathBuf {
    let folder = scratch.folder("lisp");
    for entry in fs::read_dir(root().join("lisp")).unwrap().flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "el")
        {
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    folder
}

fn core_file() -> PathBuf {
    let core = |suffix: &str| root().join(format!("lisp/emacs-runtime-mcp-core.{suffix}"));
    [core("so"), core("dylib")]
        .into_iter()
        .find(|core| core.exists())
        .expect("make build")
}

/// An Emacs whose module can't listen, by a builder that says `without_module` only to the fixture.
fn start_failing(builder: EmacsBuilder, lisp: &Path, scratch: &Scratch) -> Emacs {
    builder
        .without_module()
        .arg("-L")
        .arg(lisp)
        .arg("-l")
        .arg("emacs-runtime-mcp-module")
        .start(scratch)
}

#[test]
fn a_module_that_cannot_be_loaded_is_one_warning_and_the_fallback_serves() {
    // B80
    for kind in ["no module support", "missing", "empty", "another version"] {
        let scratch = Scratch::new();
        let lisp = lisp_without_core(&scratch);
        let core = lisp.join(core_file().file_name().unwrap());
        let mut builder = EmacsBuilder::new("t");
        let words: &[&str] = match kind {
            "no module support" => {
                builder = builder.eval_before("(fmakunbound 'module-load)");
                &["dynamic modules", "emacsclient"]
            }
            "missing" => &["missing", "make install", "emacsclient"],
            "empty" => {
                fs::write(&core, "").unwrap();
                &["cannot be loaded", "emacsclient"]
            }
            _ => {
                fs::copy(core_file(), &core).unwrap();
                let eval = lisp.join("emacs-runtime-mcp-eval.el");
                let text = fs::read_to_string(&eval).unwrap();
                fs::write(&eval, text.replace(env!("CARGO_PKG_VERSION"), "9.9.9")).unwrap();
                &["9.9.9", "restart Emacs"]
            }
        };
        let emacs = start_failing(builder, &lisp, &scratch);
        warns_once(&emacs, words);
        let answer = RelayBuilder::to(&emacs).start().eval("(emacs-pid)");
        assert_eq!(answer.value(), emacs.pid().to_string(), "{kind}");
        assert_eq!(answer.meta["transport"], "emacsclient", "{kind}");
    }
}

#[test]
fn loading_twice_and_a_copy_change_nothing() {
    // B78
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let copy = scratch.path().join("copy.so");
    fs::copy(core_file(), &copy).unwrap();
    let mut relay = RelayBuilder::to(&emacs).start();
    assert_eq!(relay.value("(setq b78 0)"), "0");
    for file in [core_file(), copy] {
        emacs.ask(&format!(
            "(progn (module-load {file:?}) (module-load {file:?}) nil)"
        ));
        emacs.ask("(progn (emacs-runtime-mcp-start) nil)");
        let answer = relay.eval("(setq b78 (1+ b78))");
        assert_eq!(answer.meta["transport"], "module");
        let fresh = RelayBuilder::to(&emacs).start().eval("b78");
        assert_eq!(
            (fresh.value(), &fresh.meta["transport"]),
            (answer.value(), &"module".into())
        );
    }
    assert_eq!(relay.value("b78"), "2");
}

#[test]
fn a_second_emacs_of_the_same_place_takes_nothing_over() {
    let scratch = Scratch::new();
    let first = Emacs::start(&scratch);
    let second = start_failing(EmacsBuilder::new("second"), &root().join("lisp"), &scratch);
    second.ask("(progn (emacs-runtime-mcp-stop) nil)");
    second.ask(&format!(
        "(progn (process-put server-process :server-file {:?}) (emacs-runtime-mcp-start) nil)",
        first.socket()
    ));
    warns_once(&second, &[&first.pid().to_string(), "another"]);
    second.ask("(progn (emacs-runtime-mcp-stop) nil)");
    let answer = RelayBuilder::to(&first).start().eval("(emacs-pid)");
    assert_eq!(
        (answer.value(), &answer.meta["transport"]),
        (first.pid().to_string(), &"module".into())
    );
}

#[test]
fn a_stale_socket_is_replaced_and_ours_goes_away_with_emacs() {
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    emacs.crash();
    assert!(emacs.module_socket().exists(), "a crash leaves it");
    let mut emacs = emacs.again(&scratch);
    let socket = emacs.module_socket();
    assert_eq!(
        fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        RelayBuilder::to(&emacs).start().eval("1").meta["transport"],
        "module"
    );
    emacs.emacsclient("(kill-emacs)");
    wait_until("Emacs's end", || !emacs.is_alive());
    assert!(!socket.exists());
}

#[test]
fn a_folder_that_is_no_private_one_is_a_warning() {
    for kind in ["open", "link", "long"] {
        let scratch = Scratch::new();
        let emacs = EmacsBuilder::new("t").without_module().start(&scratch);
        let folder = scratch.folder("place");
        let (place, words): (PathBuf, &[&str]) = match kind {
            "open" => {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
                (folder, &["written by others", "0777"])
            }
            "link" => {
                let link = scratch.path().join("link");
                symlink(&folder, &link).unwrap();
                (link, &["link"])
            }
            _ => (scratch.folder(&"l".repeat(110)), &["shorter"]),
        };
        emacs.ask(&format!(
            "(progn (add-to-list 'load-path {:?}) (process-put server-process :server-file {:?}) \
             (require 'emacs-runtime-mcp-module) nil)",
            root().join("lisp"),
            place.join("s")
        ));
        warns_once(&emacs, words);
        assert!(!place.join("s.mcp").exists());
    }
}

#[test]
fn status_says_where_it_listens_and_when_the_server_moved() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let status = emacs.ask("(emacs-runtime-mcp-status)");
    assert!(
        status.contains(emacs.module_socket().to_str().unwrap()),
        "{status}"
    );
    let moved = scratch.folder("moved").join("m");
    emacs.ask(&format!(
        "(progn (process-put server-process :server-file {moved:?}) nil)"
    ));
    let status = emacs.ask("(emacs-runtime-mcp-status)");
    assert!(
        status.contains("m.mcp") && status.contains("emacs-runtime-mcp-restart"),
        "{status}"
    );
    emacs.ask("(emacs-runtime-mcp-restart)");
    assert!(scratch.path().join("moved/m.mcp").exists());
    emacs.ask("(emacs-runtime-mcp-stop)");
    assert!(!scratch.path().join("moved/m.mcp").exists());
    assert!(
        emacs
            .ask("(emacs-runtime-mcp-status)")
            .contains("emacs-runtime-mcp-start")
    );
}

#[test]
fn a_version_that_does_not_match_goes_by_emacsclient_and_is_said_once() {
    use std::io::{BufRead, BufReader, Write};
    let scratch = Scratch::new();
    let emacs = Emacs::start_without_module(&scratch);
    // Only a fake can be of another version.
    let listener = std::os::unix::net::UnixListener::bind(emacs.module_socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap())
                .read_line(&mut line)
                .unwrap();
            let _ = stream.write_all(b"{\"hello\":{\"protocol\":99,\"version\":\"9.9.9\",\"emacs_version\":\"28\",\"pid\":1,\"server_name\":\"t\",\"directory\":\"/\"}}\n");
        }
    });
    let mut relay = RelayBuilder::to(&emacs).start();
    for _ in 0..2 {
        assert_eq!(relay.eval("1").meta["transport"], "emacsclient");
    }
    let said = relay.stderr();
    assert_eq!(said.matches("9.9.9").count(), 1, "{said}");
    assert!(said.contains("restart Emacs"), "{said}");
}

#[test]
fn broken_frames_cost_their_connection_and_nobody_elses() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    for bytes in [&b"garbage\n"[..], b"{\"eval\":{\"id\":1}}\n", b"\xff\xfe\x00\n", b"{\"hello\":{\"protocol\":1}}\n",
                  b"{\"eval\":{\"id\":1,\"expression\":\"1\",\"timeout_ms\":1,\"left_ms\":1,\"max_output_chars\":1}}\n"] {
        let mut stream = UnixStream::connect(emacs.module_socket()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"refused\""), "{answer}");
    }
    // A line without end: refused long before memory is full.
    let mut stream = UnixStream::connect(emacs.module_socket()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..64)
        .take_while(|_| stream.write_all(&piece).is_ok())
        .count();
    assert!(sent < 64, "{sent} MiB were taken");
    assert_eq!(relay.value("'served"), "served");
}

#[test]
fn the_whole_runs_under_module_assertions() {
    // B76: Emacs aborts when a thread touches Lisp, or a value outlives its call.
    let scratch = Scratch::new();
    let mut emacs = EmacsBuilder::new("t")
        .arg_before("--module-assertions")
        .start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    relay.value("(setq gc-cons-threshold 1)");
    for nth in 0..500 {
        assert_eq!(
            relay.value(&format!("(list {nth} (list {nth}))")),
            format!("({nth} ({nth}))")
        );
        assert_eq!(relay.eval("(car 1)").code(), "elisp_error");
    }
    relay.value("(progn (emacs-runtime-mcp-status) (emacs-runtime-mcp-restart) 1)");
    assert_eq!(RelayBuilder::to(&emacs).start().value("1"), "1");
    assert!(emacs.is_alive());
}

#[test]
fn a_checkout_works_as_source_and_compiles_its_evaluator() {
    for name in ["t", "named é"] {
        let scratch = Scratch::new();
        let emacs = EmacsBuilder::new(name)
            .lisp(root().join("lisp"))
            .start(&scratch);
        let mut relay = RelayBuilder::to(&emacs).by("module").start();
        assert_eq!(
            relay.value("(byte-code-function-p (symbol-function 'emacs-runtime-mcp-eval))"),
            "t"
        );
        assert_eq!(warnings(&emacs), "\"\"");
    }
}

/// The installed form: `make install` into a prefix of the test's own, and the two lines it prints.
#[test]
fn the_installed_form_works_with_the_printed_lines() {
    let prefix = Scratch::new();
    let make = |target: &str| {
        Command::new("make")
            .arg("-C")
            .arg(root())
            .args(["--no-print-directory", target])
            .arg(format!("PREFIX={}", prefix.path().display()))
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .output()
            .unwrap()
    };
    let output = make("install");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<_> = printed
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('('))
        .collect();
    assert_eq!(lines.len(), 2, "{printed}");
    let binary = prefix.path().join("bin/emacs-runtime-mcp");
    assert!(printed.contains(binary.to_str().unwrap()), "{printed}");
    for name in ["server", "named"] {
        let scratch = Scratch::new();
        let emacs = EmacsBuilder::new(name)
            .init(lines.join("\n"))
            .start(&scratch);
        wait_until("the module", || emacs.module_socket().exists());
        let answer = RelayBuilder::to(&emacs)
            .by("module")
            .start()
            .eval("(featurep 'emacs-runtime-mcp-module)");
        assert_eq!(answer.value(), "t", "{name}");
        assert_eq!(warnings(&emacs), "\"\"");
    }
    // A plain Emacs, without any server.
    let scratch = Scratch::new();
    let terminal = Terminal::start_with_init(&scratch, &lines.join("\n"));
    let mut relay = RelayBuilder::new().beside(&scratch).start();
    let answer = relay.eval("(list server-process (featurep 'emacs-runtime-mcp-module))");
    assert_eq!(answer.value(), "(nil t)");
    drop(terminal);
    assert!(make("uninstall").status.success());
    let left: Vec<_> = walk(prefix.path());
    assert!(left.is_empty(), "{left:?}");
}

/// The files below `folder`.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            all.extend(walk(&entry.path()))
        } else {
            all.push(entry.path())
        }
    }
    all
}
