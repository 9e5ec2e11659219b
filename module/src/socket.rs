//! The listener's socket in the file system: made private, never taken from a living Emacs, removed
//! only while it is still ours.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use emacs_runtime_mcp_protocol::place;
use interprocess::local_socket::prelude::*;
use interprocess::local_socket::{GenericFilePath, Listener, ListenerOptions, Stream};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use nix::unistd::{geteuid, getpid};

/// How long another Emacs may hold the lock; it does for a moment only.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// A bound socket. [`Self::remove`] takes it out of the file system.
#[derive(Debug)]
pub(crate) struct Bound {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Bound {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket, unless something else stands in its place by now.
    pub(crate) fn remove(&self) {
        let Ok(_lock) = Lock::take(&self.path) else {
            return;
        };
        if fs::symlink_metadata(&self.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (self.device, self.inode))
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on `path`.
///
/// # Errors
///
/// Where the path is too long, its folder can't be trusted, a living process listens there, or the
/// system refuses; the message says which and what to do.
pub(crate) fn bind(path: &Path) -> Result<(Listener, Bound)> {
    place::check_length(path).map_err(anyhow::Error::msg)?;
    let folder = path.parent().context("the socket path has no folder")?;
    make_folder(folder)?;
    let _lock = Lock::take(path)?;
    clear_stale(path)?;
    let name = path.to_fs_name::<GenericFilePath>()?;
    let listener = ListenerOptions::new()
        .name(name.borrow())
        // Removing is ours: only while the inode is the one that was bound.
        .reclaim_name(false)
        .mode(0o600)
        .create_sync()
        .or_else(|error| match error.kind() {
            // Not every system sets a socket's mode before the bind; there the folder guards it.
            io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => ListenerOptions::new()
                .name(name)
                .reclaim_name(false)
                .create_sync(),
            _ => Err(error),
        })
        .with_context(|| format!("cannot listen on {}", path.display()))?;
    let bound = fs::symlink_metadata(path)?;
    Ok((
        listener,
        Bound {
            path: path.to_owned(),
            device: bound.dev(),
            inode: bound.ino(),
        },
    ))
}

/// Makes `folder` where it is missing, and checks that nobody else can put a socket there.
fn make_folder(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let found = fs::symlink_metadata(folder)?;
    place::Folder {
        is_directory: found.is_dir(),
        uid: found.uid(),
        mode: found.mode(),
    }
    .check(geteuid().as_raw())
    .map_err(|wrong| anyhow::anyhow!("the folder {} {wrong}", folder.display()))
}

/// Removes a socket on which nobody listens any more.
fn clear_stale(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        bail!(
            "{} is in the way: it is no socket; move it elsewhere",
            path.display()
        );
    }
    match Stream::connect(path.to_fs_name::<GenericFilePath>()?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot tell who uses {}", path.display()))
        }
        Ok(stream) => {
            let pid = stream.peer_creds().ok().and_then(|peer| peer.pid());
            match pid {
                Some(pid) if pid == getpid().as_raw() => {
                    bail!("this Emacs listens on {} already", path.display())
                }
                Some(pid) => bail!(
                    "another Emacs (process {pid}) listens on {}; give one of the two another \
                     server-name, or stop it there",
                    path.display()
                ),
                None => bail!("another process listens on {}", path.display()),
            }
        }
    }
}

/// The lock under which a socket is tested, replaced, bound and removed.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self> {
        let path = place::with_suffix(socket, place::LOCK_SUFFIX);
        let patience = Instant::now() + LOCK_PATIENCE;
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(nix::libc::O_NOFOLLOW)
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            match file.try_lock() {
                // Whoever had it may have removed it after we opened it: then it guards nothing.
                Ok(()) if same_file(&file, &path) => return Ok(Self { path, _file: file }),
                Ok(()) | Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {
                    bail!("{} is held by another process", path.display())
                }
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A private folder that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ermcp-{}-{name}", getpid()));
            let _ = fs::remove_dir_all(&path);
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_socket_and_its_folder_are_private_and_go_away() {
        let scratch = Scratch::new("private");
        let path = scratch.0.join("emacs/s.mcp");
        let (_listener, bound) = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777,
            0o700
        );
        bound.remove();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_living_socket_is_left_alone_and_a_stale_one_replaced() {
        let scratch = Scratch::new("stale");
        let path = scratch.0.join("s.mcp");
        let (listener, _) = bind(&path).unwrap();
        let error = bind(&path).unwrap_err().to_string();
        assert!(error.contains("this Emacs listens"), "{error}");
        drop(listener);
        bind(&path).unwrap();
    }

    #[test]
    fn what_took_the_sockets_place_is_not_removed() {
        let scratch = Scratch::new("foreign");
        let path = scratch.0.join("s.mcp");
        let (_listener, bound) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        bound.remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        let error = bind(&path).unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
    }

    #[test]
    fn an_open_folder_is_refused() {
        let scratch = Scratch::new("open");
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
        let error = bind(&scratch.0.join("s.mcp")).unwrap_err().to_string();
        assert!(error.contains("written by others"), "{error}");
    }
}
