//! Where the relay's diagnostics go: stderr or a file, one line an event, never stdout.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry};

use crate::cli::Config;

/// Longest event, in bytes: what the system takes into a pipe without waiting where it takes anything.
const EVENT_MAX_BYTES: usize = 4096;

/// Starts logging as `config` says. A panic is an event like any other.
///
/// # Errors
///
/// Where the log file can't be opened, with its name.
pub(crate) fn start(config: &Config) -> Result<(), String> {
    let writer = match &config.log_file {
        None => BoxMakeWriter::new(|| OneLine(Unblocked(io::stderr()))),
        Some(path) => {
            let file = open(path)
                .map_err(|error| format!("cannot open the log file {}: {error}", path.display()))?;
            BoxMakeWriter::new(Mutex::new(OneLine(file)))
        }
    };
    // rmcp warns of every error that a client is answered with, which is the client's business.
    let protocol = if config.log_level >= LevelFilter::DEBUG {
        config.log_level
    } else {
        LevelFilter::ERROR
    };
    let levels = Targets::new()
        .with_default(config.log_level)
        .with_target("rmcp", protocol);
    let events = fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(writer);
    registry().with(events.with_filter(levels)).init();
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
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

/// Writes an event as one line, whatever texts of others are in it.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// `event` is a whole one, with the newline that ends it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = Vec::with_capacity(event.len());
        for &byte in text.iter().take(EVENT_MAX_BYTES / 2) {
            match byte {
                b'\n' => line.extend_from_slice(br"\n"),
                b'\r' => line.extend_from_slice(br"\r"),
                _ => line.push(byte),
            }
        }
        line.truncate(EVENT_MAX_BYTES - 1);
        line.push(b'\n');
        self.0.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes where there is room, and nothing where there is none: a client that doesn't read our
/// stderr must not stop us.
struct Unblocked<W>(W);

impl<W: Write + AsFd> Write for Unblocked<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut room = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
        let ready = poll(&mut room, PollTimeout::ZERO).is_ok_and(|count| count > 0);
        if ready {
            self.0.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn an_event_is_one_line_of_bounded_length() {
        let mut written = OneLine(Vec::new());
        written.write_all(b"a\nb\r\n").unwrap();
        written.write_all(&[b'\n'; 3 * EVENT_MAX_BYTES]).unwrap();
        let text = String::from_utf8(written.0).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], r"a\nb\r");
        assert_eq!(lines[1].len(), EVENT_MAX_BYTES - 1);
    }

    #[test]
    fn nobody_reading_blocks_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = Unblocked(writer);
        // More than any pipe holds.
        for _ in 0..10_000 {
            writer.write_all(&[b'x'; EVENT_MAX_BYTES]).unwrap();
        }
        drop(writer);
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(text.len() % EVENT_MAX_BYTES, 0);
        assert!(!text.is_empty());
    }
}
