//! One relay's connection: a thread that reads its messages into the queue, and one that writes
//! what its outbox holds. Neither ever touches Lisp.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use emacs_runtime_mcp_protocol::{Decoder, FromModule, FromRelay, Hello, PROTOCOL, limits};
use nix::sys::socket::{MsgFlags, send};

use crate::outbox::Outbox;
use crate::queue::Queue;

/// Bytes read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// A thread of a connection keeps no more than a frame's parser on its stack.
const STACK_BYTES: usize = 256 * 1024;

/// How long a relay that doesn't read may hold up the end of its connection.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) hello: Hello,
    pub(crate) queue: Queue,
    /// Makes Emacs take a call.
    pub(crate) wake: Box<dyn Fn() + Send + Sync>,
}

/// One relay's connection, for the listener to end.
pub(crate) struct Connection {
    outbox: Arc<Outbox>,
    stream: Arc<UnixStream>,
}

impl Connection {
    /// Serves `stream` with two threads until either side ends it; then `gone` is called.
    ///
    /// # Errors
    ///
    /// Where the system has no more threads; the connection is then closed.
    pub(crate) fn serve(
        shared: &Arc<Shared>,
        stream: UnixStream,
        gone: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let stream = Arc::new(stream);
        let outbox = Arc::new(Outbox::new({
            let stream = Arc::clone(&stream);
            move |bytes| write_now(&stream, bytes)
        }));
        let thread = |name: &str| {
            thread::Builder::new()
                .name(name.into())
                .stack_size(STACK_BYTES)
        };
        thread("mcp-write").spawn({
            let (outbox, stream) = (Arc::clone(&outbox), Arc::clone(&stream));
            move || write(&outbox, &stream)
        })?;
        let reader = thread("mcp-read").spawn({
            let (shared, outbox) = (Arc::clone(shared), Arc::clone(&outbox));
            let stream = Arc::clone(&stream);
            move || {
                let over = Over {
                    shared: &shared,
                    outbox: &outbox,
                };
                read(&shared, &outbox, &stream);
                drop(over);
                gone();
            }
        });
        match reader {
            Ok(_) => Ok(Self { outbox, stream }),
            Err(error) => {
                outbox.close();
                Err(error)
            }
        }
    }

    /// Ends the connection once its open calls are answered.
    pub(crate) fn finish(&self) {
        let _ = self.stream.set_write_timeout(Some(WRITE_PATIENCE));
        self.outbox.finish();
    }
}

/// Takes a connection's calls with it, also when its reader panicked.
struct Over<'a> {
    shared: &'a Shared,
    outbox: &'a Arc<Outbox>,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.outbox.close();
        self.shared.queue.cancel_all(self.outbox);
    }
}

/// Reads until the relay leaves or says what it may not say.
fn read(shared: &Shared, outbox: &Arc<Outbox>, mut stream: &UnixStream) {
    let mut decoder = Decoder::new(limits::RELAY_FRAME_MAX_BYTES);
    let mut buffer = vec![0; READ_BYTES];
    let mut greeted = false;
    loop {
        match decoder.next::<FromRelay>() {
            Ok(Some(message)) => {
                if !handle(shared, outbox, &mut greeted, message) {
                    return wait_for_close(stream);
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                outbox.send(&FromModule::Refused {
                    reason: error.to_string(),
                });
                outbox.finish();
                return wait_for_close(stream);
            }
        }
        if !outbox.wait_for_room() {
            return;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Leaves the last words to the writer: reading on, and dropping what comes, until it has closed.
fn wait_for_close(mut stream: &UnixStream) {
    let mut dropped = [0; 4096];
    while stream.read(&mut dropped).is_ok_and(|count| count > 0) {}
}

/// Acts on one message; false when the connection should end.
fn handle(shared: &Shared, outbox: &Arc<Outbox>, greeted: &mut bool, message: FromRelay) -> bool {
    match message {
        FromRelay::Hello { protocol, .. } => {
            outbox.send(&FromModule::Hello(shared.hello.clone()));
            *greeted = protocol == PROTOCOL;
            if !*greeted {
                outbox.finish();
            }
            *greeted
        }
        _ if !*greeted => {
            outbox.send(&FromModule::Refused {
                reason: "the first message must be a hello".into(),
            });
            outbox.finish();
            false
        }
        FromRelay::Eval(eval) => {
            if shared.queue.push(outbox, eval) {
                (shared.wake)();
            }
            true
        }
        FromRelay::Cancel { id } => {
            shared.queue.cancel(outbox, id);
            true
        }
        FromRelay::Ask { id } => {
            if let Some(ahead) = shared.queue.ahead(outbox, id) {
                outbox.send(&FromModule::Ahead { id, ahead });
            }
            true
        }
    }
}

/// Writes until the outbox ends or the relay has gone, then closes the connection.
fn write(outbox: &Outbox, mut stream: &UnixStream) {
    while let Some(frame) = outbox.next() {
        if stream.write_all(&frame).is_err() {
            break;
        }
        outbox.written(&frame);
    }
    outbox.close();
    // Unblocks the reader, and tells the relay.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Writes what can be written without waiting. An error is the writer's to find.
fn write_now(stream: &UnixStream, bytes: &[u8]) -> usize {
    let flags = MsgFlags::MSG_DONTWAIT;
    // Where this doesn't exist the socket itself is set so.
    #[cfg(target_os = "linux")]
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    send(stream.as_raw_fd(), bytes, flags).unwrap_or(0)
}
