//! The signal that makes Emacs break off a computation: SIGUSR2 to its main thread. While a form is
//! evaluated, Lisp has `debug-on-event' and `debugger' bound so that Emacs answers it with a call of
//! our function; outside, nobody may send it.

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;

/// Emacs's main thread.
#[derive(Clone, Copy)]
pub(crate) struct MainThread(Pthread);

// SAFETY: a thread's id is a plain name for it; on some systems it is a pointer, which nobody
// follows here, and the main thread lives as long as the process.
unsafe impl Send for MainThread {}

// SAFETY: as above.
unsafe impl Sync for MainThread {}

impl MainThread {
    /// The calling thread, which must be Emacs's main one.
    pub(crate) fn this() -> Self {
        Self(pthread_self())
    }

    /// Signals it.
    pub(crate) fn interrupt(self) {
        let _ = pthread_kill(self.0, Signal::SIGUSR2);
    }
}
