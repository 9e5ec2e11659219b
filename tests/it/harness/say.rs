//! Words that the person who runs the tests should see even where a test passes.

use std::io::Write;

/// Says that something could not be tested here, and why.
pub fn skipped(what: &str, why: &str) {
    show(&format!("skipped: {what} ({why})"));
}

/// Shows `text` past the test runner's capture.
pub fn show(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
