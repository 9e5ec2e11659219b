//! What the tests, the demo and the measurements share: an Emacs of their own in a temporary HOME,
//! and an MCP client that drives the real relay over real pipes. Never the person's own server.

mod emacs;
mod piped;
mod relay;
mod say;
mod scratch;
mod terminal;
mod wait;
mod window;

pub use emacs::{
    Emacs, EmacsBuilder, ask, emacs_program, emacsclient, emacsclient_program, major_version,
};
pub use piped::{HELLO, PING, Piped};
pub use relay::{Answer, Relay, RelayBuilder, relay_program};
pub use say::{show, skipped};
pub use scratch::Scratch;
pub use terminal::{Terminal, Typist};
pub use wait::{wait_for, wait_until};
pub use window::Window;

use std::path::PathBuf;
use std::time::Duration;

/// How long an answer may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The checkout.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .canonicalize()
        .expect("the checkout is where it was built")
}

/// The Lisp under test: `LISP`, a folder where it is compiled for the Emacs under test, or the
/// checkout's source.
pub fn lisp() -> PathBuf {
    std::env::var_os("LISP").map_or_else(|| root().join("lisp"), PathBuf::from)
}

/// A line of `/proc/PID/status`, in KiB: `VmRSS` is what the process has, `VmHWM` the most it had.
///
/// # Panics
///
/// Where there is no such process or line.
#[must_use]
pub fn memory_kib(pid: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("Linux");
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let value = lines.find_map(|(name, value)| (name == key).then_some(value));
    let number = value.and_then(|value| value.split_whitespace().next());
    number.expect("the key").parse().expect("a number")
}
