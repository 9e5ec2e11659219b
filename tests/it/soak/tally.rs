//! What was done and what came of it: every form counts itself in a file, every answer here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a client knows of the form of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has returned or signalled: it ran.
    Ran,
    /// It was said never to run.
    NotStarted,
    /// It was stopped, or nobody knows: it may have run.
    Perhaps,
}

/// The book of a run.
pub(crate) struct Tally {
    runs: PathBuf,
    next: AtomicU64,
    fates: Mutex<HashMap<u64, Fate>>,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    pub(crate) fn new(runs: PathBuf) -> Self {
        Self {
            runs,
            next: AtomicU64::new(1),
            fates: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// A number for a form, and the form that counts itself under it before `body`.
    pub(crate) fn form(&self, body: &str) -> (u64, String) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let form = format!(
            "(progn (write-region \"{number}\\n\" nil {:?} t 'quiet) {body})",
            self.runs
        );
        (number, form)
    }

    /// The client was told what became of the form `number`.
    pub(crate) fn fate(&self, number: u64, fate: Fate) {
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fates.insert(number, fate);
        assert!(before.is_none(), "two answers for form {number}");
    }

    /// One more of `what`.
    pub(crate) fn count(&self, what: impl Into<String>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.into()).or_insert(0) += 1;
    }

    /// Whether what ran is what the clients were told.
    pub(crate) fn check_runs(&self) {
        let text = fs::read_to_string(&self.runs).expect("some form has run");
        let mut runs: HashMap<u64, u64> = HashMap::new();
        for line in text.lines() {
            *runs.entry(line.parse().expect("a number")).or_insert(0) += 1;
        }
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "run twice: {twice:?}");
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, fate) in fates.iter() {
            match (fate, runs.contains_key(number)) {
                (Fate::Ran, false) => panic!("form {number} was answered but has not run"),
                (Fate::NotStarted, true) => panic!("form {number} ran after not_started"),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.next.load(Ordering::Relaxed) - 1;
        writeln!(f, "forms sent: {forms}; lost 0, twice 0")?;
        for (what, count) in self
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            writeln!(f, "  {what}: {count}")?;
        }
        Ok(())
    }
}
