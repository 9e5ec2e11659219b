//! Looks for the selected Emacs in the file system: the places that may be tried, and why the others
//! may not. Nothing is connected to, and no folder that others can write is trusted.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use emacs_runtime_mcp_protocol::place::{self, Folder, Place, Selector, Surroundings};
use nix::unistd::geteuid;

/// Finds the places of one selector.
#[derive(Debug)]
pub(crate) struct Finder {
    selector: Selector,
    surroundings: Surroundings,
}

/// What a look at the file system gave.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Places in folders that can be trusted, likeliest first.
    pub(crate) places: Vec<Place>,
    /// Every place that was looked at.
    pub(crate) looked_at: Vec<PathBuf>,
    /// Why a place was passed over, where that is more than "there is nothing".
    pub(crate) objections: Vec<String>,
}

impl Finder {
    /// A finder for `selector` in this process's environment.
    pub(crate) fn new(selector: Selector) -> Self {
        let variable = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let surroundings = Surroundings {
            uid: geteuid().as_raw(),
            runtime_dir: variable("XDG_RUNTIME_DIR"),
            tmpdir: variable("TMPDIR"),
            // On macOS this asks the system when TMPDIR is not set.
            system_tmpdir: cfg!(target_os = "macos").then(std::env::temp_dir),
            home: variable("HOME"),
            config_home: variable("XDG_CONFIG_HOME"),
        };
        Self {
            selector,
            surroundings,
        }
    }

    /// Looks anew: an Emacs may have come or gone since the last time.
    pub(crate) fn look(&self) -> Found {
        let mut found = Found::default();
        for place in self.surroundings.places(&self.selector) {
            found.consider(place, self.surroundings.uid);
        }
        if found.places.iter().all(|place| !has_socket(place)) {
            self.look_at_listeners(&mut found);
        }
        found
    }

    /// The last resort on Linux: servers of that name which listen in some other folder.
    fn look_at_listeners(&self, found: &mut Found) {
        let name = match &self.selector {
            Selector::Name(name) => name.as_os_str(),
            Selector::Default => place::DEFAULT_NAME.as_ref(),
            Selector::Socket(_) | Selector::ServerFile(_) => return,
        };
        let Ok(table) = fs::read("/proc/net/unix") else {
            return;
        };
        let mut elsewhere = Found::default();
        for path in place::listening(name, &table, self.surroundings.uid) {
            if is_ours(&path) || is_ours(&place::with_suffix(&path, place::SUFFIX)) {
                elsewhere.consider(Place::Socket(path), self.surroundings.uid);
            }
        }
        if elsewhere.places.len() > 1 {
            let list: Vec<_> = elsewhere
                .places
                .iter()
                .map(|place| place.path().display().to_string())
                .collect();
            found.objections.push(format!(
                "several Emacs servers have that name: {}; give one of these to --socket-name",
                list.join(", ")
            ));
        } else {
            found.places.append(&mut elsewhere.places);
        }
        found.looked_at.append(&mut elsewhere.looked_at);
        found.objections.append(&mut elsewhere.objections);
    }
}

impl Found {
    /// Takes `place` in, or says why not.
    fn consider(&mut self, place: Place, uid: u32) {
        self.looked_at.push(place.path().to_owned());
        let folder = place.folder();
        let facts = match fs::symlink_metadata(folder) {
            Ok(facts) => facts,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                self.objections
                    .push(format!("{}: {error}", folder.display()));
                return;
            }
        };
        let facts = Folder {
            is_directory: facts.is_dir(),
            uid: facts.uid(),
            mode: facts.mode(),
        };
        match facts.check(uid) {
            Err(wrong) => self
                .objections
                .push(format!("the folder {} {wrong}", folder.display())),
            Ok(()) => self.places.push(place),
        }
    }
}

/// Whether anything that could be a server or a module stands at `place`.
fn has_socket(place: &Place) -> bool {
    fs::symlink_metadata(place.path()).is_ok()
        || fs::symlink_metadata(place.module_socket()).is_ok()
}

fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|facts| facts.file_type().is_socket() && facts.uid() == geteuid().as_raw())
}
