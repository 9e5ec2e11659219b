//! The part of emacs-runtime-mcp that listens inside Emacs: a dynamic module of few primitives, all
//! mechanism. Wording, options and decisions are Lisp's, in `emacs-runtime-mcp-module.el`.
//!
//! Its threads never touch Lisp; they wake Emacs through a pipe, and Emacs's main thread comes and
//! takes work. `take` and `finish` are short, and no frame of ours is on the stack while a form runs.

mod connection;
mod lisp;
mod outbox;
mod queue;
mod running;
mod server;
mod signal;
mod socket;
mod sync;
mod wake;

use std::ffi::c_int;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use emacs::{Env, Result, Value, defun};
use emacs_runtime_mcp_protocol::{ErrorCode, Failure, Hello, PROTOCOL, VERSION};

use crate::lisp::{LispReply, LispStage};
use crate::queue::Queue;
use crate::running::{Ending, Stage};
use crate::server::Server;
use crate::signal::MainThread;
use crate::sync::lock;

emacs::plugin_is_GPL_compatible!();

/// The feature that loading provides.
const FEATURE: &str = "emacs-runtime-mcp-core";

/// The one listener of this Emacs.
static SERVER: Mutex<Option<Server>> = Mutex::new(None);

/// Whether this copy of the file has been initialized.
static LOADED: AtomicBool = AtomicBool::new(false);

/// Entry point for Emacs's module loader. To load the file again changes nothing.
///
/// With [`init`] it stands in for the crate's `#[emacs::module]`, which can't be initialized twice,
/// and defines all primitives before one can look whether they are there.
///
/// # Safety
///
/// `runtime` is what Emacs hands to a module that it loads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emacs_module_init(runtime: *mut emacs::raw::emacs_runtime) -> c_int {
    if LOADED.load(Ordering::SeqCst) {
        return 0;
    }
    // SAFETY: Emacs calls this while it loads the module, when the runtime is valid.
    let env = unsafe { Env::from_runtime(runtime) };
    let status = emacs::init::initialize(&env, init);
    LOADED.store(status == 0, Ordering::SeqCst);
    status
}

/// Defines the primitives, once for the whole Emacs. A copy of the file under another name would
/// bring a second `SERVER`, and primitives that no longer reach the first: it leaves things as they
/// are.
fn init(env: &Env) -> Result<Value<'_>> {
    let feature = env.intern(FEATURE)?;
    if env.call("featurep", [feature])?.is_not_nil() {
        return Ok(feature);
    }
    *lock(&emacs::init::__PREFIX__) = [FEATURE.to_owned(), "--".to_owned()];
    for define in lock(&emacs::init::__INIT_FNS__).values() {
        define(env)?;
    }
    env.provide(FEATURE)
}

/// Listen on SOCKET, an absolute file name, and wake PROCESS, a pipe process, when calls arrive.
/// EMACS-VERSION, SERVER-NAME and DIRECTORY are told to whoever connects.
/// Signal an error whose message says why, if that is not possible.
#[defun]
fn start(
    env: &Env,
    socket: String,
    process: Value<'_>,
    emacs_version: String,
    server_name: String,
    directory: String,
) -> Result<()> {
    let mut server = lock(&SERVER);
    if server.is_some() {
        return Err(emacs::Error::msg("listening already"));
    }
    let hello = Hello {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
        emacs_version,
        pid: std::process::id(),
        server_name,
        directory,
    };
    let main = MainThread::this();
    *server = Some(Server::start(
        Path::new(&socket),
        hello,
        env.open_channel(process)?,
        move || main.interrupt(),
    )?);
    Ok(())
}

/// Stop listening: remove the socket and withdraw the calls that wait.
/// A call that is running is still answered.  Return nil if nothing listened.
#[defun]
fn stop(env: &Env) -> Result<Value<'_>> {
    // A form may stop the listener that brought it; its `finish` must still find the queue.
    let mut server = lock(&SERVER);
    let listened = server.is_some();
    if let Some(mut server) = server.take() {
        server.stop();
        *lock(&STOPPED) = server.queue().counts().running.then_some(server);
    }
    env.intern(if listened { "t" } else { "nil" })
}

/// The listener that was stopped by a form it had brought, until that form has ended.
static STOPPED: Mutex<Option<Server>> = Mutex::new(None);

/// Say that the pipe process has read its byte: what comes from now on wakes Emacs anew.
#[defun]
fn heard(_env: &Env) -> Result<()> {
    if let Some(server) = lock(&SERVER).as_ref() {
        server.heard();
    }
    Ok(())
}

/// Take the next call: a list (KEY EXPRESSION MAX-OUTPUT-CHARS), or nil if there is none or one is
/// running.
#[defun]
fn take(env: &Env) -> Result<Option<Value<'_>>> {
    let taken = lock(&SERVER)
        .as_ref()
        .and_then(|server| server.queue().take());
    taken
        .map(|call| env.list((call.key, call.expression, call.max_output_chars)))
        .transpose()
}

/// Say that the call KEY has come to STAGE, one of the symbols `enter', `thrown', `spare' and `leave'.
/// On `enter', return nil if the form must not begin; on `thrown', non-nil if it is to be stopped;
/// on `spare', non-nil if it is, but what else runs in its wait may go on for now.
/// A signal that was sent into the form is handled before this returns from `leave'.
#[defun]
fn stage<'e>(env: &'e Env, key: u64, stage: LispStage) -> Result<Value<'e>> {
    let answer = with_queue(|queue| queue.stage(key, stage.0)).unwrap_or(false);
    if stage.0 == Stage::Leave && answer {
        // The lock orders who comes first, but a signal is only marked as pending by its sender; it
        // is handled on the way back from a system call.
        std::thread::yield_now();
    }
    env.intern(if answer { "t" } else { "nil" })
}

/// End the call KEY with REPLY, as `emacs-runtime-mcp-eval' returns it.
/// Return non-nil if more calls wait.
#[defun]
fn finish<'e>(env: &'e Env, key: u64, reply: Value<'e>) -> Result<Value<'e>> {
    // The slot must be freed whatever Lisp hands over.
    let ending = reply.into_rust::<LispReply>().map_or_else(
        |error| {
            let message = format!("the evaluator's reply is unusable: {error}");
            Ending::Done(Failure::new(ErrorCode::InternalError, message).into())
        },
        |reply| reply.0,
    );
    let more = with_queue(|queue| queue.finish(key, ending)).unwrap_or(false);
    // The pipe's filter runs inside the waits of a form too, and what stops the form may have thrown
    // it out before it could say that the byte was read.
    if let Some(server) = lock(&SERVER).as_ref() {
        server.heard();
    }
    // The listener that brought it may be gone, and another have calls.
    let stopped = lock(&STOPPED).take().is_some();
    env.intern(if more || stopped { "t" } else { "nil" })
}

/// Stop the call that runs and withdraw those that wait, for a person.
/// Return how many that were.
#[defun]
fn cancel(_env: &Env) -> Result<u64> {
    Ok(with_queue(Queue::cancel_by_person).unwrap_or(0) as u64)
}

/// Calls `act` with the queue that has the running call: that of a listener that was stopped
/// meanwhile, if a form of it still runs.
fn with_queue<T>(act: impl FnOnce(&Queue) -> T) -> Option<T> {
    if let Some(stopped) = lock(&STOPPED).as_ref() {
        return Some(act(stopped.queue()));
    }
    lock(&SERVER).as_ref().map(|server| act(server.queue()))
}

/// Return a list (VERSION SOCKET RELAYS WAITING RUNNING TAKEN); SOCKET is nil when nothing listens,
/// RELAYS is the number of connections, TAKEN that of the calls since listening began.
#[defun]
fn status(env: &Env) -> Result<Value<'_>> {
    let server = lock(&SERVER);
    let Some(server) = server.as_ref() else {
        return env.list((VERSION, (), 0_u64, 0_u64, (), 0_u64));
    };
    let (socket, relays, counts) = server.status();
    let running = env.intern(if counts.running { "t" } else { "nil" })?;
    env.list((
        VERSION,
        socket.to_string_lossy().as_ref(),
        relays as u64,
        counts.waiting as u64,
        running,
        counts.taken,
    ))
}
