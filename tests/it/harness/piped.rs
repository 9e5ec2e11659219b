//! A program that answers a line with a line, over pipes, and as little between as there can be: for
//! what measures times.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What begins a session.
pub const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"it","version":"0"}}}"#,
    "\n"
);

/// A bare ping.
pub const PING: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";

/// The program. It ends with this value.
#[derive(Debug)]
pub struct Piped {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl Piped {
    /// Starts `command`.
    ///
    /// # Panics
    ///
    /// Where it can't be run.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a program; its make target builds it");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::with_capacity(1 << 16, child.stdout.take().expect("piped"));
        Self {
            child,
            stdin,
            stdout,
            line: String::new(),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes what has its newlines already.
    ///
    /// # Panics
    ///
    /// Where it doesn't read.
    pub fn send(&mut self, lines: &str) {
        self.stdin.write_all(lines.as_bytes()).expect("it reads");
    }

    /// The next line.
    ///
    /// # Panics
    ///
    /// Where its output is no text.
    pub fn receive(&mut self) -> &str {
        self.line.clear();
        self.stdout.read_line(&mut self.line).expect("it answers");
        &self.line
    }

    /// From a line to its answer.
    pub fn round_trip(&mut self, line: &str) -> Duration {
        let begun = Instant::now();
        self.send(line);
        self.receive();
        begun.elapsed()
    }

    /// The last answer.
    #[must_use]
    pub fn answer(&self) -> &str {
        &self.line
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
