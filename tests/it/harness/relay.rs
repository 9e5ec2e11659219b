//! An MCP client that drives the real relay binary over pipes.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Emacs, PATIENCE, Scratch, emacsclient_program, root, wait_for};

/// The relay under test: `RELAY`, or the release build.
#[must_use]
pub fn relay_program() -> PathBuf {
    std::env::var_os("RELAY").map_or_else(
        || root().join("target/release/emacs-runtime-mcp"),
        PathBuf::from,
    )
}

/// How a relay is to be started. Its environment is only what is said here and what official
/// clients pass on.
#[derive(Debug, Clone)]
pub struct RelayBuilder {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A running relay after initialize. It ends with this value.
#[derive(Debug)]
pub struct Relay {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<String>>,
    next_id: i64,
    /// Answers that came before they were asked for.
    early: Vec<Value>,
}

/// The result of one call of `emacs_eval`.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The envelope.
    pub envelope: Value,
    /// `_meta` of the result.
    pub meta: Value,
    /// From the request's last byte to the answer's.
    pub took: Duration,
}

impl Default for RelayBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RelayBuilder {
    /// A relay without arguments, with HOME in nowhere.
    #[must_use]
    pub fn new() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let keep = |name: &str, value: &OsStr| (OsString::from(name), value.to_owned());
        Self {
            arguments: Vec::new(),
            environment: vec![
                keep("PATH", &path),
                keep("HOME", OsStr::new("/nonexistent")),
                keep("LOGNAME", OsStr::new("tester")),
                keep("USER", OsStr::new("tester")),
                keep("SHELL", OsStr::new("/bin/sh")),
                keep("TERM", OsStr::new("dumb")),
                keep("EMACS_RUNTIME_MCP_EMACSCLIENT", &emacsclient_program()),
            ],
        }
    }

    /// A relay for exactly this Emacs.
    #[must_use]
    pub fn to(emacs: &Emacs) -> Self {
        Self::at(emacs.socket())
    }

    /// A relay for the server at `socket`.
    #[must_use]
    pub fn at(socket: &Path) -> Self {
        Self::new().arg("--socket-name").arg(socket)
    }

    /// With HOME, `XDG_RUNTIME_DIR` and `TMPDIR` as an Emacs in `scratch` has them.
    #[must_use]
    pub fn beside(self, scratch: &Scratch) -> Self {
        self.env("HOME", scratch.path())
            .env("XDG_RUNTIME_DIR", scratch.folder("run"))
            .env("TMPDIR", scratch.folder("tmp"))
    }

    /// By this path and no other: `module` or `emacsclient`.
    #[must_use]
    pub fn by(self, way: &str) -> Self {
        self.arg("--transport").arg(way)
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.retain(|(key, _)| key != name);
        self.environment
            .push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// The command, with nothing started.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(relay_program());
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it; nothing is sent yet.
    ///
    /// # Panics
    ///
    /// Where there is no relay: `make build`.
    #[must_use]
    pub fn spawn(&self) -> Relay {
        let mut child = self.command().spawn().expect("a relay; run make build");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut stderr = child.stderr.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let said = Arc::new(Mutex::new(String::new()));
        let saying = Arc::clone(&said);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]);
                saying.lock().expect("no panic").push_str(&text);
            }
        });
        let stdin = child.stdin.take();
        Relay {
            child,
            stdin,
            lines,
            stderr: said,
            next_id: 1,
            early: Vec::new(),
        }
    }

    /// Starts it and initializes.
    #[must_use]
    pub fn start(&self) -> Relay {
        let mut relay = self.spawn();
        relay.initialize("2025-11-25");
        relay
    }
}

impl Relay {
    /// Initializes with a protocol version and returns the result.
    ///
    /// # Panics
    ///
    /// Where the answer is an error.
    pub fn initialize(&mut self, version: &str) -> Value {
        let answer = self.request(
            "initialize",
            json!({
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": { "name": "it", "version": "0" },
            }),
        );
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    /// Writes one raw line.
    ///
    /// # Panics
    ///
    /// Where the relay doesn't take it.
    pub fn send_line(&mut self, line: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().expect("input is open");
        let line = [line.as_ref(), b"\n"].concat();
        stdin.write_all(&line).expect("the relay reads");
    }

    /// Writes one message.
    pub fn send(&mut self, message: &Value) {
        self.send_line(message.to_string());
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// The next message.
    ///
    /// # Panics
    ///
    /// Where none comes in a minute, or it isn't JSON.
    pub fn receive(&mut self) -> Value {
        let line = self.receive_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// The next line as it is.
    ///
    /// # Panics
    ///
    /// Where none comes in a minute.
    pub fn receive_line(&mut self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.unwrap_or_else(|error| panic!("no answer ({error}); it said {:?}", self.stderr()))
    }

    /// The next message if one comes within `time`.
    pub fn receive_within(&mut self, time: Duration) -> Option<Value> {
        let line = self.lines.recv_timeout(time).ok()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}")))
    }

    /// Sends a request and returns its id.
    pub fn begin(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Sends a request and waits for its answer.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer_to(id)
    }

    /// Waits for the answer to `id`; others are kept for when they are asked for, notifications are
    /// dropped.
    pub fn answer_to(&mut self, id: i64) -> Value {
        if let Some(at) = self.early.iter().position(|message| message["id"] == id) {
            return self.early.remove(at);
        }
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            if message.get("method").is_none() {
                self.early.push(message);
            }
        }
    }

    /// Drops the answer to `id` if it has come: nobody waits for it.
    pub fn forget(&mut self, id: i64) {
        self.early.retain(|message| message["id"] != id);
    }

    /// Begins a call of `emacs_eval` with these arguments.
    pub fn begin_call(&mut self, arguments: Value) -> i64 {
        self.begin(
            "tools/call",
            json!({ "name": "emacs_eval", "arguments": arguments }),
        )
    }

    /// Begins an evaluation.
    pub fn begin_eval(&mut self, expression: &str) -> i64 {
        self.begin_call(json!({ "expression": expression }))
    }

    /// Calls `emacs_eval` with these arguments, whatever they are.
    pub fn call(&mut self, arguments: Value) -> Answer {
        let begun = Instant::now();
        let id = self.begin_call(arguments);
        let message = self.answer_to(id);
        Answer::new(&message, begun.elapsed())
    }

    /// Evaluates `expression`.
    pub fn eval(&mut self, expression: &str) -> Answer {
        self.call(json!({ "expression": expression }))
    }

    /// Evaluates `expression` and returns the printed value.
    ///
    /// # Panics
    ///
    /// Where it fails.
    pub fn value(&mut self, expression: &str) -> String {
        self.eval(expression).value()
    }

    /// What it has written to stderr so far.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("no panic").clone()
    }

    /// Closes its input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// Where it doesn't.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the relay's end", || {
            self.child.try_wait().expect("it is ours")
        })
    }

    /// Kills it as a crash would.
    ///
    /// # Panics
    ///
    /// Where the system refuses.
    pub fn crash(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    /// Reads the answer to a call and checks what holds for every one of them.
    ///
    /// # Panics
    ///
    /// Where the result breaks the contract.
    #[must_use]
    pub fn new(message: &Value, took: Duration) -> Self {
        let result = &message["result"];
        let envelope = result["structuredContent"].clone();
        assert!(envelope.is_object(), "{message}");
        let content = result["content"].as_array().expect("content");
        assert_eq!(content.len(), 1, "{message}");
        assert_eq!(content[0]["type"], "text");
        assert_eq!(
            content[0]["text"],
            envelope.to_string(),
            "text and structured content differ"
        );
        let ok = envelope["ok"].as_bool().expect("ok");
        assert_eq!(result["isError"], !ok);
        let keys: Vec<_> = envelope
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let wanted: &[&str] = if ok {
            &[
                "ok",
                "value",
                "truncated",
                "original_chars",
                "output",
                "elapsed_ms",
            ]
        } else {
            &["ok", "error", "elapsed_ms"]
        };
        let wanted: Vec<_> = wanted
            .iter()
            .filter(|key| **key != "output" || keys.contains(key))
            .collect();
        assert_eq!(keys.iter().collect::<Vec<_>>(), wanted, "{message}");
        assert!(envelope["elapsed_ms"].is_u64());
        if !ok {
            let text = envelope["error"]["message"].as_str().expect("a message");
            assert!(!text.is_empty() && text.chars().count() <= 4_096);
        }
        Self {
            envelope,
            meta: result["_meta"].clone(),
            took,
        }
    }

    /// The printed value.
    ///
    /// # Panics
    ///
    /// Where there is none.
    #[must_use]
    pub fn value(&self) -> String {
        self.envelope["value"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", self.envelope))
            .to_owned()
    }

    /// The error code; empty for a success.
    #[must_use]
    pub fn code(&self) -> &str {
        self.envelope["error"]["code"].as_str().unwrap_or_default()
    }

    /// The error message; empty for a success.
    #[must_use]
    pub fn message(&self) -> &str {
        self.envelope["error"]["message"]
            .as_str()
            .unwrap_or_default()
    }

    /// The condition's symbol; empty where there is none.
    #[must_use]
    pub fn symbol(&self) -> &str {
        self.envelope["error"]["data"]["symbol"]
            .as_str()
            .unwrap_or_default()
    }

    /// What became of the form; empty where that isn't said.
    #[must_use]
    pub fn evaluation(&self) -> &str {
        self.envelope["error"]["data"]["evaluation"]
            .as_str()
            .unwrap_or_default()
    }
}
