//! The connection to the module inside Emacs: opened once, shared by all calls, given up when
//! either side ends it. A call whose frame was handed over is never sent again.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use emacs_runtime_mcp_protocol::{
    Decoder, Eval, FrameError, FromModule, FromRelay, Hello, PROTOCOL, Reply, VERSION, encode,
    limits, place,
};
use nix::unistd::geteuid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{PROGRESS_EVERY, Progress, Report};
use crate::request::Request;

/// How long the module's own threads may take to say hello; they don't depend on Emacs being idle.
const HELLO_PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// No module listens there.
    #[error("no module listens there")]
    Absent,
    /// Something does, but it can't serve this relay.
    #[error("{0}")]
    Unfit(String),
}

/// Why a call has no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Lost {
    /// The connection ended while the call was under way.
    #[error("Emacs ended the connection")]
    Gone,
    /// The module stopped listening before the form began: it has not run and never will.
    #[error("the module stopped listening")]
    Withdrawn,
    /// The module sent what it may not send.
    #[error("{0}")]
    Broken(String),
}

/// A connection after its hello.
pub(crate) struct Connection {
    calls: Arc<Calls>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    next_id: AtomicU64,
}

/// The calls under way, by id.
#[derive(Default)]
struct Calls(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Waiter>,
    lost: Option<Lost>,
}

/// Who waits for a call.
struct Waiter {
    reply: oneshot::Sender<Result<Reply, Lost>>,
    progress: watch::Sender<Option<Progress>>,
}

impl Connection {
    /// Connects to the module at `socket`, whose folder the caller trusts.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Absent`] where nobody listens; [`ConnectError::Unfit`] where somebody does
    /// who is of another user or version, or doesn't say hello.
    pub(crate) async fn open(socket: &Path) -> Result<Self, ConnectError> {
        if place::check_length(socket).is_err() {
            return Err(ConnectError::Absent);
        }
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ConnectError::Absent,
                _ => ConnectError::Unfit(format!("{}: {error}", socket.display())),
            })?;
        let unfit = |what: String| ConnectError::Unfit(format!("{}: {what}", socket.display()));
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == geteuid().as_raw() => {}
            Ok(peer) => return Err(unfit(format!("its process is of user {}", peer.uid()))),
            Err(error) => return Err(unfit(error.to_string())),
        }
        let (read, mut write) = stream.into_split();
        let mut incoming = Incoming::new(read);
        let greeting = async {
            let hello = FromRelay::Hello {
                protocol: PROTOCOL,
                version: VERSION.to_owned(),
            };
            write
                .write_all(&encode(&hello))
                .await
                .map_err(|_| Lost::Gone)?;
            incoming.next().await
        };
        let hello = match tokio::time::timeout(HELLO_PATIENCE, greeting).await {
            Err(_) => return Err(unfit("it doesn't say hello; is Emacs stopped?".to_owned())),
            Ok(Err(lost)) => return Err(unfit(lost.to_string())),
            Ok(Ok(FromModule::Hello(hello))) => hello,
            Ok(Ok(FromModule::Refused { reason })) => return Err(unfit(reason)),
            Ok(Ok(_)) => {
                return Err(unfit(
                    "it answered the hello with something else".to_owned(),
                ));
            }
        };
        check_version(&hello).map_err(unfit)?;
        tracing::info!(
            socket = %socket.display(), pid = hello.pid, emacs = hello.emacs_version,
            server = hello.server_name, directory = hello.directory, "connected to the module"
        );
        let calls = Arc::new(Calls::default());
        let (outgoing, frames) = mpsc::unbounded_channel();
        tokio::spawn(serve(Arc::clone(&calls), incoming, write, frames));
        Ok(Self {
            calls,
            outgoing,
            next_id: AtomicU64::new(1),
        })
    }

    /// Whether a call may still be sent on it.
    pub(crate) fn is_open(&self) -> bool {
        self.calls.lock().lost.is_none()
    }

    /// Sends `request`, with `left_ms` of its time left, and waits for its reply. Dropped before
    /// that, the call is cancelled.
    ///
    /// As long as it lasts, `report` hears of it every [`PROGRESS_EVERY`]; where nobody wants to, no
    /// timer is set.
    ///
    /// # Errors
    ///
    /// [`Lost`]: except for [`Lost::Withdrawn`], the form may have run.
    pub(crate) async fn call(
        &self,
        request: &Request,
        left_ms: u64,
        report: Option<&Report<'_>>,
    ) -> Result<Reply, Lost> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, mut receiver) = oneshot::channel();
        let (progress, mut progressed) = watch::channel(None);
        {
            let mut state = self.calls.lock();
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            state.waiting.insert(
                id,
                Waiter {
                    reply: sender,
                    progress,
                },
            );
        }
        let eval = FromRelay::Eval(Eval {
            id,
            expression: request.expression.clone(),
            timeout_ms: request.timeout_ms,
            left_ms,
            max_output_chars: request.max_output_chars,
        });
        let mut under_way = UnderWay {
            connection: self,
            id,
            answered: false,
        };
        let _ = self.outgoing.send(encode(&eval));
        let mut ask = tokio::time::interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
        let reply = loop {
            tokio::select! {
                biased;
                reply = &mut receiver => break reply.unwrap_or(Err(Lost::Gone)),
                _ = ask.tick(), if report.is_some() => {
                    let _ = self.outgoing.send(encode(&FromRelay::Ask { id }));
                }
                Ok(()) = progressed.changed() => {
                    if let (Some(progress), Some(report)) = (*progressed.borrow_and_update(), report)
                    {
                        report(progress);
                    }
                }
            }
        };
        under_way.answered = true;
        reply
    }
}

/// A call that is cancelled when nobody waits for it any more.
struct UnderWay<'a> {
    connection: &'a Connection,
    id: u64,
    answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.calls.lock().waiting.remove(&self.id);
            let _ = self
                .connection
                .outgoing
                .send(encode(&FromRelay::Cancel { id: self.id }));
        }
    }
}

impl Calls {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, id: u64, reply: Result<Reply, Lost>) {
        // Late answers to cancelled calls find nobody.
        if let Some(waiter) = self.lock().waiting.remove(&id) {
            let _ = waiter.reply.send(reply);
        }
    }

    fn progress(&self, id: u64, ahead: u64) {
        if let Some(waiter) = self.lock().waiting.get(&id) {
            let progress = if ahead == 0 {
                Progress::Running
            } else {
                Progress::Waiting { ahead }
            };
            let _ = waiter.progress.send(Some(progress));
        }
    }

    fn end(&self, lost: &Lost) {
        let mut state = self.lock();
        state.lost = Some(lost.clone());
        for (_, waiter) in state.waiting.drain() {
            let _ = waiter.reply.send(Err(lost.clone()));
        }
    }
}

/// The life of a connection: frames out, replies in, until either side ends it.
async fn serve(
    calls: Arc<Calls>,
    mut incoming: Incoming,
    mut write: OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let sending = async {
        while let Some(frame) = frames.recv().await {
            if write.write_all(&frame).await.is_err() {
                return Lost::Gone;
            }
        }
        // The relay dropped the connection.
        Lost::Gone
    };
    let receiving = async {
        loop {
            match incoming.next().await {
                Ok(FromModule::Reply(reply)) => calls.answer(reply.id, Ok(reply)),
                Ok(FromModule::Ahead { id, ahead }) => calls.progress(id, ahead),
                Ok(FromModule::Withdrawn { id }) => calls.answer(id, Err(Lost::Withdrawn)),
                Ok(FromModule::Refused { reason }) => return Lost::Broken(reason),
                Ok(FromModule::Hello(_)) => return Lost::Broken("a second hello".to_owned()),
                Err(lost) => return lost,
            }
        }
    };
    let lost = tokio::select! {
        lost = receiving => lost,
        lost = sending => lost,
    };
    tracing::info!(reason = %lost, "the connection to the module has ended");
    calls.end(&lost);
}

/// What comes in, message by message.
struct Incoming {
    read: OwnedReadHalf,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Incoming {
    fn new(read: OwnedReadHalf) -> Self {
        let decoder = Decoder::new(limits::MODULE_FRAME_MAX_BYTES);
        Self {
            read,
            decoder,
            buffer: vec![0; 64 * 1024],
        }
    }

    async fn next(&mut self) -> Result<FromModule, Lost> {
        loop {
            match self.decoder.next() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(Lost::Broken(error.to_string())),
            }
            match self.read.read(&mut self.buffer).await {
                Ok(0) => {
                    return Err(match self.decoder.finish() {
                        Err(error @ FrameError::Truncated) => {
                            tracing::debug!(%error, "while reading from the module");
                            Lost::Gone
                        }
                        _ => Lost::Gone,
                    });
                }
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) => {
                    tracing::debug!(%error, "while reading from the module");
                    return Err(Lost::Gone);
                }
            }
        }
    }
}

/// Refuses a module whose messages may differ from ours.
fn check_version(hello: &Hello) -> Result<(), String> {
    if hello.protocol == PROTOCOL && hello.version == VERSION {
        return Ok(());
    }
    Err(format!(
        "the module in Emacs is of version {} (protocol {}), this relay of version {VERSION} \
         (protocol {PROTOCOL}): run make install and restart Emacs; until then calls go by emacsclient",
        hello.version, hello.protocol
    ))
}
