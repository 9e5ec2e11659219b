//! The Emacs of the moment: a person's, in a terminal. It may be killed and come back.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Instant;

use harness::{RelayBuilder, Scratch, Terminal, ask, memory_kib, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::tally::Tally;

/// What Emacs or a relay may grow by after it is warm. It may be in the middle of a large value.
const GROWTH_MAX_KIB: u64 = 8 * 1024;

/// Threads that Emacs or a relay may have while all work.
const THREADS_MAX: usize = 40;

/// File descriptors that Emacs or a relay may have while all work.
const DESCRIPTORS_MAX: usize = 80;

/// What a process has.
#[derive(Debug, Clone, Copy)]
struct Holdings {
    memory_kib: u64,
    threads: usize,
    descriptors: usize,
}

impl Holdings {
    fn of(pid: u32) -> Self {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
        Self {
            memory_kib: memory_kib(pid, "VmRSS"),
            threads: count("task"),
            descriptors: count("fd"),
        }
    }
}

/// How a process stood when it had grown into its work; to be compared with how it stands later.
#[derive(Debug)]
pub(crate) struct Watched {
    what: String,
    pid: u32,
    warm: Instant,
    then: Option<Holdings>,
}

impl Watched {
    /// Of the process `pid`, which is `warm` then.
    pub(crate) fn new(what: impl Into<String>, pid: u32, warm: Instant) -> Self {
        Self {
            what: what.into(),
            pid,
            warm,
            then: None,
        }
    }

    /// Notes how it stands, the first time that it is warm.
    pub(crate) fn look(&mut self) {
        if self.then.is_none() && Instant::now() >= self.warm {
            self.then = Some(Holdings::of(self.pid));
        }
    }

    /// Compares.
    pub(crate) fn check(&self, tally: &Tally) {
        let Some(then) = self.then else { return };
        let now = Holdings::of(self.pid);
        let grown = now.memory_kib.saturating_sub(then.memory_kib);
        println!(
            "{}: {} KiB, {} threads, {} descriptors; then {} KiB, {}, {}",
            self.what,
            then.memory_kib,
            then.threads,
            then.descriptors,
            now.memory_kib,
            now.threads,
            now.descriptors
        );
        tally.count(format!("{} looked at after its work", self.what));
        assert!(
            grown <= GROWTH_MAX_KIB,
            "{} has grown by {grown} KiB",
            self.what
        );
        // Two threads and a few descriptors for each connection of the moment; what was lost at each
        // fault would soon be more.
        assert!(
            now.threads <= THREADS_MAX,
            "{}: {} threads",
            self.what,
            now.threads
        );
        assert!(
            now.descriptors <= DESCRIPTORS_MAX,
            "{}: {} descriptors",
            self.what,
            now.descriptors
        );
    }
}

/// Emacs, and where it is.
pub(crate) struct Place {
    scratch: Scratch,
    socket: PathBuf,
    /// When an Emacs of before has grown into its work.
    warm: Instant,
    /// Written to while Emacs is restarted; whoever needs one that is there reads.
    terminal: RwLock<Option<Life>>,
}

struct Life {
    terminal: Terminal,
    pid: u32,
    watched: Mutex<Watched>,
}

impl Place {
    pub(crate) fn new(scratch: Scratch, warm: Instant) -> Self {
        let life = Life::begin(&scratch, warm);
        let socket = life.terminal.socket().to_owned();
        Self {
            scratch,
            socket,
            warm,
            terminal: RwLock::new(Some(life)),
        }
    }

    /// Its server's socket.
    pub(crate) fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Does `what` with the terminal of an Emacs that is there and won't be killed meanwhile.
    pub(crate) fn with<T>(&self, what: impl FnOnce(&Terminal) -> T) -> T {
        let guard = self.terminal.read().unwrap_or_else(PoisonError::into_inner);
        what(&guard.as_ref().expect("Emacs is there").terminal)
    }

    /// Notes how Emacs stands.
    pub(crate) fn look(&self) {
        let guard = self.terminal.read().unwrap_or_else(PoisonError::into_inner);
        let life = guard.as_ref().expect("Emacs is there");
        life.watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .look();
    }

    /// Takes Emacs out of everybody's hands, after a last look at how it stands.
    fn take(&self, tally: &Tally) -> (RwLockWriteGuard<'_, Option<Life>>, Life) {
        let mut place = self
            .terminal
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let life = place.take().expect("Emacs is there");
        life.check(tally);
        (place, life)
    }

    /// Kills Emacs in the middle of whatever it does, and starts another one.
    pub(crate) fn crash(&self, tally: &Tally) {
        let (mut place, life) = self.take(tally);
        kill(
            Pid::from_raw(life.pid.try_into().expect("a pid")),
            Signal::SIGKILL,
        )
        .expect("it runs");
        life.ended();
        *place = Some(Life::begin(&self.scratch, self.warm));
    }

    /// Ends Emacs as a person does, and looks for what is left.
    pub(crate) fn finish(&self, tally: &Tally) {
        let (_place, life) = self.take(tally);
        // What killed relays have left is put away by the next one.
        let mut relay = RelayBuilder::at(&self.socket).by("emacsclient").start();
        relay.value("1");
        relay.close_input();
        assert!(relay.wait().success());
        // It ends before it can answer.
        let _ = harness::emacsclient(&self.socket, "(kill-emacs)");
        life.ended();
        let folder = self.socket.parent().expect("a folder");
        let left: Vec<_> = fs::read_dir(folder)
            .expect("the folder")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("mcp-") || name.ends_with(".mcp"))
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        let mine = self.scratch.path().display().to_string();
        wait_until("the end of all that was started", || {
            let processes = std::process::Command::new("ps")
                .args(["-eo", "args"])
                .output()
                .expect("ps");
            !String::from_utf8_lossy(&processes.stdout)
                .lines()
                .any(|line| line.contains(&mine))
        });
    }
}

impl Life {
    /// Waits until Emacs has ended.
    fn ended(self) {
        wait_until("Emacs's end", || {
            !fs::exists(format!("/proc/{}/exe", self.pid)).unwrap_or(false)
        });
    }

    fn check(&self, tally: &Tally) {
        self.watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .check(tally);
    }

    fn begin(scratch: &Scratch, warm: Instant) -> Self {
        let terminal = Terminal::start(scratch);
        ask(
            terminal.socket(),
            "(progn (setq create-lockfiles nil backup-inhibited t) (switch-to-buffer \"typing\") (auto-save-mode -1) nil)",
        );
        let pid = ask(terminal.socket(), "(emacs-pid)")
            .parse()
            .expect("a pid");
        Self {
            terminal,
            pid,
            watched: Mutex::new(Watched::new("Emacs", pid, warm)),
        }
    }
}
