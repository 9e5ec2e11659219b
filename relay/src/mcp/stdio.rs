//! Standard input and output as asynchronous streams. Clients give pipes (Python) or sockets
//! (Node); both are waited for without a thread. Anything else, a file or a terminal, goes through
//! tokio's thread pool.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixStream, unix::pipe};

/// What is read from.
pub(super) type Input = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// What is written to.
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens both.
///
/// # Errors
///
/// Where a descriptor is closed or can't be watched.
pub(super) fn open() -> io::Result<(Input, Output)> {
    let input: Input = match Kind::of(io::stdin())? {
        Kind::Pipe(fd) => Box::new(pipe::Receiver::from_owned_fd(fd)?),
        Kind::Socket(stream) => Box::new(stream),
        Kind::Other => Box::new(tokio::io::stdin()),
    };
    let output: Output = match Kind::of(io::stdout())? {
        Kind::Pipe(fd) => Box::new(pipe::Sender::from_owned_fd(fd)?),
        Kind::Socket(stream) => Box::new(stream),
        Kind::Other => Box::new(tokio::io::stdout()),
    };
    Ok((input, output))
}

enum Kind {
    Pipe(OwnedFd),
    Socket(UnixStream),
    Other,
}

impl Kind {
    fn of(stream: impl AsFd) -> io::Result<Self> {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        let fd = OwnedFd::from(file);
        if kind.is_fifo() {
            return Ok(Self::Pipe(fd));
        }
        if kind.is_socket() {
            let stream = std::os::unix::net::UnixStream::from(fd);
            stream.set_nonblocking(true)?;
            return Ok(Self::Socket(UnixStream::from_std(stream)?));
        }
        Ok(Self::Other)
    }
}
