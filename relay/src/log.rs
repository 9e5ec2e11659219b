//! Where the relay's diagnostics go: stderr or a file, one line an event, never stdout.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use nix::libc;
use tracing_subscriber::fmt;

use crate::cli::Config;

/// Starts logging as `config` says.
///
/// # Errors
///
/// Where the log file can't be opened, with its name.
pub(crate) fn start(config: &Config) -> Result<(), String> {
    let builder = fmt()
        .with_max_level(config.log_level)
        .with_ansi(false)
        .with_target(false);
    match &config.log_file {
        None => builder.with_writer(io::stderr).init(),
        Some(path) => {
            let file = open(path)
                .map_err(|error| format!("cannot open the log file {}: {error}", path.display()))?;
            builder.with_writer(Mutex::new(file)).init();
        }
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}
