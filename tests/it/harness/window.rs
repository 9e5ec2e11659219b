//! An Emacs in a window, with somebody at the keyboard: Debian's emacs-gtk on an X server without a
//! screen. It stands in a folder of its own, since it can't be installed beside emacs-nox.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{EmacsBuilder, Scratch, ask, lisp, major_version, root, wait_for, wait_until};

/// A graphical Emacs and its X server. Both end with this value.
#[derive(Debug)]
pub struct Window {
    server: Child,
    emacs: Child,
    display: String,
    socket: PathBuf,
}

impl Window {
    /// Starts `emacs -Q` with the module and a server in `scratch`, and waits for its window.
    ///
    /// # Errors
    ///
    /// Why there can be none here.
    ///
    /// # Panics
    ///
    /// Where there is all that is needed, and yet it doesn't come up.
    pub fn start(scratch: &Scratch) -> Result<Self, String> {
        let folder = root().join("target/emacs-gtk");
        let program = folder.join("usr/bin/emacs-gtk");
        if !program.exists() {
            return Err("tests/install-emacs-gtk.sh unpacks one where it can be had".to_owned());
        }
        // It reads the Lisp of the Emacs that is installed.
        if major_version() != 28 {
            return Err("only Debian's own version is tried".to_owned());
        }
        // The X server picks a free number and says which.
        let said = scratch.path().join("display");
        let mut server = Command::new("Xvfb")
            .args([
                "-displayfd",
                "1",
                "-screen",
                "0",
                "800x600x24",
                "-nolisten",
                "tcp",
            ])
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&said).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("Xvfb: {error}"))?;
        let number = wait_for("the X server", || {
            assert!(
                server.try_wait().expect("it is ours").is_none(),
                "Xvfb ended"
            );
            let text = std::fs::read_to_string(&said).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        });
        let display = format!(":{number}");
        let builder = EmacsBuilder::new("server");
        let socket = builder.socket(scratch);
        let given = builder.command(scratch);
        let mut command = Command::new(program);
        for (name, value) in given.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let emacs = command
            .env("DISPLAY", &display)
            .arg("--dump-file")
            .arg(folder.join("emacs.pdmp"))
            .args(["-Q", "-L"])
            .arg(lisp())
            .args(["-l", "emacs-runtime-mcp-module", "--eval", "(server-start)"])
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("emacs-gtk: {error}"))?;
        let window = Self {
            server,
            emacs,
            display,
            socket,
        };
        wait_until("Emacs's window", || {
            window.socket.exists()
                && ask(&window.socket, "(frame-visible-p (selected-frame))") == "t"
        });
        Ok(window)
    }

    /// Its server's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Types one letter.
    ///
    /// # Panics
    ///
    /// Where xdotool can't be run.
    pub fn r#type(&self, letter: char) {
        let mut xdotool = Command::new("xdotool");
        xdotool
            .env("DISPLAY", &self.display)
            .arg("key")
            .arg(letter.to_string());
        assert!(xdotool.status().expect("xdotool").success());
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        for child in [&mut self.emacs, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
