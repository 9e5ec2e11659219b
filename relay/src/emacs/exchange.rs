//! The private folder through which relay and Emacs exchange what is too long for an argument, or
//! too slow for emacsclient to print: beside the server's socket, the place that both can see.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};

/// First part of such a folder's name; the relay's process id and a random number follow.
const PREFIX: &str = "mcp-";

/// Largest file that is read back, in bytes: a reply at the ceiling, as base64, and room to spare.
const REPLY_FILE_MAX_BYTES: u64 = 2 * 1024 * 1024;

/// One relay's folder. It goes with this value.
#[derive(Debug)]
pub(crate) struct Exchange {
    folder: PathBuf,
    next: u64,
}

/// The files of one call; what is left of them goes with this value.
#[derive(Debug)]
pub(crate) struct Files {
    /// Where Emacs finds the request, if it was written.
    pub(crate) request: PathBuf,
    /// Where Emacs writes a long reply.
    pub(crate) reply: PathBuf,
}

impl Exchange {
    /// Makes a folder in `beside`, and removes those of relays that have died.
    ///
    /// # Errors
    ///
    /// Where the folder can't be made.
    pub(crate) fn new(beside: &Path) -> io::Result<Self> {
        remove_orphans(beside);
        let random = RandomState::new().build_hasher().finish();
        let folder = beside.join(format!("{PREFIX}{}-{random:016x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self { folder, next: 0 })
    }

    /// The folder it was made in.
    pub(crate) fn beside(&self) -> Option<&Path> {
        self.folder.parent()
    }

    /// Names for one call's files; nothing is written yet.
    pub(crate) fn files(&mut self) -> Files {
        self.next += 1;
        Files {
            request: self.folder.join(format!("request-{}", self.next)),
            reply: self.folder.join(format!("reply-{}", self.next)),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Files {
    /// Writes the request for Emacs, which deletes it once read.
    ///
    /// # Errors
    ///
    /// Where it can't be written, or something stands there.
    pub(crate) fn write_request(&self, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.request)?;
        file.write_all(text.as_bytes())
    }

    /// Reads what Emacs wrote.
    ///
    /// # Errors
    ///
    /// Where it isn't there, isn't text, or is larger than any reply.
    pub(crate) fn read_reply(&self) -> io::Result<String> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.reply)?;
        let mut text = String::new();
        file.take(REPLY_FILE_MAX_BYTES + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > REPLY_FILE_MAX_BYTES {
            return Err(io::Error::other(format!(
                "more than {REPLY_FILE_MAX_BYTES} bytes"
            )));
        }
        Ok(text)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.request);
        let _ = fs::remove_file(&self.reply);
    }
}

/// Removes the folders of relays that were killed before they could.
fn remove_orphans(beside: &Path) {
    let Ok(entries) = fs::read_dir(beside) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let Some(pid) = pid.and_then(|(pid, _)| pid.parse().ok()) else {
            continue;
        };
        let ours = entry
            .metadata()
            .is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw());
        if ours && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
