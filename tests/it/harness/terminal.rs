//! An Emacs in a terminal, with somebody at the keyboard: `emacs -nw` under tmux.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::emacs::ask;
use crate::{EmacsBuilder, Scratch, lisp, wait_until};

/// A terminal of 100 by 30 in which Emacs runs. Both end with this value.
#[derive(Debug)]
pub struct Terminal {
    server: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    /// Starts `emacs -nw -Q` with the module and a server in `scratch`, and waits for its first
    /// screen.
    #[must_use]
    pub fn start(scratch: &Scratch) -> Self {
        let builder = EmacsBuilder::new("server");
        let mut command = builder.command(scratch);
        command.args(["-nw", "-Q", "-L"]).arg(lisp());
        command.args(["-l", "emacs-runtime-mcp-module", "--eval", "(server-start)"]);
        Self::run(&command, &builder, scratch)
    }

    /// Starts `emacs -nw` with this init file, which has to load the module.
    #[must_use]
    pub fn start_with_init(scratch: &Scratch, init: &str) -> Self {
        let builder = EmacsBuilder::new("server").init(init);
        let mut command = builder.command(scratch);
        command.arg("-nw");
        Self::run(&command, &builder, scratch)
    }

    fn run(command: &Command, builder: &EmacsBuilder, scratch: &Scratch) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // tmux hands its command to a shell of its own; a script keeps all quoting out of it.
        let script = scratch.path().join("emacs-in-terminal");
        fs::write(&script, shell_script(command)).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a script");
        let terminal = Self {
            // Each its own: a server that is about to end still takes sessions.
            server: scratch
                .path()
                .join(format!("tmux-{}", NEXT.fetch_add(1, Ordering::Relaxed))),
            socket: builder.socket(scratch),
        };
        let status = terminal
            .tmux()
            .args([
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                "100",
                "-y",
                "30",
            ])
            .arg(&script)
            .status()
            .expect("tmux");
        assert!(status.success());
        wait_until("Emacs in the terminal", || {
            terminal.module_socket().exists() && terminal.screen().contains("File Edit")
        });
        terminal
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S")
            .arg(&self.server)
            .env_remove("TMUX")
            .stdin(Stdio::null());
        tmux
    }

    /// Its server's socket.
    #[must_use]
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    fn module_socket(&self) -> PathBuf {
        self.socket.with_extension("mcp")
    }

    /// What is to be seen.
    ///
    /// # Panics
    ///
    /// Where tmux fails.
    #[must_use]
    pub fn screen(&self) -> String {
        let output = self
            .tmux()
            .args(["capture-pane", "-p"])
            .output()
            .expect("tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types `text` as it is.
    ///
    /// # Panics
    ///
    /// Where tmux fails.
    pub fn r#type(&self, text: &str) {
        assert!(
            self.tmux()
                .args(["send-keys", "-l", text])
                .status()
                .expect("tmux")
                .success()
        );
    }

    /// Somebody who types fast: without a process for each letter, which would be in the way of what
    /// is measured.
    ///
    /// # Panics
    ///
    /// Where tmux fails.
    #[must_use]
    pub fn typist(&self) -> Typist {
        let mut tmux = self.tmux();
        // As a client that has no size, else the screen would get it.
        tmux.args(["-C", "attach", "-f", "ignore-size"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Typist(tmux.spawn().expect("tmux"))
    }

    /// Presses a key by tmux's name of it, as C-g or M-x.
    ///
    /// # Panics
    ///
    /// Where tmux fails.
    pub fn press(&self, key: &str) {
        assert!(
            self.tmux()
                .args(["send-keys", key])
                .status()
                .expect("tmux")
                .success()
        );
    }

    /// What plain emacsclient prints for `form`.
    ///
    /// # Panics
    ///
    /// Where it fails.
    pub fn ask(&self, form: &str) -> String {
        ask(&self.socket, form)
    }

    /// Waits until the screen shows `text`.
    pub fn wait_for_text(&self, text: &str) {
        wait_until(&format!("{text:?} on the screen"), || {
            self.screen().contains(text)
        });
    }
}

/// Somebody at a terminal's keyboard.
#[derive(Debug)]
pub struct Typist(Child);

impl Typist {
    /// Types one letter.
    ///
    /// # Panics
    ///
    /// Where tmux fails.
    pub fn r#type(&mut self, letter: char) {
        let commands = self.0.stdin.as_mut().expect("piped");
        writeln!(commands, "send-keys -l {letter}").expect("tmux reads");
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Where Emacs has ended, so has tmux.
        let _ = self.tmux().arg("kill-server").output();
    }
}

/// A script that runs `command` in its environment.
fn shell_script(command: &Command) -> String {
    let quote =
        |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', "'\\''"));
    let mut script = String::from("#!/bin/sh\n");
    for (name, value) in command.get_envs() {
        // The terminal is tmux's own.
        if name == "TERM" {
            continue;
        }
        match value {
            Some(value) => {
                script += &format!("export {}={}\n", name.to_string_lossy(), quote(value))
            }
            None => script += &format!("unset {}\n", name.to_string_lossy()),
        }
    }
    script += &format!("exec {}", quote(command.get_program()));
    for argument in command.get_args() {
        script += &format!(" {}", quote(argument));
    }
    script + "\n"
}
