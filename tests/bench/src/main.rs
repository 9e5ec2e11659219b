//! `make bench`: what a call costs, and where, in an Emacs of its own. All that is compared is asked
//! in turn, so that a noisy machine hits all alike. A table, `docs/bench-VERSION.json`, and of all of
//! these one picture, `docs/bench.svg`.

#![allow(clippy::print_stdout, reason = "showing is what it is for")]

mod draw;
mod targets;
mod ways;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Emacs, EmacsBuilder, PING, Piped, RelayBuilder, Scratch, major_version, memory_kib, root,
};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::ways::{Socket, call, emacsclient};

/// Lengths of values, in characters with the quotes.
const SIZES: [usize; 7] = [3, 64, 1_024, 8_192, 65_536, 131_072, 262_144];

/// Times of one kind.
struct Times(Histogram<u64>);

impl Times {
    fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 120_000_000_000, 3).expect("fixed bounds"))
    }

    fn push(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    /// In microseconds.
    fn quantile(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1_000.0
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    fn show(&self) -> Value {
        json!({ "p50_us": self.median(), "p90_us": self.quantile(0.9), "p99_us": self.quantile(0.99), "calls": self.0.len() })
    }
}

fn main() {
    let scratch = Scratch::new();
    let emacs = EmacsBuilder::new("bench").start(&scratch);
    wait_for_native_code(&emacs);
    println!("Emacs {}, {}", major_version(), machine());
    let round_trip = round_trips(&scratch, &emacs);
    let sizes = sizes(&emacs);
    let mut figures = json!({
        "emacs": major_version(),
        "machine": machine(),
        "round_trip": round_trip,
        "sizes": sizes,
        "expressions": expressions(&emacs),
        "in_flight": in_flight(&emacs),
        "relays": relays(&emacs),
        "waiting": waiting(&emacs),
        "start": start(&scratch),
        "memory": memory(&scratch),
    });
    figures["targets"] = targets::targets(&figures);
    let folder = root().join("docs");
    let file = folder.join(format!("bench-{}.json", major_version()));
    fs::write(&file, format!("{figures:#}\n")).expect("docs/");
    draw::draw(&drawn(&folder), &folder.join("bench.svg"));
    println!("\nWritten: {}, docs/bench.svg", file.display());
}

/// The figures of all versions of Emacs that were measured so far, in their order.
fn drawn(folder: &Path) -> Vec<Value> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("docs/")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).expect("it was there");
            serde_json::from_str(&text).expect("what a bench has written")
        })
        .collect()
}

/// Waits until Emacs has compiled to native code, if it can, what it has loaded: half a minute the
/// first time. It does that in processes of its own, and would be measured with them.
fn wait_for_native_code(emacs: &Emacs) {
    // The second name is that of Emacs 30.
    let done = "(let ((running (seq-find #'fboundp '(comp-async-runnings comp--async-runnings))))
      (or (not running) (and (not comp-files-queue) (zerop (funcall running)))))";
    while emacs.ask(done) != "t" {
        thread::sleep(Duration::from_millis(100));
    }
}

/// What was measured on.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, name)| name);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{count} x {model}")
}

/// The steps of one call of `(+ 1 1)`.
fn round_trips(scratch: &Scratch, emacs: &Emacs) -> Value {
    const ROUNDS: usize = 1_000;
    let form = "(+ 1 1)";
    let to = RelayBuilder::to(emacs);
    let mut pipe = Piped::start(Command::new("cat"));
    let mut relay = ways::relay(&to.clone().by("module"));
    let mut client = ways::relay(&to.by("emacsclient"));
    let mut echo = Socket::echo(scratch);
    let mut module = Socket::module(emacs);
    let mut times: [(&str, Times); 8] = [
        ("a echo over pipes", Times::new()),
        ("b ping to the relay", Times::new()),
        ("c echo over a socket", Times::new()),
        ("d the module's socket", Times::new()),
        ("e emacs_eval, module", Times::new()),
        ("h ping through rmcp", Times::new()),
        ("f emacs_eval, emacsclient", Times::new()),
        ("g plain emacsclient --eval", Times::new()),
    ];
    for round in 0..ROUNDS + 50 {
        let mut now = vec![
            pipe.round_trip(PING),
            relay.round_trip(PING),
            echo.round_trip(PING),
            module.eval(form),
            ways::eval(&mut relay, form),
            relay.round_trip(ways::PING_THROUGH_RMCP),
        ];
        // These take so much longer that fewer are enough.
        if round % 10 == 0 {
            now.push(ways::eval(&mut client, form));
            now.push(emacsclient(emacs, form));
        }
        if round >= 50 {
            for ((_, times), time) in times.iter_mut().zip(now) {
                times.push(time);
            }
        }
    }
    println!("\n(+ 1 1), microseconds        p50       p90       p99");
    for (name, times) in &times {
        println!(
            "{name:26} {:9.1} {:9.1} {:9.1}",
            times.median(),
            times.quantile(0.9),
            times.quantile(0.99)
        );
    }
    let [_, b, c, d, e, h, f, g] = times.each_ref().map(|(_, times)| times.median());
    let lisp = lisp_us(emacs);
    let ratios = json!({ "e/(b+d)": e / (b + d), "e/(h+d)": e / (h + d), "d/c": d / c, "f/e": f / e, "g/e": g / e });
    println!(
        "in Lisp {lisp:.1}; e/(b+d) {:.2}, e/(h+d) {:.2}, d/c {:.1}, f/e {:.0}, g/e {:.0}",
        e / (b + d),
        e / (h + d),
        d / c,
        f / e,
        g / e
    );
    let all: serde_json::Map<_, _> = times
        .iter()
        .map(|(name, times)| ((*name).to_owned(), times.show()))
        .collect();
    json!({ "times": all, "ratios": ratios, "lisp_us": lisp })
}

/// What the evaluator itself takes for `(+ 1 1)`, in microseconds.
fn lisp_us(emacs: &Emacs) -> f64 {
    let form = "(/ (* 1e6 (car (benchmark-run-compiled 2000 (emacs-runtime-mcp-eval \"(+ 1 1)\" 65536 (lambda (_) t))))) 2000)";
    emacs.ask(form).parse().expect("a number")
}

/// Values of all lengths by three ways. Each time Emacs's collector has just been, so that no way
/// pays for the garbage of another.
fn sizes(emacs: &Emacs) -> Value {
    let to = RelayBuilder::to(emacs);
    let mut relay = ways::relay(&to.clone().by("module"));
    let mut client = ways::relay(&to.by("emacsclient"));
    println!("\nvalue, characters      module  emacsclient  plain emacsclient   (ms, p50)");
    let mut rows = Vec::new();
    for size in SIZES {
        let form = format!("(make-string {} ?a)", size - 2);
        let (mut e, mut f, mut g) = (Times::new(), Times::new(), Times::new());
        for _ in 0..if size > 10_000 { 11 } else { 30 } {
            emacs.ask("(garbage-collect)");
            e.push(ways::eval(&mut relay, &form));
            emacs.ask("(garbage-collect)");
            f.push(ways::eval(&mut client, &form));
            emacs.ask("(garbage-collect)");
            g.push(emacsclient(emacs, &form));
        }
        println!(
            "{size:17} {:11.2} {:12.2} {:18.2}",
            e.median() / 1e3,
            f.median() / 1e3,
            g.median() / 1e3
        );
        rows.push(json!({ "chars": size, "module": e.show(), "emacsclient": f.show(), "plain": g.show() }));
    }
    // By itself, for the fit.
    let points = SIZES.map(|size| {
        let form = format!("(make-string {} ?a)", size - 2);
        let mut times = Times::new();
        for _ in 0..20 {
            times.push(ways::eval(&mut relay, &form));
        }
        (size as f64, times.median())
    });
    json!({ "rows": rows, "module_alone_us": points, "module_fit": fit(&points) })
}

/// A line through `points`, and how far the worst is off it, as a part of it.
fn fit(points: &[(f64, f64)]) -> Value {
    let (slope, intercept): (f64, f64) =
        linreg::linear_regression_of(points).expect("more than one point");
    let largest = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let worst = points
        .iter()
        .map(|(x, y)| (slope * x + intercept - y).abs() / largest)
        .fold(0.0, f64::max);
    json!({ "slope": slope, "intercept": intercept, "worst_deviation_of_largest": worst })
}

/// Expressions of all lengths, by the module.
fn expressions(emacs: &Emacs) -> Value {
    let mut relay = ways::relay(&RelayBuilder::to(emacs).by("module"));
    println!("\nexpression, characters   module (ms, p50)");
    let mut points = Vec::new();
    for size in SIZES {
        let form = format!(
            "(length \"{}\")",
            "a".repeat(size.saturating_sub(11).max(1))
        );
        let mut times = Times::new();
        for _ in 0..20 {
            times.push(ways::eval(&mut relay, &form));
        }
        println!("{size:22} {:18.2}", times.median() / 1e3);
        points.push((size as f64, times.median()));
    }
    json!({ "fit": fit(&points), "points_us": points })
}

/// Calls per second with several under way at once, in turn; the median of some rounds.
fn in_flight(emacs: &Emacs) -> Value {
    const CALLS: u64 = 1_000;
    let mut relay = ways::relay(&RelayBuilder::to(emacs).by("module"));
    let mut widths = [1, 8, 64].map(|width| (width, Times::new()));
    for _ in 0..9 {
        for (width, times) in &mut widths {
            let begun = Instant::now();
            for id in 0..CALLS + *width {
                if id < CALLS {
                    relay.send(&call(id + 10, "(+ 1 1)"));
                }
                if id >= *width {
                    relay.receive();
                }
            }
            times.push(begun.elapsed());
        }
    }
    println!("\nin flight   calls/s");
    let rows = widths.map(|(width, times)| {
        let rate = CALLS as f64 * 1e6 / times.median();
        println!("{width:9} {rate:9.0}");
        json!({ "in_flight": width, "calls_per_second": rate })
    });
    json!(rows)
}

/// A call while other relays are connected and idle, in rounds.
fn relays(emacs: &Emacs) -> Value {
    let start = || ways::relay(&RelayBuilder::to(emacs).by("module"));
    let mut relay = start();
    let mut counts = [1, 8, 32].map(|count| (count, Times::new()));
    for _ in 0..5 {
        let mut others = Vec::new();
        for (count, times) in &mut counts {
            while others.len() + 1 < *count {
                let mut other = start();
                ways::eval(&mut other, "1");
                others.push(other);
            }
            for _ in 0..400 {
                times.push(ways::eval(&mut relay, "(+ 1 1)"));
            }
        }
    }
    println!("\nrelays   (+ 1 1), microseconds, p50");
    let rows = counts.map(|(count, times)| {
        println!("{count:6} {:12.1}", times.median());
        json!({ "relays": count, "p50_us": times.median() })
    });
    json!(rows)
}

/// What a call costs with others waiting behind it: the whole of them, a call.
fn waiting(emacs: &Emacs) -> Value {
    let mut relay = ways::relay(&RelayBuilder::to(emacs).by("module"));
    println!("\nwaiting   all of them, microseconds, p50");
    let mut points = Vec::new();
    for count in [1_u64, 25, 50, 100, 200] {
        let mut times = Times::new();
        for _ in 0..20 {
            let lines: String = (0..count).map(|id| call(id + 10, "(+ 1 1)")).collect();
            let begun = Instant::now();
            relay.send(&lines);
            for _ in 0..count {
                relay.receive();
            }
            times.push(begun.elapsed());
        }
        println!("{count:7} {:12.1}", times.median());
        points.push((count as f64, times.median()));
    }
    json!({ "fit": fit(&points), "points_us": points })
}

/// Starting, and loading the module.
fn start(scratch: &Scratch) -> Value {
    let (mut process, mut hello, mut load) = (Times::new(), Times::new(), Times::new());
    let nowhere = RelayBuilder::at(&scratch.path().join("nowhere"));
    for _ in 0..50 {
        let begun = Instant::now();
        assert!(Command::new("true").status().expect("true").success());
        process.push(begun.elapsed());
        let begun = Instant::now();
        let relay = ways::relay(&nowhere);
        hello.push(begun.elapsed());
        drop(relay);
    }
    let other = EmacsBuilder::new("load").without_module().start(scratch);
    let form = format!(
        "(progn (add-to-list 'load-path {:?}) (car (benchmark-run 1 (require 'emacs-runtime-mcp-module))))",
        harness::lisp()
    );
    let seconds: f64 = other.ask(&form).parse().expect("a number");
    load.push(Duration::from_secs_f64(seconds));
    println!(
        "\nstart, microseconds: a process {:.0}, the relay to its hello {:.0}, loading the module {:.0}",
        process.median(),
        hello.median(),
        load.median()
    );
    json!({ "process_us": process.median(), "relay_us": hello.median(), "module_load_us": load.median() })
}

/// Resident memory after work.
fn memory(scratch: &Scratch) -> Value {
    let emacs = EmacsBuilder::new("memory").without_module().start(scratch);
    emacs.ask("(require 'cl-lib)");
    let before = memory_kib(emacs.pid(), "VmRSS");
    emacs.ask(&format!(
        "(progn (add-to-list 'load-path {:?}) (require 'emacs-runtime-mcp-module) nil)",
        harness::lisp()
    ));
    let mut relay = ways::relay(&RelayBuilder::to(&emacs).by("module"));
    for _ in 0..1_000 {
        ways::eval(&mut relay, "(+ 1 1)");
    }
    let (in_emacs, in_relay) = (
        memory_kib(emacs.pid(), "VmRSS").saturating_sub(before),
        memory_kib(relay.pid(), "VmRSS"),
    );
    println!("memory after 1,000 calls: {in_relay} KiB the relay, {in_emacs} KiB more in Emacs");
    json!({ "relay_kib": in_relay, "emacs_growth_kib": in_emacs })
}
