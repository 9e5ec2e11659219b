//! What goes wrong from outside, and the person who types all the while.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use harness::ask;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::place::Place;
use crate::tally::Tally;

/// Breaks something every now and then until `end`; kills Emacs only until `settled`, so that one is
/// left that can be seen not to grow.
pub(crate) fn breaks(
    place: &Place,
    tally: &Tally,
    mut random: SmallRng,
    settled: Instant,
    end: Instant,
) {
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(random.random_range(200..2_000)));
        place.look();
        let may_kill = Instant::now() < settled;
        match random.random_range(0..20) {
            0..=2 if may_kill => {
                place.crash(tally);
                tally.count("fault: Emacs killed");
            }
            0..=5 => {
                // While it is away calls go by emacsclient.
                place.with(|emacs| ask(emacs.socket(), "(emacs-runtime-mcp-stop)"));
                thread::sleep(Duration::from_millis(random.random_range(0..300)));
                place.with(|emacs| ask(emacs.socket(), "(emacs-runtime-mcp-start)"));
                tally.count("fault: module stopped");
            }
            6..=8 => {
                place.with(|emacs| ask(emacs.socket(), "(emacs-runtime-mcp-cancel)"));
                tally.count("fault: a person stops everything");
            }
            _ => {
                broken_frames(place, &mut random);
                tally.count("fault: broken frames");
            }
        }
    }
}

/// Bytes of no meaning on the module's socket.
fn broken_frames(place: &Place, random: &mut SmallRng) {
    let mut socket = place.socket().clone().into_os_string();
    socket.push(".mcp");
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return;
    };
    let mut bytes = vec![0_u8; random.random_range(1..10_000)];
    random.fill(&mut bytes[..]);
    // It may be closed in our face, as it should.
    let _ = stream.write_all(&bytes);
}

/// Types a letter every 50 ms; each arrives, in order.
pub(crate) fn types(place: &Place, tally: &Tally, end: Instant) {
    while Instant::now() < end {
        // One Emacs at a time: it isn't killed in the middle of a line.
        place.with(|emacs| {
            ask(
                emacs.socket(),
                "(with-current-buffer \"typing\" (erase-buffer))",
            );
            let mut typist = emacs.typist();
            let text: String = ('a'..='z').take(20).collect();
            for letter in text.chars() {
                typist.r#type(letter);
                thread::sleep(Duration::from_millis(50));
            }
            harness::wait_until("the typed line", || {
                ask(
                    emacs.socket(),
                    "(with-current-buffer \"typing\" (buffer-string))",
                ) == format!("\"{text}\"")
            });
            tally.count("lines typed");
        });
        thread::sleep(Duration::from_millis(100));
    }
}
