//! Waiting for a condition, never for a time.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until `look` finds something, at most 20 seconds.
///
/// # Panics
///
/// After that, naming `what`.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < patience, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `holds`, at most 20 seconds.
///
/// # Panics
///
/// After that, naming `what`.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}
