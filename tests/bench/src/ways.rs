//! The ways to a value that are compared, from bare pipes to the whole.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use emacs_runtime_mcp_protocol::{PROTOCOL, VERSION};
use harness::{Emacs, HELLO, Piped, RelayBuilder, Scratch, emacsclient_program};
use serde_json::{Value, json};

/// A ping that says more of itself than that it is one, and is not answered by the transport.
pub(crate) const PING_THROUGH_RMCP: &str =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{}}}\n";

/// A relay after its initialize.
pub(crate) fn relay(builder: &RelayBuilder) -> Piped {
    let mut relay = Piped::start(builder.command());
    relay.round_trip(HELLO);
    relay
}

/// From a call of `emacs_eval` to its answer, which must be a value.
pub(crate) fn eval(relay: &mut Piped, expression: &str) -> Duration {
    let took = relay.round_trip(&call(1, expression));
    let answer = relay.answer();
    assert!(
        answer.contains(r#""ok":true"#),
        "{}",
        &answer[..answer.len().min(500)]
    );
    took
}

/// The line of a call.
pub(crate) fn call(id: u64, expression: &str) -> String {
    let arguments =
        json!({ "expression": expression, "timeout_ms": 60_000, "max_output_chars": 262_144 });
    let params = json!({ "name": "emacs_eval", "arguments": arguments });
    format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    )
}

/// A Unix socket that is asked with a line and answers with one.
pub(crate) struct Socket {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    line: String,
}

impl Socket {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("somebody listens");
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone().expect("a socket"));
        Self {
            stream,
            reader,
            line: String::new(),
        }
    }

    /// Somebody at the other end who says back what he hears.
    pub(crate) fn echo(scratch: &Scratch) -> Self {
        let path = scratch.path().join("echo");
        let listener = UnixListener::bind(&path).expect("a socket");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the bench");
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        });
        Self::connect(&path)
    }

    /// The module's, after the hello.
    pub(crate) fn module(emacs: &Emacs) -> Self {
        let mut socket = Self::connect(&emacs.module_socket());
        let hello = json!({ "hello": { "protocol": PROTOCOL, "version": VERSION } });
        socket.round_trip(&format!("{hello}\n"));
        socket
    }

    pub(crate) fn round_trip(&mut self, line: &str) -> Duration {
        let begun = Instant::now();
        self.stream.write_all(line.as_bytes()).expect("it reads");
        self.line.clear();
        self.reader.read_line(&mut self.line).expect("it answers");
        begun.elapsed()
    }

    /// From a frame to its reply, which must be a value.
    pub(crate) fn eval(&mut self, expression: &str) -> Duration {
        let eval = json!({ "eval": { "id": 1, "expression": expression, "timeout_ms": 60_000, "left_ms": 60_000, "max_output_chars": 262_144 } });
        let took = self.round_trip(&format!("{eval}\n"));
        let reply: Value = serde_json::from_str(&self.line).expect("JSON");
        assert!(
            reply["reply"]["outcome"]["success"].is_object(),
            "{}",
            self.line
        );
        took
    }
}

/// Plain `emacsclient --eval`.
pub(crate) fn emacsclient(emacs: &Emacs, expression: &str) -> Duration {
    let begun = Instant::now();
    let output = Command::new(emacsclient_program())
        .arg(format!("--socket-name={}", emacs.socket().display()))
        .args(["--eval", expression])
        .output()
        .expect("an emacsclient");
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}
