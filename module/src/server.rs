//! The listener: accepts relays of this user, keeps their connections, and ends it all on stop.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use emacs_runtime_mcp_protocol::{FromModule, Hello, encode, limits};
use interprocess::local_socket::prelude::*;
use interprocess::local_socket::{Listener, Stream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::geteuid;

use crate::connection::{Connection, Shared};
use crate::queue::{Counts, Queue};
use crate::socket::{self, Bound};
use crate::sync::lock;
use crate::wake::Wake;

/// The connections by number, so that each can remove itself.
type Connections = Arc<Mutex<HashMap<u64, Connection>>>;

/// Everything that listens for one Emacs.
pub(crate) struct Server {
    socket: Bound,
    shared: Arc<Shared>,
    heard: Box<dyn Fn() + Send + Sync>,
    connections: Connections,
    /// Closing it ends the listener's thread.
    stop: UnixStream,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Binds `path` and starts listening. `wake` leads to Emacs's main thread, and `signal` makes it
    /// break off what it does.
    ///
    /// # Errors
    ///
    /// See [`socket::bind`]; nothing is left running or lying about.
    pub(crate) fn start(
        path: &Path,
        hello: Hello,
        wake: impl Write + Send + 'static,
        signal: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (listener, socket) = socket::bind(path)?;
        let wake = Arc::new(Wake::new(wake));
        let ring = Arc::clone(&wake);
        let shared = Arc::new(Shared {
            hello,
            queue: Queue::default(),
            wake: Box::new(move || ring.ring()),
        });
        let connections = Connections::default();
        let (stop, stopped) = UnixStream::pair()?;
        let _signals = BlockSignals::now()?;
        let mut server = Self {
            socket,
            heard: Box::new(move || wake.heard()),
            connections: Arc::clone(&connections),
            stop,
            threads: Vec::new(),
            shared: Arc::clone(&shared),
        };
        let accepting = Arc::clone(&shared);
        server.spawn("mcp-listen", move || {
            accept(&listener, &stopped, &accepting, &connections)
        })?;
        server.spawn("mcp-watch", move || {
            shared.queue.watch(&*shared.wake, signal)
        })?;
        Ok(server)
    }

    fn spawn(&mut self, name: &str, life: impl FnOnce() + Send + 'static) -> Result<()> {
        match thread::Builder::new().name(name.into()).spawn(life) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.stop();
                return Err(error).context("cannot start a thread");
            }
        }
        Ok(())
    }

    /// Emacs has read the wake byte.
    pub(crate) fn heard(&self) {
        (self.heard)();
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.shared.queue
    }

    /// Where it listens, and for how many.
    pub(crate) fn status(&self) -> (&Path, usize, Counts) {
        (
            self.socket.path(),
            lock(&self.connections).len(),
            self.shared.queue.counts(),
        )
    }

    /// Ends listening: the socket is gone, what waits is withdrawn. A call that runs is still
    /// answered through its connection, which ends after that.
    pub(crate) fn stop(&mut self) {
        self.socket.remove();
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        self.shared.queue.close();
        for connection in lock(&self.connections).values() {
            connection.finish();
        }
        // The watchdog stays as long as a call runs; it ends by itself.
        if self.shared.queue.counts().running {
            self.threads.truncate(1);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Accepts relays until `stopped` is closed.
fn accept(
    listener: &Listener,
    stopped: &UnixStream,
    shared: &Arc<Shared>,
    connections: &Connections,
) {
    let Listener::UdSocket(socket) = listener;
    let mut number = 0;
    loop {
        let mut ready = [
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
        ];
        let polled = poll(&mut ready, PollTimeout::NONE);
        let any = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        if polled.is_ok() && any(&ready[0]) {
            return;
        }
        if polled.is_err() || !any(&ready[1]) {
            continue;
        }
        let Ok(stream) = listener.accept() else {
            // Out of descriptors, most likely: let others give some back before trying again.
            thread::sleep(std::time::Duration::from_millis(50));
            continue;
        };
        number += 1;
        let _ = admit(stream, number, shared, connections);
    }
}

/// Lets one relay in, or sends it away.
fn admit(
    stream: Stream,
    number: u64,
    shared: &Arc<Shared>,
    connections: &Connections,
) -> io::Result<()> {
    let peer = stream.peer_creds()?.euid();
    let Stream::UdSocket(stream) = stream;
    let mut stream = UnixStream::from(OwnedFd::from(stream));
    if peer != Some(geteuid().as_raw()) {
        return Ok(());
    }
    // Held until the connection is in the map: it may end, and remove itself, at once.
    let mut all = lock(connections);
    if all.len() >= limits::RELAYS_MAX {
        let reason = format!("{} relays are connected already", limits::RELAYS_MAX);
        stream.set_nonblocking(true)?;
        return stream.write_all(&encode(&FromModule::Refused { reason }));
    }
    let registry = Arc::clone(connections);
    let gone = move || drop(lock(&registry).remove(&number));
    all.insert(number, Connection::serve(shared, stream, gone)?);
    Ok(())
}

/// Blocks every signal for the calling thread while it lives: threads started meanwhile are born
/// with all signals blocked, so that each signal to Emacs reaches its main thread.
struct BlockSignals(SigSet);

impl BlockSignals {
    fn now() -> Result<Self> {
        Ok(Self(
            SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?,
        ))
    }
}

impl Drop for BlockSignals {
    fn drop(&mut self) {
        let _ = self.0.thread_set_mask();
    }
}
