//! The way without the module: one emacsclient process a call, which carries the evaluator along
//! and leaves no definition behind.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use emacs_runtime_mcp_protocol::place::Place;
use emacs_runtime_mcp_protocol::{
    ErrorCode, Evaluation, Failure, Outcome, Success, VERSION, limits,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::exchange::{Exchange, Files};
use super::{PROGRESS_EVERY, Progress, Report};
use crate::request::Request;

/// The evaluator, the same file that the module's Lisp uses.
const EVALUATOR: &str = include_str!("../../../lisp/emacs-runtime-mcp-eval.el");

/// Defines it for one call.
const BOOTSTRAP: &str = include_str!("bootstrap.el");

/// Longest base64 text that travels as part of an argument, in bytes. One argument may have
/// 128 KiB on Linux, and Emacs takes long ones apart slowly.
const INLINE_MAX_BYTES: usize = 16 * 1024;

/// How long after the deadline Lisp may take to report that it has thrown out a form that waited.
const LAST_WORD: Duration = Duration::from_millis(150);

/// How long to wait before asking again an Emacs in which another form runs.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Runs emacsclient, one call after the other in order of arrival.
pub(crate) struct Emacsclient {
    program: OsString,
    exchange: Mutex<Option<Exchange>>,
}

/// What one run of emacsclient came to.
enum Run {
    /// The reply's line.
    Line(String),
    /// Another form was running; ours was not evaluated.
    Busy,
    /// Emacs came to it too late; it was not evaluated.
    Expired,
    /// Its time was over while it waited; it has been thrown out.
    Stopped,
    Failed(Failure),
}

impl Emacsclient {
    /// A way through `program`, a path or a name to be found in `PATH`.
    pub(crate) fn new(program: OsString) -> Self {
        Self {
            program,
            exchange: Mutex::new(None),
        }
    }

    /// Evaluates `request` in the Emacs at `place`; `deadline` is when the answer is due. `report`
    /// hears of a call that lasts.
    pub(crate) async fn call(
        &self,
        place: &Place,
        request: &Request,
        deadline: Instant,
        report: Option<&Report<'_>>,
    ) -> Outcome {
        let mut tick = tokio::time::interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
        let call = self.turn(place, request, deadline);
        tokio::pin!(call);
        loop {
            tokio::select! {
                biased;
                outcome = &mut call => return outcome,
                // Whether the form runs or waits in Emacs can't be seen from here.
                _ = tick.tick() => {
                    if let Some(report) = report {
                        report(Progress::Running);
                    }
                }
            }
        }
    }

    /// Waits for the call's turn and runs it.
    async fn turn(&self, place: &Place, request: &Request, deadline: Instant) -> Outcome {
        let timeout = |evaluation| Failure::timeout(request.timeout_ms, evaluation).into();
        // The lock is fair: it keeps the order of arrival.
        let Ok(mut exchange) = tokio::time::timeout_at(deadline, self.exchange.lock()).await else {
            return timeout(Evaluation::NotStarted);
        };
        loop {
            let files = match files(&mut exchange, place) {
                Ok(files) => files,
                Err(error) => {
                    return unavailable(format!(
                        "cannot make a folder beside {}: {error}",
                        place.path().display()
                    ))
                    .into();
                }
            };
            let run = self.run(place, request, &files, deadline);
            let run = match tokio::time::timeout_at(deadline + LAST_WORD, run).await {
                Ok(run) => run,
                // The process ends with its future; what it has sent to Emacs stays sent.
                Err(_) => return timeout(Evaluation::Unknown),
            };
            match run {
                Run::Line(line) => return outcome(&line).within_limit(),
                Run::Failed(failure) => return failure.into(),
                Run::Expired => return timeout(Evaluation::NotStarted),
                Run::Stopped => return timeout(Evaluation::Interrupted),
                Run::Busy => {
                    let again = Instant::now() + BUSY_PAUSE;
                    if again >= deadline {
                        return timeout(Evaluation::NotStarted);
                    }
                    tokio::time::sleep_until(again).await;
                }
            }
        }
    }

    async fn run(&self, place: &Place, request: &Request, files: &Files, deadline: Instant) -> Run {
        let source = BASE64_STANDARD.encode(&request.expression);
        let inline = source.len() <= INLINE_MAX_BYTES;
        if !inline && let Err(error) = files.write_request(&source) {
            return Run::Failed(unavailable(format!(
                "cannot write {}: {error}",
                files.request.display()
            )));
        }
        let arguments = format!(
            "({} {} {} {:.3} {})",
            if inline {
                format!("\"{source}\"")
            } else {
                "nil".to_owned()
            },
            lisp_string(files.request.as_os_str()),
            request.max_output_chars,
            epoch_seconds(deadline),
            lisp_string(files.reply.as_os_str()),
        );
        let output = match self.spawn(place, &arguments).await {
            Ok(output) => output,
            Err(SpawnError::Program(failure)) => return Run::Failed(failure),
            Err(SpawnError::TooMuch) => {
                return Run::Failed(Failure::new(
                    ErrorCode::OutputTooLarge,
                    format!(
                        "emacsclient printed more than {} bytes",
                        limits::REPLY_MAX_BYTES
                    ),
                ));
            }
        };
        judge(&output, files)
    }

    /// Runs emacsclient to its end and collects what it prints.
    async fn spawn(&self, place: &Place, arguments: &str) -> Result<Output, SpawnError> {
        let selector = match place {
            Place::Socket(path) => option("--socket-name=", path.as_os_str()),
            Place::ServerFile(path) => option("--server-file=", path.as_os_str()),
        };
        let child = Command::new(&self.program)
            .arg("--alternate-editor=false")
            .arg(selector)
            .arg("--eval")
            .arg(format!("{} {arguments})", *CALL))
            // A leftover EMACS_SOCKET_NAME would win over --server-file.
            .env_remove("ALTERNATE_EDITOR")
            .env_remove("EMACS_SOCKET_NAME")
            .env_remove("EMACS_SERVER_FILE")
            // emacsclient wants a working directory that exists; ours may be gone.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| SpawnError::Program(self.cannot_run(&error)))?;
        let mut child = Running(Some(child));
        let (stdout, stderr) = child.streams();
        let room = AtomicUsize::new(limits::REPLY_MAX_BYTES);
        let (stdout, stderr) = tokio::try_join!(collect(stdout, &room), collect(stderr, &room))?;
        let status = child
            .wait()
            .await
            .map_err(|error| SpawnError::Program(self.cannot_run(&error)))?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }

    fn cannot_run(&self, error: &io::Error) -> Failure {
        let program = self.program.to_string_lossy();
        let hint = if program.starts_with('~') {
            "; ~ is not expanded here, give the whole path to --emacsclient"
        } else if program.contains('/') {
            "; give the path of the emacsclient that belongs to your Emacs to --emacsclient"
        } else {
            "; it is looked for in PATH, which clients often shorten: give its whole path to --emacsclient"
        };
        unavailable(format!(
            "no module listens in Emacs, and {program:?} cannot be run: {error}{hint}"
        ))
    }
}

/// An emacsclient that doesn't outlive the call, nor stay behind as a zombie.
struct Running(Option<Child>);

impl Running {
    fn streams(&mut self) -> (ChildStdout, ChildStderr) {
        let child = self.0.as_mut().expect("taken only on drop");
        (
            child.stdout.take().expect("piped"),
            child.stderr.take().expect("piped"),
        )
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.as_mut().expect("taken only on drop").wait().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take()
            && child.id().is_some()
        {
            tokio::spawn(async move { child.kill().await });
        }
    }
}

struct Output {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

enum SpawnError {
    Program(Failure),
    TooMuch,
}

/// The call's text up to the arguments: the bootstrap, our version, the evaluator's definitions.
static CALL: LazyLock<String> = LazyLock::new(|| {
    format!(
        "(funcall (eval '{} t) \"{VERSION}\" '({}) '",
        code(BOOTSTRAP).trim_end(),
        code(EVALUATOR)
    )
});

/// `source` without the lines that are only comment or empty, and without its `provide`.
fn code(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let lines = lines.filter(|line| {
        !line.is_empty() && !line.starts_with(';') && !line.starts_with("(provide ")
    });
    lines.fold(String::new(), |code, line| code + line + "\n")
}

/// Reads all of `stream`, as long as `room` has place for it.
async fn collect(
    mut stream: impl AsyncRead + Unpin,
    room: &AtomicUsize,
) -> Result<Vec<u8>, SpawnError> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 8192];
    loop {
        // A pipe that breaks ends like one that is closed: the exit status tells the rest.
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return Ok(all);
        }
        let left = room
            .load(Ordering::Relaxed)
            .checked_sub(count)
            .ok_or(SpawnError::TooMuch)?;
        room.store(left, Ordering::Relaxed);
        all.extend_from_slice(&buffer[..count]);
    }
}

/// What emacsclient's end means.
fn judge(output: &Output, files: &Files) -> Run {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = stderr.trim();
    if stdout.trim().is_empty() {
        return Run::Failed(if said.contains("*ERROR*") {
            Failure::new(
                ErrorCode::BridgeProtocolError,
                format!("the evaluator failed in Emacs: {said}"),
            )
            .with_evaluation(Evaluation::Unknown)
        } else if output.status.success() || !never_connected(said) {
            unavailable(format!(
                "Emacs went away during the call ({}) {said}",
                output.status
            ))
            .with_evaluation(Evaluation::Unknown)
        } else {
            unavailable(format!("emacsclient cannot reach Emacs: {said}"))
        });
    }
    let Some(line) = stdout
        .trim()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return Run::Failed(strange(&stdout));
    };
    match line {
        "busy" => Run::Busy,
        "expired" => Run::Expired,
        "stopped" => Run::Stopped,
        "cancelled" => Run::Failed(Failure::by_person(Evaluation::Interrupted)),
        "file" => match files.read_reply() {
            Ok(line) => Run::Line(line),
            Err(error) => Run::Failed(
                Failure::new(
                    ErrorCode::BridgeProtocolError,
                    format!(
                        "Emacs's reply in {} is unusable: {error}",
                        files.reply.display()
                    ),
                )
                .with_evaluation(Evaluation::Unknown),
            ),
        },
        line => Run::Line(line.to_owned()),
    }
}

/// Whether emacsclient says that it had no connection, so that nothing can have been evaluated.
/// (A server file that it can't open it passes over in silence; the caller looks at that first.)
fn never_connected(stderr: &str) -> bool {
    let words = [
        "can't find socket",
        "can't connect",
        "connect: ",
        "invalid configuration info",
        "authentication info",
        "error accessing",
        "invalid permissions",
        "too long",
    ];
    let stderr = stderr.to_lowercase();
    words.iter().any(|words| stderr.contains(words))
}

/// The outcome that `line` says, as `emacs-runtime-mcp-eval--line` writes it.
fn outcome(line: &str) -> Outcome {
    parse(line).unwrap_or_else(|| strange(line).into())
}

fn parse(line: &str) -> Option<Outcome> {
    let words: Vec<&str> = line.split(' ').collect();
    let [code, text, chars, truncated, output, symbol, backtrace] = words.as_slice() else {
        return None;
    };
    let string = |word: &str| -> Option<Option<String>> {
        if word == "nil" {
            return Some(None);
        }
        let bytes = BASE64_STANDARD.decode(word.strip_prefix('=')?).ok()?;
        String::from_utf8(bytes).ok().map(Some)
    };
    let text = string(text)??;
    Some(match string(code)? {
        None => Outcome::Success(Success {
            value: text,
            truncated: *truncated == "t",
            original_chars: chars.parse().ok()?,
            output: string(output)?,
        }),
        Some(code) => {
            let mut failure = Failure::new(ErrorCode::from_name(&code)?, text);
            failure.data.symbol = string(symbol)?;
            failure.data.backtrace = string(backtrace)?;
            failure.into()
        }
    })
}

fn strange(text: &str) -> Failure {
    let start: String = text.trim().chars().take(200).collect();
    Failure::new(
        ErrorCode::BridgeProtocolError,
        format!("emacsclient printed no reply of ours: {start:?}; is --emacsclient a wrapper that prints?"),
    )
    .with_evaluation(Evaluation::Unknown)
}

fn unavailable(message: String) -> Failure {
    Failure::new(ErrorCode::EmacsUnavailable, message)
}

/// The files for one call beside `place`, in a folder that is made when it is first needed.
fn files(exchange: &mut Option<Exchange>, place: &Place) -> io::Result<Files> {
    if exchange.as_ref().and_then(Exchange::beside) != Some(place.folder()) {
        *exchange = Some(Exchange::new(place.folder())?);
    }
    Ok(exchange.as_mut().expect("just made").files())
}

fn option(name: &str, value: &OsStr) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// `path` as a Lisp string of its bytes, whatever they are.
fn lisp_string(path: &OsStr) -> String {
    let mut text = String::from("\"");
    for &byte in path.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("\\{byte:03o}"));
        }
    }
    text.push('"');
    text
}

/// `deadline` on the clock that Emacs reads.
fn epoch_seconds(deadline: Instant) -> f64 {
    let left = deadline.saturating_duration_since(Instant::now());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (now + left).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_and_nothing_else_is() {
        let value = outcome("nil =MuKCrA== 2 t =aGk= nil nil");
        assert_eq!(
            value,
            Outcome::Success(Success {
                value: "2€".into(),
                truncated: true,
                original_chars: 2,
                output: Some("hi".into())
            })
        );
        let Outcome::Failure(failure) =
            outcome("=ZWxpc3BfZXJyb3I= =bm8= nil nil nil =cXVpdA== nil")
        else {
            panic!()
        };
        assert_eq!(failure.code, ErrorCode::ElispError);
        assert_eq!(failure.data.symbol.as_deref(), Some("quit"));
        for line in [
            "",
            "nil",
            "nil =MQ== x nil nil nil nil",
            "nil =%% 1 nil nil nil nil",
            "=bm9wZQ== =MQ== nil nil nil nil nil",
        ] {
            let Outcome::Failure(failure) = outcome(line) else {
                panic!("{line}")
            };
            assert_eq!(failure.code, ErrorCode::BridgeProtocolError, "{line}");
        }
    }

    #[test]
    fn paths_travel_as_bytes() {
        assert_eq!(
            lisp_string(OsStr::new("/a b\"é")),
            r#""/a\040b\042\303\251""#
        );
    }

    #[test]
    fn the_call_fits_one_argument_and_is_ascii() {
        assert!(CALL.is_ascii());
        assert!(CALL.len() + INLINE_MAX_BYTES < 100_000, "{}", CALL.len());
        assert!(!CALL.contains("(provide"));
    }
}
