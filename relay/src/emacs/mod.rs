//! Emacs as the relay sees it: evaluates one request by whichever way is there, and says how it
//! ended. The way is chosen anew for each call; a form that may have reached Emacs stays with it.

mod client;
mod exchange;
mod find;
mod module;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use emacs_runtime_mcp_protocol::place::{self, Place};
use emacs_runtime_mcp_protocol::{ErrorCode, Evaluation, Failure, Outcome};
use tokio::time::Instant;

use self::client::Emacsclient;
use self::find::{Finder, Found};
use self::module::{ConnectError, Connection, Lost};
use crate::cli::{Config, Transport};
use crate::request::Request;

/// How long after the deadline the module's own answer is awaited before the relay answers for it:
/// a little less than the contract's grace, since the answer has to travel too.
const BACKSTOP: Duration = Duration::from_millis(230);

/// The selected Emacs, there or not.
pub(crate) struct Emacs {
    transport: Transport,
    finder: Finder,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while connecting, so that calls that arrive together share one connection, in order.
    connecting: tokio::sync::Mutex<()>,
    emacsclient: Emacsclient,
    /// The last complaint about a module, said once.
    complained: Mutex<String>,
}

/// How a call went.
#[derive(Debug)]
pub(crate) struct Answer {
    /// How the form ended.
    pub(crate) outcome: Outcome,
    /// The way it took; `None` where it took none.
    pub(crate) via: Option<Via>,
}

/// A way that a call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The module, and how long the form waited there, in milliseconds.
    Module {
        /// From arrival in Emacs to the form's begin.
        queue_ms: u64,
    },
    /// An emacsclient process.
    Emacsclient,
}

/// How often somebody who wants to know hears of a call that lasts.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits.
    Waiting {
        /// How many calls are before it, the running one included.
        ahead: u64,
    },
    /// Its form runs.
    Running,
}

/// Hears of a call's progress.
pub(crate) type Report<'a> = dyn Fn(Progress) + Send + Sync + 'a;

/// A way that a call may take.
enum Way {
    Module(Arc<Connection>),
    Emacsclient(Place),
}

impl Emacs {
    /// The Emacs that `config` selects. Nothing is looked for before the first call.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            transport: config.transport,
            finder: Finder::new(config.selector.clone()),
            connection: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            emacsclient: Emacsclient::new(config.emacsclient.clone()),
            complained: Mutex::new(String::new()),
        }
    }

    /// Evaluates `request`, which arrived at `arrived`; `report` hears of a call that lasts. Dropped
    /// before its end, the call is cancelled.
    pub(crate) async fn evaluate(
        &self,
        request: &Request,
        arrived: Instant,
        report: Option<&Report<'_>>,
    ) -> Answer {
        let deadline = arrived + Duration::from_millis(request.timeout_ms);
        loop {
            match tokio::time::timeout_at(deadline, self.way()).await {
                Ok(Ok(Way::Module(connection))) => {
                    if let Some(answer) =
                        self.by_module(&connection, request, deadline, report).await
                    {
                        return answer;
                    }
                    // It has not begun and will not: the next way may be another one.
                    self.give_up(&connection);
                }
                Ok(Ok(Way::Emacsclient(place))) => {
                    let mut outcome = self
                        .emacsclient
                        .call(&place, request, deadline, report)
                        .await;
                    if let Outcome::Failure(failure) = &mut outcome
                        && failure.code == ErrorCode::EmacsUnavailable
                    {
                        failure.data.looked_at = vec![place.path().display().to_string()];
                    }
                    return Answer {
                        outcome,
                        via: Some(Via::Emacsclient),
                    };
                }
                Ok(Err(failure)) => {
                    return Answer {
                        outcome: failure.into(),
                        via: None,
                    };
                }
                Err(_) => {
                    let failure = Failure::timeout(request.timeout_ms, Evaluation::NotStarted);
                    return Answer {
                        outcome: failure.into(),
                        via: None,
                    };
                }
            }
        }
    }

    /// Sends `request` to the module; `None` where the module gave it back.
    async fn by_module(
        &self,
        connection: &Connection,
        request: &Request,
        deadline: Instant,
        report: Option<&Report<'_>>,
    ) -> Option<Answer> {
        // Rounded up: to be told of a timeout before it would be odd.
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_micros()
            .div_ceil(1_000);
        let left_ms = u64::try_from(left).unwrap_or(request.timeout_ms).max(1);
        let call = connection.call(request, left_ms, report);
        let (outcome, queue_ms) = match tokio::time::timeout_at(deadline + BACKSTOP, call).await {
            Ok(Ok(reply)) => (reply.outcome, reply.queue_ms),
            Ok(Err(Lost::Withdrawn)) => return None,
            Ok(Err(lost)) => (lost.into(), 0),
            Err(_) => (
                Failure::timeout(request.timeout_ms, Evaluation::Unknown).into(),
                0,
            ),
        };
        Some(Answer {
            outcome,
            via: Some(Via::Module { queue_ms }),
        })
    }

    /// Uses `connection` for no further call.
    fn give_up(&self, connection: &Arc<Connection>) {
        lock(&self.connection).take_if(|kept| Arc::ptr_eq(kept, connection));
    }

    /// The way for the next call.
    async fn way(&self) -> Result<Way, Failure> {
        // Taken by every call, connected or not: it is fair, so none overtakes those that wait for
        // the connection.
        let _connecting = self.connecting.lock().await;
        if let Some(connection) = self.connected() {
            return Ok(Way::Module(connection));
        }
        let mut found = self.finder.look();
        let places = std::mem::take(&mut found.places);
        for (nth, place) in places.iter().enumerate() {
            if self.transport != Transport::Emacsclient {
                match Connection::open(&place.module_socket()).await {
                    Ok(connection) => {
                        let connection = Arc::new(connection);
                        *lock(&self.connection) = Some(Arc::clone(&connection));
                        return Ok(Way::Module(connection));
                    }
                    Err(ConnectError::Absent) => {}
                    Err(ConnectError::Unfit(why)) => {
                        self.complain(&why);
                        found.objections.push(why);
                    }
                }
            }
            let last = !places[nth + 1..].iter().any(server_is_there);
            if self.transport != Transport::Module
                && server_is_there(place)
                && (last || server_answers(place).await)
            {
                return Ok(Way::Emacsclient(place.clone()));
            }
        }
        Err(self.nowhere(&found))
    }

    fn connected(&self) -> Option<Arc<Connection>> {
        lock(&self.connection).take_if(|connection| !connection.is_open());
        lock(&self.connection).clone()
    }

    /// Says on the log what is wrong with a module, but not at every call.
    fn complain(&self, why: &str) {
        let mut last = lock(&self.complained);
        if *last != why {
            tracing::warn!("{why}");
            why.clone_into(&mut last);
        }
    }

    fn nowhere(&self, found: &Found) -> Failure {
        let looked_at: Vec<String> = found
            .looked_at
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let long = found
            .looked_at
            .iter()
            .find_map(|path| place::check_length(path).err());
        let mut message = format!("no Emacs found; looked at {}", looked_at.join(", "));
        for objection in found.objections.iter().chain(&long) {
            message = format!("{message}; {objection}");
        }
        message += match self.transport {
            Transport::Module => {
                "; with --transport module Emacs needs (require 'emacs-runtime-mcp-module)"
            }
            _ => {
                "; start Emacs with (require 'emacs-runtime-mcp-module) or a server (M-x server-start), or say with --socket-name which one is meant"
            }
        };
        Failure::new(ErrorCode::EmacsUnavailable, message).with_looked_at(looked_at)
    }
}

impl From<Lost> for Outcome {
    fn from(lost: Lost) -> Self {
        let (code, what) = match &lost {
            Lost::Gone | Lost::Withdrawn => (
                ErrorCode::EmacsUnavailable,
                "Emacs went away during the call".to_owned(),
            ),
            Lost::Broken(why) => (
                ErrorCode::BridgeProtocolError,
                format!("the module broke its protocol: {why}"),
            ),
        };
        Failure::new(
            code,
            format!("{what}; the form may have run, look before you repeat it"),
        )
        .with_evaluation(Evaluation::Unknown)
        .into()
    }
}

/// Whether something that may be a server stands at `place`.
fn server_is_there(place: &Place) -> bool {
    match place {
        Place::Socket(path) => std::fs::symlink_metadata(path).is_ok(),
        Place::ServerFile(path) => std::fs::metadata(path).is_ok_and(|facts| facts.is_file()),
    }
}

/// Whether the server at `place` isn't just left over. Only asked where there is another one to
/// try: it wakes Emacs.
async fn server_answers(place: &Place) -> bool {
    match place {
        Place::Socket(path) => tokio::net::UnixStream::connect(path).await.is_ok(),
        Place::ServerFile(_) => true,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
