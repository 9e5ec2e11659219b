//! Wakes Emacs's main thread: one byte into a pipe that Emacs watches, at most one outstanding.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::lock;

/// The bell of one listener. A byte is written only when Emacs has read the one before or has ended
/// a form since, so the pipe never fills and a write never blocks.
pub(crate) struct Wake<W> {
    writer: Mutex<W>,
    outstanding: AtomicBool,
}

impl<W: Write> Wake<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self {
            writer: Mutex::new(writer),
            outstanding: AtomicBool::new(false),
        }
    }

    /// Makes Emacs look for work, unless it is going to anyway.
    pub(crate) fn ring(&self) {
        if !self.outstanding.swap(true, Ordering::SeqCst) && lock(&self.writer).write(&[0]).is_err()
        {
            // Emacs has closed its end; nobody listens any more, and nobody may think so.
            self.outstanding.store(false, Ordering::SeqCst);
        }
    }

    /// Emacs has read the byte and will look, so that what comes later rings again.
    pub(crate) fn heard(&self) {
        self.outstanding.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_until_it_is_heard() {
        let wake = Wake::new(Vec::new());
        wake.ring();
        wake.ring();
        assert_eq!(lock(&wake.writer).len(), 1);
        wake.heard();
        wake.ring();
        assert_eq!(lock(&wake.writer).len(), 2);
    }
}
