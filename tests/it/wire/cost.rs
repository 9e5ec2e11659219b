//! What the relay itself costs: beside the least that a server over the same pipes can do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Emacs, HELLO, PING, Piped, RelayBuilder, Scratch, memory_kib, relay_program, root};

use super::without_emacs;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Medians of both, asked in turn, so that a noisy machine hits both alike.
fn pings(
    relay: &mut Piped,
    echo: &mut Piped,
    rounds: usize,
    pause: Duration,
) -> (Duration, Duration) {
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (server, times) in [(&mut *relay, &mut ours), (&mut *echo, &mut least)] {
            thread::sleep(pause);
            times.push(server.round_trip(PING));
        }
    }
    (median(ours), median(least))
}

fn ratio(ours: Duration, least: Duration) -> f64 {
    ours.as_secs_f64() / least.as_secs_f64()
}

#[test]
fn timed_a_ping_costs_little_more_than_the_least() {
    let mut relay = Piped::start(without_emacs().command());
    let mut echo = Piped::start(Command::new(root().join("target/release/echo")));
    relay.round_trip(HELLO);
    pings(&mut relay, &mut echo, 500, Duration::ZERO);
    let (ours, least) = pings(&mut relay, &mut echo, 5_000, Duration::ZERO);
    let (ours_idle, least_idle) = pings(&mut relay, &mut echo, 300, Duration::from_millis(2));
    harness::show(&format!(
        "ping: {ours:?} against {least:?} of a loop ({:.2}), after a pause {ours_idle:?} against {least_idle:?} ({:.2})",
        ratio(ours, least),
        ratio(ours_idle, least_idle)
    ));
    assert!(ratio(ours, least) <= 1.3, "{ours:?} against {least:?}");
    assert!(
        ratio(ours_idle, least_idle) <= 2.0,
        "{ours_idle:?} against {least_idle:?}"
    );
}

#[test]
fn timed_the_start_costs_little_more_than_a_process() {
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let begun = Instant::now();
        let mut relay = Piped::start(without_emacs().command());
        relay.round_trip(HELLO);
        ours.push(begun.elapsed());
        drop(relay);
        let begun = Instant::now();
        let status = Command::new("true").stdin(Stdio::null()).status();
        least.push(begun.elapsed());
        assert!(status.expect("true").success());
    }
    let (ours, least) = (median(ours), median(least));
    harness::show(&format!(
        "from spawn to the answer of initialize {ours:?}; a process that does nothing {least:?} ({:.2})",
        ratio(ours, least)
    ));
    assert!(ratio(ours, least) <= 3.0, "{ours:?} against {least:?}");
}

/// Threads of a process.
fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task"))
        .expect("Linux")
        .count()
}

#[test]
fn pipes_and_sockets_need_no_thread() {
    let mut relay = Piped::start(without_emacs().command());
    relay.round_trip(HELLO);
    assert_eq!(threads(relay.pid()), 1, "over pipes");
    // As Node's clients give them.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let mut command = without_emacs().command();
    command
        .stdin(std::os::fd::OwnedFd::from(
            theirs.try_clone().expect("a socket"),
        ))
        .stdout(std::os::fd::OwnedFd::from(theirs));
    let mut child = command.spawn().expect("a relay");
    drop(command);
    (&ours).write_all(HELLO.as_bytes()).expect("it reads");
    let mut line = String::new();
    BufReader::new(&ours)
        .read_line(&mut line)
        .expect("it answers");
    assert!(line.contains("protocolVersion"), "{line}");
    assert_eq!(threads(child.id()), 1, "over sockets");
    drop(ours);
    assert!(child.wait().expect("it is ours").success());
}

#[test]
fn the_relay_is_small_on_disk_and_in_memory() {
    let size = fs::metadata(relay_program()).expect("a relay").len();
    assert!(size < 5_000_000, "{size} bytes");
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    for nth in 0..1_000 {
        assert_eq!(relay.value(&nth.to_string()), nth.to_string());
    }
    let memory = memory_kib(relay.pid(), "VmRSS");
    harness::show(&format!(
        "the relay: {size} bytes on disk, {memory} KiB in memory after 1,000 calls"
    ));
    assert!(memory < 8 * 1024, "{memory} KiB");
}
