//! What waits to be written to one relay. Anybody may put something in without ever blocking; the
//! connection's writer takes it out. A relay that doesn't read is not read from either.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use emacs_runtime_mcp_protocol::{FromModule, limits};

use crate::sync::{lock, wait};

/// The messages for one relay, in order.
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<FromModule>,
    /// Bytes of text in `messages` and in the one being written.
    bytes: usize,
    /// Calls that were accepted and not answered yet.
    open_calls: usize,
    /// No new calls; end when the open ones are answered and written.
    finishing: bool,
    /// The connection is over; what is in here reaches nobody.
    closed: bool,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Puts `message` in line. Lost without a word where the connection is over: nobody waits.
    pub(crate) fn send(&self, message: FromModule) {
        let mut state = lock(&self.state);
        if matches!(message, FromModule::Reply(_) | FromModule::Withdrawn { .. }) {
            state.open_calls = state.open_calls.saturating_sub(1);
        }
        if !state.closed {
            state.bytes += size(&message);
            state.messages.push_back(message);
        }
        // Who is told takes the lock at once.
        drop(state);
        self.changed.notify_all();
    }

    /// Counts a call that will be answered by [`Self::send`].
    pub(crate) fn call_opened(&self) {
        lock(&self.state).open_calls += 1;
    }

    /// A call that will never be answered, since nobody waits for it.
    pub(crate) fn call_dropped(&self) {
        let mut state = lock(&self.state);
        state.open_calls = state.open_calls.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    /// Blocks the connection's reader while too much waits to be written. False when the
    /// connection is over.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = lock(&self.state);
        while state.bytes > limits::OUTBOX_MAX_BYTES && !state.closed {
            state = wait(&self.changed, state, None);
        }
        !state.closed
    }

    /// Blocks the connection's writer until there is a message; `None` when it should end.
    pub(crate) fn next(&self) -> Option<FromModule> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(message) = state.messages.pop_front() {
                return Some(message);
            }
            if state.finishing && state.open_calls == 0 {
                state.closed = true;
                return None;
            }
            state = wait(&self.changed, state, None);
        }
    }

    /// `message` has left: its bytes make room.
    pub(crate) fn written(&self, message: &FromModule) {
        let mut state = lock(&self.state);
        let full = state.bytes > limits::OUTBOX_MAX_BYTES;
        state.bytes = state.bytes.saturating_sub(size(message));
        drop(state);
        if full {
            self.changed.notify_all();
        }
    }

    /// Ends the connection once its open calls are answered.
    pub(crate) fn finish(&self) {
        lock(&self.state).finishing = true;
        self.changed.notify_all();
    }

    /// Ends the connection now.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.messages.clear();
        self.changed.notify_all();
    }
}

/// Bytes of text in a message, about what it takes in memory.
fn size(message: &FromModule) -> usize {
    match message {
        FromModule::Reply(reply) => reply.outcome.text_bytes() + 256,
        _ => 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emacs_runtime_mcp_protocol::{ErrorCode, Failure, Reply};

    fn reply(id: u64) -> FromModule {
        let outcome = Failure::new(ErrorCode::ElispError, "x").into();
        FromModule::Reply(Reply {
            id,
            queue_ms: 0,
            outcome,
        })
    }

    #[test]
    fn a_finishing_connection_ends_after_its_last_answer() {
        let outbox = Outbox::new();
        outbox.call_opened();
        outbox.finish();
        outbox.send(reply(1));
        assert_eq!(outbox.next(), Some(reply(1)));
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn a_closed_connection_keeps_nothing() {
        let outbox = Outbox::new();
        outbox.send(reply(1));
        outbox.close();
        outbox.send(reply(2));
        assert_eq!(outbox.next(), None);
        assert!(!outbox.wait_for_room());
    }

    #[test]
    fn what_is_written_makes_room() {
        let outbox = Outbox::new();
        outbox.send(reply(1));
        let message = outbox.next().unwrap();
        assert!(lock(&outbox.state).bytes > 0);
        outbox.written(&message);
        assert_eq!(lock(&outbox.state).bytes, 0);
    }
}
