//! One client with its relay: random calls, and what may be expected of each answer.

use std::thread;
use std::time::{Duration, Instant};

use harness::{Relay, RelayBuilder};
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::json;

use crate::place::{Place, Watched};
use crate::tally::{Fate, Tally};

/// How much later than promised an answer may be: the machine is busy with all of this.
const SLACK: Duration = Duration::from_secs(3);

/// Time of a call that is to succeed. Emacs may be away, or busy with another's long form.
const PATIENT_MS: u64 = 30_000;

/// Works until `end`. Even numbers keep their relay all the time, so that it can be seen not to grow.
pub(crate) fn work(
    number: u64,
    place: &Place,
    tally: &Tally,
    mut random: SmallRng,
    warm: Instant,
    end: Instant,
) {
    let steady = number.is_multiple_of(2);
    let start = || RelayBuilder::at(place.socket()).start();
    let mut relay = start();
    let mut watched = Watched::new("a relay", relay.pid(), warm);
    while Instant::now() < end {
        match random.random_range(0..100) {
            0..=39 => value(&mut relay, tally, &mut random),
            40..=49 => error(&mut relay, tally),
            50..=59 => long(&mut relay, tally, &mut random),
            60..=69 => cut(&mut relay, tally),
            70..=79 => cancelled(&mut relay, tally, &mut random),
            80..=84 => prompt(&mut relay, tally),
            85..=90 => several(&mut relay, tally, &mut random),
            91..=94 => broken_line(&mut relay, tally, &mut random),
            95..=96 if !steady => {
                killed(&mut relay, tally);
                relay = start();
            }
            97 if !steady => deaf(place, tally),
            _ => thread::sleep(Duration::from_millis(random.random_range(0..200))),
        }
        if steady {
            watched.look();
        }
    }
    if steady {
        watched.check(tally);
    }
    relay.close_input();
    assert!(relay.wait().success());
}

fn begin(relay: &mut Relay, form: &str, timeout_ms: u64) -> i64 {
    relay.begin_call(
        json!({ "expression": form, "timeout_ms": timeout_ms, "max_output_chars": 262_144 }),
    )
}

/// Waits for the answer and books it. Returns its value, or nothing where it is an error that may
/// come of what is broken on purpose.
fn settle(
    relay: &mut Relay,
    tally: &Tally,
    number: u64,
    id: i64,
    limit: Duration,
) -> Option<String> {
    let begun = Instant::now();
    let message = relay.answer_to(id);
    assert!(
        begun.elapsed() < limit + SLACK,
        "form {number} took {:?}",
        begun.elapsed()
    );
    let envelope = &message["result"]["structuredContent"];
    if envelope["ok"] == true {
        tally.fate(number, Fate::Ran);
        tally.count("answer: value");
        return Some(envelope["value"].as_str().expect("a value").to_owned());
    }
    let error = &envelope["error"];
    let code = error["code"]
        .as_str()
        .unwrap_or_else(|| panic!("{message}"));
    let evaluation = error["data"]["evaluation"].as_str();
    let symbol = error["data"]["symbol"].as_str();
    let fate = match (code, evaluation) {
        ("elisp_error", None) => Fate::Ran,
        ("emacs_unavailable", None) => {
            // Nobody is there; somebody will be.
            thread::sleep(Duration::from_millis(100));
            Fate::NotStarted
        }
        (_, Some("not_started")) => Fate::NotStarted,
        (
            "emacs_unavailable" | "evaluation_timeout" | "elisp_error",
            Some("interrupted" | "unknown"),
        ) => Fate::Perhaps,
        _ => panic!("form {number}: {message}"),
    };
    // An error of the form's own is one that the form was made for.
    let expected = !matches!((code, evaluation), ("elisp_error", None))
        || matches!(symbol, Some("soak" | "inhibited-interaction" | "quit"));
    assert!(expected, "form {number}: {message}");
    tally.fate(number, fate);
    tally.count(format!(
        "answer: {code} {}",
        evaluation.or(symbol).unwrap_or_default()
    ));
    None
}

fn patience() -> Duration {
    Duration::from_millis(PATIENT_MS + 250)
}

fn value(relay: &mut Relay, tally: &Tally, random: &mut SmallRng) {
    let nonce: u32 = random.random();
    let (number, form) = tally.form(&format!("(list {nonce} \"é😀\")"));
    let id = begin(relay, &form, PATIENT_MS);
    if let Some(value) = settle(relay, tally, number, id, patience()) {
        assert_eq!(value, format!("({nonce} \"é😀\")"));
    }
}

fn error(relay: &mut Relay, tally: &Tally) {
    let (number, form) = tally.form("(progn (define-error 'soak \"Soak\") (signal 'soak '(1 2)))");
    let id = begin(relay, &form, PATIENT_MS);
    assert_eq!(settle(relay, tally, number, id, patience()), None);
}

fn long(relay: &mut Relay, tally: &Tally, random: &mut SmallRng) {
    let chars = 1_usize << random.random_range(0..18);
    let (number, form) = tally.form(&format!("(make-string {chars} ?é)"));
    let id = begin(relay, &form, PATIENT_MS);
    if let Some(value) = settle(relay, tally, number, id, patience()) {
        assert_eq!(value.chars().count(), chars + 2);
    }
}

/// A loop that ends by itself, since by emacsclient it can't be stopped; but later than its time.
fn cut(relay: &mut Relay, tally: &Tally) {
    let (number, form) =
        tally.form("(let ((end (+ (float-time) 1.5))) (while (< (float-time) end)))");
    let id = begin(relay, &form, 300);
    assert_eq!(
        settle(relay, tally, number, id, Duration::from_millis(550)),
        None
    );
}

fn cancelled(relay: &mut Relay, tally: &Tally, random: &mut SmallRng) {
    let (_, form) = tally.form(&format!(
        "(sleep-for {})",
        random.random_range(0..20) as f64 / 100.0
    ));
    let id = begin(relay, &form, PATIENT_MS);
    thread::sleep(Duration::from_millis(random.random_range(0..100)));
    relay.notify("notifications/cancelled", json!({ "requestId": id }));
    tally.count("fault: cancelled");
    // If it is answered, it was before the cancel came; then not again.
    assert_eq!(relay.request("ping", json!({}))["result"], json!({}));
    relay.forget(id);
}

fn prompt(relay: &mut Relay, tally: &Tally) {
    let (number, form) = tally.form("(y-or-n-p \"Really? \")");
    let id = begin(relay, &form, PATIENT_MS);
    assert_eq!(settle(relay, tally, number, id, patience()), None);
}

fn several(relay: &mut Relay, tally: &Tally, random: &mut SmallRng) {
    let calls: Vec<_> = (0..random.random_range(2..30))
        .map(|nth| {
            let (number, form) = tally.form(&nth.to_string());
            (nth, number, begin(relay, &form, PATIENT_MS))
        })
        .collect();
    for (nth, number, id) in calls {
        if let Some(value) = settle(relay, tally, number, id, patience()) {
            assert_eq!(value, nth.to_string());
        }
    }
}

fn broken_line(relay: &mut Relay, tally: &Tally, random: &mut SmallRng) {
    let id = format!("broken-{}", random.random::<u32>());
    relay.send_line(format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{{"name":"em"#
    ));
    let answer = loop {
        let message = relay.receive();
        if message["id"] == id.as_str() {
            break message;
        }
    };
    assert_eq!(answer["error"]["code"], -32700);
    tally.count("fault: broken line");
}

/// The relay is killed in the middle of a form and with one waiting.
fn killed(relay: &mut Relay, tally: &Tally) {
    for _ in 0..2 {
        let (_, form) = tally.form("(sleep-for 0.5)");
        begin(relay, &form, PATIENT_MS);
    }
    thread::sleep(Duration::from_millis(20));
    relay.crash();
    tally.count("fault: relay killed");
}

/// A client that asks for much and reads nothing, until it is gone.
fn deaf(place: &Place, tally: &Tally) {
    let mut child = RelayBuilder::at(place.socket())
        .command()
        .spawn()
        .expect("a relay");
    let mut stdin = child.stdin.take().expect("piped");
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "deaf", "version": "0" } } });
    let writer = thread::spawn(move || {
        use std::io::Write;
        let _ = writeln!(stdin, "{hello}");
        for id in 1..40 {
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "emacs_eval",
                "arguments": { "expression": "(make-string 100000 ?x)", "max_output_chars": 262_144 } } });
            if writeln!(stdin, "{call}").is_err() {
                return;
            }
        }
    });
    thread::sleep(Duration::from_millis(500));
    let _ = child.kill();
    let _ = child.wait();
    writer.join().expect("no panic");
    tally.count("fault: deaf client");
}
