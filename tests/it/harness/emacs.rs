//! An Emacs of the test's own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::{PATIENCE, Scratch, lisp, wait_until};

/// The Emacs under test: `EMACS`, or the one in `PATH`.
#[must_use]
pub fn emacs_program() -> OsString {
    std::env::var_os("EMACS").unwrap_or_else(|| "emacs".into())
}

/// The emacsclient that belongs to it: `EMACSCLIENT`, or the one in `PATH`.
#[must_use]
pub fn emacsclient_program() -> OsString {
    std::env::var_os("EMACSCLIENT").unwrap_or_else(|| "emacsclient".into())
}

/// Major version of the Emacs under test.
///
/// # Panics
///
/// Where there is none.
#[must_use]
pub fn major_version() -> u32 {
    let output = Command::new(emacs_program())
        .args(["-Q", "--batch", "--eval", "(princ emacs-major-version)"])
        .output()
        .expect("an Emacs; set EMACS");
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a version")
}

/// How an Emacs is to be started.
#[derive(Debug, Clone)]
pub struct EmacsBuilder {
    name: OsString,
    module: bool,
    runtime_dir: bool,
    lisp: Option<PathBuf>,
    init: Option<String>,
    arguments: Vec<OsString>,
    before: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
}

/// A running daemon. It ends with this value, whatever happens.
#[derive(Debug)]
pub struct Emacs {
    child: Child,
    socket: PathBuf,
    builder: EmacsBuilder,
}

impl EmacsBuilder {
    /// A daemon of this name with the module.
    pub fn new(name: impl AsRef<OsStr>) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            module: true,
            runtime_dir: true,
            lisp: None,
            init: None,
            arguments: Vec::new(),
            before: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Without the module: only emacsclient reaches it.
    #[must_use]
    pub fn without_module(mut self) -> Self {
        self.module = false;
        self
    }

    /// Without `XDG_RUNTIME_DIR`: the server's socket is under `TMPDIR` or `/tmp`.
    #[must_use]
    pub fn without_runtime_dir(mut self) -> Self {
        self.runtime_dir = false;
        self
    }

    /// With the Lisp of another folder than the checkout's.
    #[must_use]
    pub fn lisp(mut self, folder: impl Into<PathBuf>) -> Self {
        self.lisp = Some(folder.into());
        self
    }

    /// With an init file instead of -Q; it has to load the module itself.
    #[must_use]
    pub fn init(mut self, text: impl Into<String>) -> Self {
        self.init = Some(text.into());
        self
    }

    /// With more arguments, after those that load the module.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// With arguments before those that load the module.
    #[must_use]
    pub fn arg_before(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.before.push(argument.as_ref().to_owned());
        self
    }

    /// With `form` evaluated before anything is loaded.
    #[must_use]
    pub fn eval_before(self, form: &str) -> Self {
        self.arg_before("--eval").arg_before(form)
    }

    /// With an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.into(), Some(value.as_ref().to_owned())));
        self
    }

    /// Starts it in `scratch` as HOME and waits until its server answers.
    ///
    /// # Panics
    ///
    /// Where it doesn't come up; its output is in `scratch`.
    #[must_use]
    pub fn start(self, scratch: &Scratch) -> Emacs {
        let socket = self.socket(scratch);
        let _ = fs::remove_file(&socket);
        let mut command = self.command(scratch);
        command.arg(option("--fg-daemon=", &self.name));
        if self.init.is_none() {
            command.arg("-Q");
        }
        command.args(&self.before);
        if self.module && self.init.is_none() {
            let folder = self.lisp.clone().unwrap_or_else(lisp);
            command
                .arg("-L")
                .arg(folder)
                .args(["-l", "emacs-runtime-mcp-module"]);
        }
        let log = fs::File::create(scratch.path().join("emacs.log")).expect("a log");
        let child = command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("an Emacs; set EMACS");
        let mut emacs = Emacs {
            child,
            socket,
            builder: self,
        };
        let module = emacs.builder.module.then(|| emacs.module_socket());
        wait_until("Emacs's server", || {
            if let Ok(Some(status)) = emacs.child.try_wait() {
                let log = fs::read_to_string(scratch.path().join("emacs.log"));
                panic!("Emacs ended ({status}): {}", log.unwrap_or_default());
            }
            let answers = |socket: &PathBuf| UnixStream::connect(socket).is_ok();
            answers(&emacs.socket) && module.as_ref().is_none_or(answers)
        });
        emacs
    }

    /// A command of the Emacs under test in this environment, without arguments.
    ///
    /// # Panics
    ///
    /// Where the system refuses a folder.
    #[must_use]
    pub fn command(&self, scratch: &Scratch) -> Command {
        let mut command = Command::new(emacs_program());
        command
            .env("HOME", scratch.path())
            .env("TMPDIR", scratch.folder("tmp"))
            .env("TERM", "dumb")
            .env_remove("EMACS_SOCKET_NAME")
            .env_remove("EMACS_SERVER_FILE")
            .env_remove("ALTERNATE_EDITOR")
            .current_dir(scratch.path());
        if self.runtime_dir {
            command.env("XDG_RUNTIME_DIR", scratch.folder("run"));
        } else {
            command.env_remove("XDG_RUNTIME_DIR");
        }
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(init) = &self.init {
            fs::write(scratch.folder(".emacs.d").join("init.el"), init).expect("an init file");
        }
        command
    }

    /// Where its server's socket is.
    #[must_use]
    pub fn socket(&self, scratch: &Scratch) -> PathBuf {
        let value = |name: &str| {
            self.environment
                .iter()
                .find(|(key, _)| key == name)
                .and_then(|(_, value)| value.clone())
        };
        if let Some(folder) = value("XDG_RUNTIME_DIR") {
            return PathBuf::from(folder).join("emacs").join(&self.name);
        }
        if self.runtime_dir {
            return scratch.path().join("run/emacs").join(&self.name);
        }
        let temporary = value("TMPDIR").map_or_else(|| scratch.path().join("tmp"), PathBuf::from);
        temporary
            .join(format!("emacs{}", nix::unistd::geteuid()))
            .join(&self.name)
    }
}

impl Emacs {
    /// A daemon with the module, in `scratch`.
    #[must_use]
    pub fn start(scratch: &Scratch) -> Self {
        EmacsBuilder::new("t").start(scratch)
    }

    /// A daemon without the module, in `scratch`.
    #[must_use]
    pub fn start_without_module(scratch: &Scratch) -> Self {
        EmacsBuilder::new("t").without_module().start(scratch)
    }

    /// Its server's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The module's socket.
    #[must_use]
    pub fn module_socket(&self) -> PathBuf {
        let mut path = self.socket.clone().into_os_string();
        path.push(".mcp");
        path.into()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs plain emacsclient on it; `form` is evaluated outside all of ours.
    #[allow(clippy::must_use_candidate, reason = "often run for the effect")]
    pub fn emacsclient(&self, form: &str) -> Output {
        emacsclient(&self.socket, form)
    }

    /// What plain emacsclient prints for `form`.
    ///
    /// # Panics
    ///
    /// Where it fails.
    #[allow(clippy::must_use_candidate, reason = "often asked for the effect")]
    pub fn ask(&self, form: &str) -> String {
        ask(&self.socket, form)
    }

    /// Kills it as a crash would.
    ///
    /// # Panics
    ///
    /// Where the system refuses.
    pub fn crash(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Whether it runs.
    ///
    /// # Panics
    ///
    /// Where the system refuses to tell.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// Starts another one like it, after a crash.
    #[must_use]
    pub fn again(self, scratch: &Scratch) -> Self {
        let builder = self.builder.clone();
        drop(self);
        builder.start(scratch)
    }
}

impl Drop for Emacs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs plain emacsclient on the server at `socket`.
///
/// # Panics
///
/// Where it can't be run, or doesn't end within a minute.
#[allow(clippy::must_use_candidate, reason = "often run for the effect")]
pub fn emacsclient(socket: &Path, form: &str) -> Output {
    let child = Command::new(emacsclient_program())
        .arg("--alternate-editor=false")
        .arg(option("--socket-name=", socket.as_os_str()))
        .arg("--eval")
        .arg(form)
        .env_remove("EMACS_SOCKET_NAME")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("an emacsclient; set EMACSCLIENT");
    // It has no time limit of its own before Emacs 30.
    let (sender, output) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    output
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| panic!("emacsclient doesn't end: {form}"))
        .expect("it is ours")
}

/// What plain emacsclient prints for `form` on the server at `socket`.
///
/// # Panics
///
/// Where it fails.
#[allow(clippy::must_use_candidate, reason = "often asked for the effect")]
pub fn ask(socket: &Path, form: &str) -> String {
    let output = emacsclient(socket, form);
    assert!(output.status.success(), "{form}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn option(name: &str, value: &OsStr) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}
