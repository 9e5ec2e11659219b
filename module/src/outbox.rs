//! What is to be written to one relay. Anybody may put something in without ever blocking: mostly it
//! leaves at once, else the connection's writer takes it out. A relay that doesn't read is not read
//! from either.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use emacs_runtime_mcp_protocol::{FromModule, encode, limits};

use crate::sync::{lock, wait};

/// Largest frame that whoever sends it tries to write. To wake another thread takes longer than that.
const DIRECT_MAX_BYTES: usize = 4096;

/// Writes as many of some bytes as is possible without waiting, and says how many.
type WriteNow = Box<dyn Fn(&[u8]) -> usize + Send + Sync>;

/// The frames for one relay, in order.
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
    write_now: WriteNow,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Vec<u8>>,
    /// The writer has taken a frame and not written it yet.
    writing: bool,
    /// Bytes in `frames` and in the one being written.
    bytes: usize,
    /// Calls that were accepted and not answered yet.
    open_calls: usize,
    /// No new calls; end when the open ones are answered and written.
    finishing: bool,
    /// The connection is over; what is in here reaches nobody.
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(write_now: impl Fn(&[u8]) -> usize + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            write_now: Box::new(write_now),
        }
    }

    /// Sends `message` after all others. Lost without a word where the connection is over: nobody
    /// waits.
    pub(crate) fn send(&self, message: &FromModule) {
        let mut frame = encode(message);
        let mut state = lock(&self.state);
        if matches!(message, FromModule::Reply(_) | FromModule::Withdrawn { .. }) {
            state.open_calls = state.open_calls.saturating_sub(1);
        }
        if !state.closed {
            let first = state.frames.is_empty() && !state.writing;
            if first && frame.len() <= DIRECT_MAX_BYTES {
                frame.drain(..(self.write_now)(&frame));
            }
            if !frame.is_empty() {
                state.bytes += frame.len();
                state.frames.push_back(frame);
            } else if !state.finishing {
                return;
            }
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

    /// Blocks the connection's writer until there is a frame, which it says to have
    /// [written](Self::written) before it asks again; `None` when it should end.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(frame) = state.frames.pop_front() {
                state.writing = true;
                return Some(frame);
            }
            if state.finishing && state.open_calls == 0 {
                state.closed = true;
                return None;
            }
            state = wait(&self.changed, state, None);
        }
    }

    /// `frame` has left: its bytes make room.
    pub(crate) fn written(&self, frame: &[u8]) {
        let mut state = lock(&self.state);
        let full = state.bytes > limits::OUTBOX_MAX_BYTES;
        state.bytes = state.bytes.saturating_sub(frame.len());
        state.writing = false;
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
        state.frames.clear();
        self.changed.notify_all();
    }
}

#[cfg(test)]
impl Outbox {
    /// One that writes nothing by itself.
    pub(crate) fn mute() -> Self {
        Self::new(|_| 0)
    }

    /// The next message, as if it had been written.
    pub(crate) fn next_message(&self) -> Option<FromModule> {
        let frame = self.next()?;
        self.written(&frame);
        let mut decoder = emacs_runtime_mcp_protocol::Decoder::new(limits::MODULE_FRAME_MAX_BYTES);
        decoder.push(&frame);
        decoder.next().expect("a frame of ours")
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
        let outbox = Outbox::mute();
        outbox.call_opened();
        outbox.finish();
        outbox.send(&reply(1));
        assert_eq!(outbox.next_message(), Some(reply(1)));
        assert_eq!(outbox.next_message(), None);
    }

    #[test]
    fn a_closed_connection_keeps_nothing() {
        let outbox = Outbox::mute();
        outbox.send(&reply(1));
        outbox.close();
        outbox.send(&reply(2));
        assert_eq!(outbox.next(), None);
        assert!(!outbox.wait_for_room());
    }

    #[test]
    fn what_is_written_makes_room() {
        let outbox = Outbox::mute();
        outbox.send(&reply(1));
        let frame = outbox.next().unwrap();
        assert!(lock(&outbox.state).bytes > 0);
        outbox.written(&frame);
        assert_eq!(lock(&outbox.state).bytes, 0);
    }

    #[test]
    fn what_leaves_in_part_leaves_in_order() {
        use std::sync::Arc;
        let (wire, room) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(150)));
        let outbox = Outbox::new({
            let (wire, room) = (Arc::clone(&wire), Arc::clone(&room));
            move |bytes| {
                let count = bytes.len().min(*lock(&room));
                *lock(&room) -= count;
                lock(&wire).extend_from_slice(&bytes[..count]);
                count
            }
        });
        let write = |frame: Vec<u8>| {
            lock(&wire).extend_from_slice(&frame);
            outbox.written(&frame);
        };
        outbox.send(&reply(1));
        outbox.send(&reply(2));
        // There is room again, but others come first.
        *lock(&room) = 10_000;
        outbox.send(&reply(3));
        let rest = outbox.next().unwrap();
        outbox.send(&reply(4));
        write(rest);
        write(outbox.next().unwrap());
        write(outbox.next().unwrap());
        outbox.send(&reply(5));
        outbox.finish();
        assert_eq!(outbox.next(), None);
        let all: Vec<u8> = (1..=5).flat_map(|id| encode(&reply(id))).collect();
        assert_eq!(*lock(&wire), all);
    }
}
