//! `make soak`: relays at random work while things break, in an Emacs that somebody types into. Every
//! call that a living client waits for is answered, once and rightly; no form runs twice, and none
//! after `not_started`; nothing grows and nothing is left. It prints its seed and fails loudly.

#![allow(clippy::print_stdout, reason = "showing is what it is for")]

mod chaos;
mod place;
mod tally;
mod worker;

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use harness::Scratch;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::place::Place;
use crate::tally::Tally;

/// Relays at work at once.
const WORKERS: u64 = 8;

fn main() -> ExitCode {
    let seconds = number("SECONDS").unwrap_or(120);
    let seed = number("SEED").unwrap_or_else(rand::random);
    println!("soak: {seconds} s, SEED={seed}");
    let scratch = Scratch::new();
    let folder = scratch.path().display().to_string();
    let ended = std::panic::catch_unwind(move || soak(scratch, Duration::from_secs(seconds), seed));
    if ended.is_err() {
        println!("soak: FAILED; again with SEED={seed}");
        // What was started is still there; all of it has the folder's name in its arguments.
        let _ = Command::new("pkill").args(["-9", "-f", &folder]).status();
        return ExitCode::FAILURE;
    }
    println!("soak: passed");
    ExitCode::SUCCESS
}

fn soak(scratch: Scratch, time: Duration, seed: u64) {
    let tally = Arc::new(Tally::new(scratch.path().join("runs")));
    let begun = Instant::now();
    // Emacs is killed in the first quarter; from a little later on nothing may grow.
    let (settled, warm, end) = (begun + time / 4, begun + time * 3 / 8, begun + time);
    let place = Arc::new(Place::new(scratch, warm));
    let mut seeds = SmallRng::seed_from_u64(seed);
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (place, tally) = (Arc::clone(&place), Arc::clone(&tally));
            let random = SmallRng::seed_from_u64(seeds.next_u64());
            thread::spawn(move || worker::work(number, &place, &tally, random, warm, end))
        })
        .collect();
    let random = SmallRng::seed_from_u64(seeds.next_u64());
    let typing = thread::spawn({
        let (place, tally) = (Arc::clone(&place), Arc::clone(&tally));
        move || chaos::types(&place, &tally, end)
    });
    chaos::breaks(&place, &tally, random, settled, end);
    for worker in workers {
        worker
            .join()
            .expect("a worker has found a fault; see above");
    }
    typing
        .join()
        .expect("the person has found a fault; see above");
    place.finish(&tally);
    tally.check_runs();
    println!("{tally}");
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}
