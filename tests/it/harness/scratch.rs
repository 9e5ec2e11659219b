//! A private temporary folder that goes with its value.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of mode 0700. Its path is short: sockets have to fit in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new one.
    ///
    /// # Panics
    ///
    /// Where the system refuses.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new("/tmp").join(format!("erm{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .expect("a temporary folder");
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A folder in it, made if need be, of mode 0700.
    ///
    /// # Panics
    ///
    /// Where the system refuses.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)
            .expect("a folder");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
