//! Where an Emacs is to be found: from a selector and the surroundings to the places to try, in
//! order. Pure; looking at the file system is the caller's business.
//!
//! The module's socket stands beside the Emacs server's own socket or server file, with
//! [`SUFFIX`] appended, so that whatever selects the server selects the module.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What the module's socket has after the name of the server's.
pub const SUFFIX: &str = ".mcp";

/// What the lock file has after the name of the module's socket.
pub const LOCK_SUFFIX: &str = ".lock";

/// `server-name` where nobody set it.
pub const DEFAULT_NAME: &str = "server";

/// Longest path of a Unix socket, in bytes, that the system's address structure holds.
pub const SOCKET_PATH_MAX_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Which Emacs is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The server of this name, in the usual folders.
    Name(OsString),
    /// The server that listens on this socket; the path is absolute.
    Socket(PathBuf),
    /// The server that this file describes; one without a slash is looked for in the usual folders.
    ServerFile(PathBuf),
    /// Nothing said: the default server, by socket or by server file.
    Default,
}

impl Selector {
    /// What `--socket-name` or `EMACS_SOCKET_NAME` says: a name, or with a slash a path, which is
    /// taken relative to `directory`.
    pub fn socket_name(value: &OsStr, directory: &Path) -> Self {
        if value.as_bytes().contains(&b'/') {
            Self::Socket(directory.join(value))
        } else {
            Self::Name(value.to_owned())
        }
    }

    /// What `--server-file` or `EMACS_SERVER_FILE` says; with a slash it is taken relative to
    /// `directory`.
    pub fn server_file(value: &OsStr, directory: &Path) -> Self {
        if value.as_bytes().contains(&b'/') {
            Self::ServerFile(directory.join(value))
        } else {
            Self::ServerFile(PathBuf::from(value))
        }
    }
}

/// One place to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The path of a server's Unix socket.
    Socket(PathBuf),
    /// The path of a TCP server's file.
    ServerFile(PathBuf),
}

impl Place {
    /// The server's own socket or file.
    pub fn path(&self) -> &Path {
        let (Self::Socket(path) | Self::ServerFile(path)) = self;
        path
    }

    /// The folder that holds it; its owner and mode decide whether it can be trusted.
    pub fn folder(&self) -> &Path {
        self.path().parent().unwrap_or(Path::new("/"))
    }

    /// The module's socket beside it.
    pub fn module_socket(&self) -> PathBuf {
        with_suffix(self.path(), SUFFIX)
    }
}

/// `path` with `suffix` appended to its last component.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut longer = path.as_os_str().to_owned();
    longer.push(suffix);
    PathBuf::from(longer)
}

/// What of the process's surroundings says where servers are. Clients of MCP often pass on
/// only HOME, LOGNAME, PATH, SHELL, TERM and USER, so each may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Our effective user id.
    pub uid: u32,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `TMPDIR`.
    pub tmpdir: Option<PathBuf>,
    /// The user's temporary folder as the system knows it without `TMPDIR` (macOS).
    pub system_tmpdir: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub config_home: Option<PathBuf>,
}

impl Surroundings {
    /// Folders in which Emacs servers make their sockets, likeliest first.
    pub fn socket_folders(&self) -> Vec<PathBuf> {
        let by_uid = format!("emacs{}", self.uid);
        let runtime = [
            self.runtime_dir.clone(),
            Some(PathBuf::from(format!("/run/user/{}", self.uid))),
        ];
        let temporary = [
            self.tmpdir.clone(),
            self.system_tmpdir.clone(),
            Some(PathBuf::from("/tmp")),
        ];
        let runtime = runtime.into_iter().flatten().map(|dir| dir.join("emacs"));
        let temporary = temporary.into_iter().flatten().map(|dir| dir.join(&by_uid));
        distinct(runtime.chain(temporary).filter(|dir| dir.is_absolute()))
    }

    /// Folders in which Emacs keeps the files of TCP servers, in the order of emacsclient.
    pub fn server_file_folders(&self) -> Vec<PathBuf> {
        let config = self
            .config_home
            .clone()
            .or_else(|| self.home.as_ref().map(|home| home.join(".config")));
        let config = config.map(|dir| dir.join("emacs/server"));
        let home = self.home.as_ref().map(|home| home.join(".emacs.d/server"));
        distinct(
            config
                .into_iter()
                .chain(home)
                .filter(|dir| dir.is_absolute()),
        )
    }

    /// The places where the selected Emacs may be, likeliest first.
    pub fn places(&self, selector: &Selector) -> Vec<Place> {
        let sockets = |name: &OsStr| -> Vec<Place> {
            self.socket_folders()
                .iter()
                .map(|dir| Place::Socket(dir.join(name)))
                .collect()
        };
        let files = |name: &Path| -> Vec<Place> {
            self.server_file_folders()
                .iter()
                .map(|dir| Place::ServerFile(dir.join(name)))
                .collect()
        };
        match selector {
            Selector::Name(name) => sockets(name),
            Selector::Socket(path) => vec![Place::Socket(path.clone())],
            Selector::ServerFile(path) if path.is_absolute() => {
                vec![Place::ServerFile(path.clone())]
            }
            Selector::ServerFile(name) => files(name),
            Selector::Default => {
                let mut places = sockets(OsStr::new(DEFAULT_NAME));
                places.extend(files(Path::new(DEFAULT_NAME)));
                places
            }
        }
    }
}

/// Keeps the first of equal paths.
fn distinct(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in paths {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

/// Sockets that listen under `name` in some folder that looks like a server's, by the text of
/// Linux's `/proc/net/unix`: the last resort when none of the usual folders has one. The paths are
/// those of the servers' own sockets, though perhaps only the module's beside it listens.
pub fn listening(name: &OsStr, proc_net_unix: &[u8], uid: u32) -> Vec<PathBuf> {
    /// The flag of a socket that accepts connections.
    const ACCEPTS: &[u8] = b"00010000";
    let by_uid = format!("emacs{uid}");
    let found = proc_net_unix
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            // Num RefCount Protocol Flags Type St, then the inode, padded, and the path, which may
            // have spaces of its own.
            let mut columns = line.splitn(7, |&byte| byte == b' ');
            let flags = columns.by_ref().nth(3)?;
            let inode_and_path = columns.nth(2)?.trim_ascii_start();
            let at = inode_and_path.iter().position(|&byte| byte == b' ')? + 1;
            let path = &inode_and_path[at..];
            if flags != ACCEPTS || path.first() != Some(&b'/') {
                return None;
            }
            let path = path.strip_suffix(SUFFIX.as_bytes()).unwrap_or(path);
            let path = PathBuf::from(OsString::from_vec(path.to_vec()));
            let folder = path.parent()?.file_name()?;
            let fits =
                path.file_name()? == name && (folder == "emacs" || folder == by_uid.as_str());
            fits.then_some(path)
        });
    distinct(found)
}

/// What the file system says of a folder that holds sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folder {
    /// Whether it is a directory, a link to one not counted.
    pub is_directory: bool,
    /// Its owner.
    pub uid: u32,
    /// Its mode; only the permission bits count.
    pub mode: u32,
}

impl Folder {
    /// Whether sockets in it can be trusted by `uid`: it must be a directory of that user's, no
    /// link, and writable by nobody else.
    ///
    /// # Errors
    ///
    /// What is wrong with it, to follow after its path in a message.
    pub fn check(self, uid: u32) -> Result<(), String> {
        if !self.is_directory {
            Err("is a link or no directory".to_owned())
        } else if self.uid != uid {
            Err(format!("belongs to user {}, not to {uid}", self.uid))
        } else if self.mode & 0o022 != 0 {
            Err(format!(
                "can be written by others (mode {:04o}; chmod 700 it)",
                self.mode & 0o7777
            ))
        } else {
            Ok(())
        }
    }
}

/// Refuses a socket path that the system can't hold.
///
/// # Errors
///
/// The message says how long it is and how long it may be.
pub fn check_length(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX_BYTES {
        return Err(format!(
            "the socket path {} has {bytes} bytes, the system allows {SOCKET_PATH_MAX_BYTES}; \
             choose a shorter server name or folder",
            path.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> Surroundings {
        Surroundings {
            uid: 7,
            home: Some("/home/u".into()),
            ..Surroundings::default()
        }
    }

    fn paths(places: &[Place]) -> Vec<&str> {
        places
            .iter()
            .map(|place| place.path().to_str().unwrap())
            .collect()
    }

    #[test]
    fn with_the_environment_of_an_mcp_client_both_usual_folders_are_tried() {
        let places = bare().places(&Selector::Name("work".into()));
        assert_eq!(
            paths(&places),
            ["/run/user/7/emacs/work", "/tmp/emacs7/work"]
        );
    }

    #[test]
    fn the_environment_comes_first_and_nothing_twice() {
        let surroundings = Surroundings {
            runtime_dir: Some("/x".into()),
            tmpdir: Some("/tmp".into()),
            system_tmpdir: Some("/var/t".into()),
            ..bare()
        };
        assert_eq!(
            paths(&surroundings.places(&Selector::Name("n".into()))),
            [
                "/x/emacs/n",
                "/run/user/7/emacs/n",
                "/tmp/emacs7/n",
                "/var/t/emacs7/n"
            ]
        );
    }

    #[test]
    fn the_default_is_looked_for_by_socket_and_then_by_server_file() {
        assert_eq!(
            paths(&bare().places(&Selector::Default)),
            [
                "/run/user/7/emacs/server",
                "/tmp/emacs7/server",
                "/home/u/.config/emacs/server/server",
                "/home/u/.emacs.d/server/server"
            ]
        );
    }

    #[test]
    fn a_slash_makes_a_path() {
        let here = Path::new("/here");
        assert_eq!(
            Selector::socket_name("n".as_ref(), here),
            Selector::Name("n".into())
        );
        assert_eq!(
            Selector::socket_name("./n".as_ref(), here),
            Selector::Socket("/here/./n".into())
        );
        assert_eq!(
            Selector::socket_name("/a/n".as_ref(), here),
            Selector::Socket("/a/n".into())
        );
        let file = Selector::server_file("/a/f".as_ref(), here);
        assert_eq!(paths(&bare().places(&file)), ["/a/f"]);
        let file = Selector::server_file("f".as_ref(), here);
        assert_eq!(
            paths(&bare().places(&file)),
            [
                "/home/u/.config/emacs/server/f",
                "/home/u/.emacs.d/server/f"
            ]
        );
    }

    #[test]
    fn the_module_is_beside_the_server() {
        let place = Place::Socket("/a/my work é".into());
        assert_eq!(place.module_socket(), Path::new("/a/my work é.mcp"));
        assert_eq!(place.folder(), Path::new("/a"));
    }

    #[test]
    fn proc_net_unix_names_listening_servers_of_that_name() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21334 /deep/emacs/my work\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 21335 /other/emacs/my work\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    36 /t/emacs7/my work.mcp\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21337 /t/emacs8/my work\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21338 /deep/emacs/my\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21339 @/deep/emacs/my work\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21340\n";
        let found = listening("my work".as_ref(), text.as_bytes(), 7);
        assert_eq!(
            found,
            [
                Path::new("/deep/emacs/my work"),
                Path::new("/t/emacs7/my work")
            ]
        );
    }

    #[test]
    fn only_a_private_folder_is_trusted() {
        let good = Folder {
            is_directory: true,
            uid: 7,
            mode: 0o40700,
        };
        good.check(7).unwrap();
        Folder {
            mode: 0o40755,
            ..good
        }
        .check(7)
        .unwrap();
        for (folder, word) in [
            (
                Folder {
                    is_directory: false,
                    ..good
                },
                "link",
            ),
            (Folder { uid: 8, ..good }, "user 8"),
            (
                Folder {
                    mode: 0o41777,
                    ..good
                },
                "1777",
            ),
            (
                Folder {
                    mode: 0o40720,
                    ..good
                },
                "0720",
            ),
        ] {
            assert!(folder.check(7).unwrap_err().contains(word), "{folder:?}");
        }
    }

    #[test]
    fn a_path_at_the_systems_limit_passes_and_one_byte_more_does_not() {
        let path = |bytes: usize| PathBuf::from(format!("/{}", "a".repeat(bytes - 1)));
        check_length(&path(SOCKET_PATH_MAX_BYTES)).unwrap();
        let error = check_length(&path(SOCKET_PATH_MAX_BYTES + 1)).unwrap_err();
        assert!(
            error.contains(&SOCKET_PATH_MAX_BYTES.to_string()),
            "{error}"
        );
    }
}
