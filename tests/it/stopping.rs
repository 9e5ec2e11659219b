//! Stop means stop: by timeout, by cancel, by a relay that vanished and by a person, whatever the
//! form does. Signals strike inside an evaluation and nowhere else.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Emacs, EmacsBuilder, Relay, RelayBuilder, Scratch, Terminal, major_version, wait_until,
};
use serde_json::json;

/// Forms that would never end; `(tick)` shows that they run.
const ENDLESS: &[(&str, &str)] = &[
    ("a tight loop", "(while t (tick))"),
    ("inhibit-quit", "(let ((inhibit-quit t)) (while t (tick)))"),
    (
        "a handler of quit",
        "(while t (condition-case nil (while t (tick)) (quit nil)))",
    ),
    (
        "a handler of all",
        "(while t (condition-case nil (while t (tick)) ((error quit debug) nil)))",
    ),
    (
        "a handler of t",
        "(while t (condition-case nil (while t (tick)) (t nil)))",
    ),
    ("byte-compiled", "(stop-compiled)"),
    ("byte-compiled, a handler of quit", "(stop-compiled-quit)"),
    ("native-compiled", "(stop-native)"),
    (
        "a catastrophic regexp",
        "(string-match \"\\\\(?:a\\\\|aa\\\\)*b\" (make-string 80 ?a))",
    ),
    (
        "a sort predicate",
        "(sort (list 1 2 3) (lambda (_a _b) (while t (tick))))",
    ),
    (
        "a mapped function",
        "(mapcar (lambda (_) (while t (tick))) '(1 2))",
    ),
    (
        "a search in a big buffer",
        "(with-temp-buffer (insert (make-string 1000000 ?a)) (while t (tick) (goto-char 1) (string-match-p \"b\" (buffer-string))))",
    ),
    ("sleep-for", "(sleep-for 30)"),
    ("sit-for", "(sit-for 30)"),
    (
        "a wait for output",
        "(while t (accept-process-output nil 30))",
    ),
    (
        "a wait in a loop that ignores errors",
        "(while t (ignore-errors (sleep-for 0.01)) (tick))",
    ),
    (
        "a child process",
        "(call-process \"sleep\" nil nil nil \"30\")",
    ),
    ("read-key", "(read-key \"k\")"),
    ("read-key-sequence", "(read-key-sequence \"k\")"),
    ("a recursive edit", "(recursive-edit)"),
    (
        "a prompt, allowed",
        "(progn (setq inhibit-interaction nil) (read-string \"x\"))",
    ),
    (
        "a timer's loop in a wait",
        "(progn (run-at-time 0.01 nil (lambda () (while t (tick)))) (sit-for 30))",
    ),
    (
        "garbage",
        "(while t (tick) (make-list 10000 1) (make-string 100000 ?x))",
    ),
    ("while-no-input", "(while-no-input (while t (tick)))"),
    (
        "with-local-quit",
        "(while t (with-local-quit (while t (tick))))",
    ),
    (
        "a print without end",
        "(let ((x 1)) (dotimes (_ 60) (setq x (cons x x))) x)",
    ),
    (
        "a quit in the cleanup",
        "(unwind-protect (while t (tick)) (signal 'quit nil))",
    ),
    (
        "an endless cleanup",
        "(unwind-protect (while t (tick)) (while t (tick)))",
    ),
    (
        "a debugger of its own",
        "(let ((debugger #'ignore)) (while t (tick)))",
    ),
    (
        "all timers cancelled",
        "(progn (mapc #'cancel-timer (append timer-list nil)) (while t (tick)))",
    ),
];

/// Defines what the forms use.
const PRELUDE: &str = "(progn
  (defvar stop-ticks 0)
  (defvar stop-cleaned nil)
  (defmacro tick () '(setq stop-ticks (1+ stop-ticks)))
  (fset 'stop-compiled (byte-compile '(lambda () (while t (setq stop-ticks (1+ stop-ticks))))))
  (fset 'stop-compiled-quit
        (byte-compile '(lambda () (while t (condition-case nil (while t (setq stop-ticks (1+ stop-ticks))) (quit nil))))))
  (if (and (fboundp 'native-comp-available-p) (native-comp-available-p)
           (ignore-errors
             (fset 'stop-native (native-compile '(lambda () (while t (setq stop-ticks (1+ stop-ticks))))))))
      'native
    (fset 'stop-native 'stop-compiled)
    'bytes))";

/// A relay to an Emacs that has the prelude.
fn prepared(builder: &RelayBuilder) -> Relay {
    let mut relay = builder.clone().by("module").start();
    let kind = relay
        .call(json!({ "expression": PRELUDE, "timeout_ms": 60_000 }))
        .value();
    if kind != "native" {
        harness::skipped("stopping native-compiled Lisp", "no native compiler");
    }
    relay
}

fn with_cleanup(form: &str) -> String {
    format!(
        "(progn (setq stop-ticks 0 stop-cleaned nil) (unwind-protect {form} (setq stop-cleaned t)))"
    )
}

/// Whether the times that the contract promises are held to. They are where nothing else runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    Watched,
    Unwatched,
}

impl Clock {
    fn check(self, name: &str, time: Duration, limit: Duration) {
        assert!(self == Self::Unwatched || time <= limit, "{name}: {time:?}");
    }
}

/// Nothing runs on, cleanup has run, nothing is left open, and the next call answers.
fn all_is_well_after(relay: &mut Relay, name: &str, clock: Clock) {
    let begun = Instant::now();
    let state = relay.call(json!({ "expression": "(list stop-cleaned (minibuffer-depth) (recursion-depth) stop-ticks)", "timeout_ms": 5_000 }));
    clock.check(name, begun.elapsed(), Duration::from_millis(50));
    let state = state.value();
    assert!(state.starts_with("(t 0 0 "), "{name}: {state}");
    assert_eq!(relay.value("(+ 1 1)"), "2", "{name}");
    thread::sleep(Duration::from_millis(20));
    assert_eq!(
        relay.value("(list stop-cleaned (minibuffer-depth) (recursion-depth) stop-ticks)"),
        state,
        "{name} runs on"
    );
}

fn stops_every_form_by_timeout(relay: &mut Relay, clock: Clock) {
    for (name, form) in ENDLESS {
        let answer = relay.call(json!({ "expression": with_cleanup(form), "timeout_ms": 300 }));
        assert_eq!(answer.code(), "evaluation_timeout", "{name}: {answer:?}");
        // On a busy machine it may take longer than an answer may.
        let late = clock == Clock::Unwatched && answer.evaluation() == "unknown";
        assert!(
            late || answer.evaluation() == "interrupted",
            "{name}: {answer:?}"
        );
        let elapsed = Duration::from_millis(answer.envelope["elapsed_ms"].as_u64().unwrap());
        assert!(elapsed >= Duration::from_millis(300), "{name}: {elapsed:?}");
        clock.check(name, elapsed, Duration::from_millis(550));
        all_is_well_after(relay, name, clock);
    }
}

fn stops_every_form_by_cancel(relay: &mut Relay, clock: Clock) {
    for (name, form) in ENDLESS {
        let id =
            relay.begin_call(json!({ "expression": with_cleanup(form), "timeout_ms": 60_000 }));
        thread::sleep(Duration::from_millis(200));
        relay.notify("notifications/cancelled", json!({ "requestId": id }));
        let cancelled = Instant::now();
        let next = relay.begin_eval("(+ 1 1)");
        let answer = relay.receive();
        assert_eq!(answer["id"], next, "{name}: {answer}");
        assert_eq!(
            answer["result"]["structuredContent"]["value"], "2",
            "{name}"
        );
        clock.check(name, cancelled.elapsed(), Duration::from_millis(300));
        all_is_well_after(relay, name, clock);
    }
}

/// What a person has set of the variables that stopping uses, and how often their debugger opened.
const PERSONS: &str = "(progn (defvar stray 0)
  (setq debugger (lambda (&rest _) (setq stray (1+ stray))) debug-on-event 'sigusr2) nil)";
const PERSONS_AFTER: &str = "(list stray debug-on-quit debug-on-event inhibit-quit quit-flag debug-on-error debug-on-signal (boundp 'debug-on-next-call))";

fn in_a_daemon(stops_every_form: fn(&mut Relay, Clock), clock: Clock) {
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    emacs.ask(PERSONS);
    let before = emacs.ask(PERSONS_AFTER);
    stops_every_form(&mut prepared(&RelayBuilder::to(&emacs)), clock);
    assert_eq!(emacs.ask(PERSONS_AFTER), before);
    assert!(emacs.is_alive());
}

fn in_a_terminal(stops_every_form: fn(&mut Relay, Clock), clock: Clock) {
    let scratch = Scratch::new();
    let terminal = Terminal::start(&scratch);
    terminal.ask(PERSONS);
    let before = terminal.ask(PERSONS_AFTER);
    let builder = RelayBuilder::at(terminal.socket());
    stops_every_form(&mut prepared(&builder), clock);
    assert_eq!(terminal.ask(PERSONS_AFTER), before);
}

#[test]
fn every_form_is_stopped_by_timeout() {
    in_a_daemon(stops_every_form_by_timeout, Clock::Unwatched);
}

#[test]
fn every_form_is_stopped_by_cancel_in_a_terminal() {
    in_a_terminal(stops_every_form_by_cancel, Clock::Unwatched);
}

#[test]
fn timed_every_form_is_stopped_by_timeout() {
    in_a_daemon(stops_every_form_by_timeout, Clock::Watched);
}

#[test]
fn timed_every_form_is_stopped_by_timeout_in_a_terminal() {
    in_a_terminal(stops_every_form_by_timeout, Clock::Watched);
}

#[test]
fn timed_every_form_is_stopped_by_cancel() {
    in_a_daemon(stops_every_form_by_cancel, Clock::Watched);
}

#[test]
fn timed_every_form_is_stopped_by_cancel_in_a_terminal() {
    in_a_terminal(stops_every_form_by_cancel, Clock::Watched);
}

#[test]
fn timed_short_cleanup_forms_finish() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = prepared(&RelayBuilder::to(&emacs));
    let form = "(unwind-protect (while t (tick)) (let ((end (+ (float-time) 0.05))) (while (< (float-time) end))) (setq stop-slow 'finished))";
    let answer = relay.call(json!({ "expression": form, "timeout_ms": 300 }));
    assert_eq!(answer.evaluation(), "interrupted");
    assert_eq!(relay.value("stop-slow"), "finished");
}

#[test]
fn timed_what_cannot_be_stopped_is_unknown_in_time_and_later_calls_work() {
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    let mut relay = prepared(&RelayBuilder::to(&emacs));
    relay.call(json!({ "expression": "(progn (setq stop-huge (make-string 400000000 ?a)) nil)", "timeout_ms": 60_000 }));
    let answer = relay.call(
        json!({ "expression": "(progn (secure-hash 'sha512 stop-huge) 1)", "timeout_ms": 300 }),
    );
    assert_eq!(
        (answer.code(), answer.evaluation()),
        ("evaluation_timeout", "unknown"),
        "{answer:?}"
    );
    assert!(
        answer.envelope["elapsed_ms"].as_u64().unwrap() <= 550,
        "{answer:?}"
    );
    // What waits behind it is told so.
    let behind = relay.call(json!({ "expression": "(setq stop-behind t)", "timeout_ms": 100 }));
    assert_eq!(behind.evaluation(), "not_started", "{behind:?}");
    assert!(
        behind.message().contains("an earlier form of this client"),
        "{}",
        behind.message()
    );
    assert_eq!(
        relay
            .call(json!({ "expression": "(boundp 'stop-behind)", "timeout_ms": 60_000 }))
            .value(),
        "nil"
    );
    relay.value("(setq stop-huge nil)");
    // Another Lisp thread that spins: Emacs lives, and answers when the thread has ended.
    let thread = "(thread-join (make-thread (lambda () (let ((end (+ (float-time) 2))) (while (< (float-time) end))))))";
    let answer = relay.call(json!({ "expression": thread, "timeout_ms": 300 }));
    assert_eq!(answer.code(), "evaluation_timeout", "{answer:?}");
    assert_eq!(
        relay
            .call(json!({ "expression": "'after", "timeout_ms": 60_000 }))
            .value(),
        "after"
    );
    assert!(emacs.is_alive());
}

#[test]
fn the_debugger_never_opens() {
    // B37
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    let answer = relay.eval("(let ((debug-on-error t) (debug-on-signal t)) (car 1))");
    assert_eq!(
        (answer.code(), answer.symbol()),
        ("elisp_error", "wrong-type-argument")
    );
    for form in [
        "(debug)",
        "(let ((debugger 'debug) (debug-on-error t)) (car 1))",
        "(funcall debugger 'debug)",
    ] {
        let answer = relay.eval(form);
        assert!(
            answer.code() == "elisp_error" || answer.code().is_empty(),
            "{form}: {answer:?}"
        );
    }
    emacs.ask("(setq debug-on-error t debug-on-quit t)");
    let answer = relay.eval("(car 1)");
    assert_eq!(answer.symbol(), "wrong-type-argument", "{answer:?}");
    assert_eq!(
        relay.value("(condition-case nil (car 1) (error 'handled))"),
        "handled"
    );
    assert_eq!(relay.value("(get-buffer \"*Backtrace*\")"), "nil");
    assert_eq!(emacs.ask("(list debug-on-error debug-on-quit)"), "(t t)");
    assert!(emacs.is_alive());
}

#[test]
fn a_form_may_set_debug_on_error_for_the_person() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    assert_eq!(relay.value("(setq debug-on-error t)"), "t");
    assert_eq!(emacs.ask("debug-on-error"), "t");
}

/// A counter of its own in each form, and answers that agree with it.
#[test]
fn timed_forms_that_end_when_they_are_stopped_have_ended_or_were_interrupted() {
    const TIMED: u64 = 100;
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = prepared(&RelayBuilder::to(&emacs));
    emacs.ask(PERSONS);
    let before = emacs.ask(PERSONS_AFTER);
    relay.value(&format!("(progn (setq stop-log (make-vector {TIMED} 0))
        (defun busy (ms) (let ((end (+ (float-time) (/ ms 1000.0)))) (while (< (float-time) end)))) nil)"));
    for nth in 0..TIMED {
        let run = 95 + (nth % 12) * 5;
        let form =
            format!("(progn (busy {run}) (aset stop-log {nth} (1+ (aref stop-log {nth}))) {nth})");
        let answer = relay.call(json!({ "expression": form, "timeout_ms": 100 }));
        let count = relay.value(&format!("(aref stop-log {nth})"));
        if answer.code().is_empty() {
            assert_eq!((answer.value(), count.as_str()), (nth.to_string(), "1"));
        } else {
            assert_eq!(answer.evaluation(), "interrupted", "{answer:?}");
            assert!(count == "0" || count == "1", "{count}");
        }
    }
    assert_eq!(emacs.ask(PERSONS_AFTER), before);
}

/// Cancels forms of `run_ms` at `cancel_ms`, so that signals come about when they end. The number
/// of stray calls of the person's debugger; `None` where Emacs doesn't answer any more.
fn race_cancels(
    emacs: &Emacs,
    relay: &mut Relay,
    rounds: u64,
    run_ms: f64,
    cancel_ms: u64,
) -> Option<u64> {
    for nth in 0..rounds {
        let run = run_ms + (nth % 16) as f64 * 0.25;
        let id = relay.begin_call(json!({ "expression": format!("(progn (busy {run}) (setq raced (1+ raced)) {nth})"), "timeout_ms": 10_000 }));
        if cancel_ms > 0 {
            thread::sleep(Duration::from_millis(cancel_ms));
        }
        relay.notify("notifications/cancelled", json!({ "requestId": id }));
    }
    let id = relay.begin_call(json!({ "expression": "'settled", "timeout_ms": 3_000 }));
    loop {
        let answer = relay.receive();
        if answer["id"] == id {
            if answer["result"]["structuredContent"]["value"] != "settled" {
                return None;
            }
            break;
        }
        // An answer that was out before its cancel came is a value.
        assert_eq!(
            answer["result"]["structuredContent"]["ok"], true,
            "{answer}"
        );
    }
    emacs.ask("stray").parse().ok()
}

#[test]
fn a_signal_never_strikes_outside_an_evaluation_and_the_test_would_see_it() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = prepared(&RelayBuilder::to(&emacs));
    emacs.ask(PERSONS);
    let before = emacs.ask(PERSONS_AFTER);
    relay.value("(progn (setq raced 0) (defun busy (ms) (let ((end (+ (float-time) (/ ms 1000.0)))) (while (< (float-time) end)))) nil)");
    let cancels = std::env::var("CANCELS").map_or(2_000, |text| text.parse().expect("a number"));
    assert_eq!(race_cancels(&emacs, &mut relay, cancels, 1.0, 2), Some(0));
    // The first signal comes 30 ms after the cancel.
    assert_eq!(race_cancels(&emacs, &mut relay, 100, 29.0, 0), Some(0));
    assert_eq!(emacs.ask(PERSONS_AFTER), before);
    // The same with the guard taken out: `leave' comes after the bindings have ended, the top-level
    // value of `debug-on-event' stays, and the gap is made wide enough to be hit. It is hit as a call
    // of the person's debugger, or as a quit where that was entered before.
    emacs.ask(
        "(progn (defvar late-key nil)
           (advice-add 'emacs-runtime-mcp-core--stage :around
             (lambda (stage key what) (if (eq what 'leave) (setq late-key key) (funcall stage key what))))
           (advice-add 'emacs-runtime-mcp-core--finish :before
             (lambda (&rest _)
               (when late-key
                 (condition-case nil (busy 200) (quit (setq stray (1+ stray))))
                 (setq late-key nil))))
           nil)",
    );
    let file = scratch.path().join("begun");
    let form = format!("(progn (write-region \"x\" nil {file:?} nil 'quiet) (busy 5))");
    let seen = (0..20).any(|_| {
        let _ = fs::remove_file(&file);
        let id = relay.begin_eval(&form);
        wait_until("the form to run", || file.exists());
        relay.notify("notifications/cancelled", json!({ "requestId": id }));
        emacs.ask("stray") != "0"
    });
    assert!(seen, "without the guard a signal must be seen outside");
}

#[test]
fn what_waits_too_long_or_for_nobody_never_runs() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let mut other = RelayBuilder::to(&emacs).start();
    assert_eq!(relay.value("(setq never 0)"), "0");
    let file = scratch.path().join("runs");
    let form = format!("(progn (write-region \"x\" nil {file:?} nil 'quiet) (while t))");
    other.begin_call(json!({ "expression": form, "timeout_ms": 60_000 }));
    for _ in 0..5 {
        other.begin_call(json!({ "expression": "(setq never (1+ never))", "timeout_ms": 60_000 }));
    }
    wait_until("the form to run", || file.exists());
    let late = relay.call(json!({ "expression": "(setq never (1+ never))", "timeout_ms": 200 }));
    assert_eq!(late.evaluation(), "not_started");
    assert!(
        late.message().contains("another client's form"),
        "{}",
        late.message()
    );
    other.crash();
    let crashed = Instant::now();
    assert_eq!(
        relay
            .call(json!({ "expression": "never", "timeout_ms": 10_000 }))
            .value(),
        "0"
    );
    assert!(
        crashed.elapsed() < Duration::from_secs(1),
        "{:?}",
        crashed.elapsed()
    );
    assert_eq!(relay.value("never"), "0");
}

#[test]
fn running_out_of_stack_is_answered_and_put_right() {
    // B39
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    emacs.ask(PERSONS);
    let look = "(list max-lisp-eval-depth debugger debug-on-event debug-on-signal inhibit-interaction inhibit-quit inhibit-message standard-output emacs-runtime-mcp-eval--running)";
    let before = emacs.ask(look);
    let form = "(let ((max-lisp-eval-depth 1000000) (max-specpdl-size 10000000)) (fset 'b39 (lambda (n) (1+ (b39 n)))) (b39 1))";
    for _ in 0..2 {
        let answer = relay.call(json!({ "expression": form, "timeout_ms": 60_000 }));
        assert_eq!(answer.code(), "elisp_error", "{answer:?}");
        assert_eq!(relay.value("(+ 1 1)"), "2");
        assert_eq!(emacs.ask(look), before);
    }
    // Deep nesting: Emacs before 29 can't read it.
    let deep = format!("(length '{}{})", "(".repeat(40_000), ")".repeat(40_000));
    let answer = relay.call(json!({ "expression": deep, "timeout_ms": 60_000 }));
    if major_version() < 29 {
        assert_eq!(answer.code(), "invalid_expression", "{answer:?}");
        assert!(answer.message().contains("10,000"), "{}", answer.message());
    } else {
        assert_eq!(answer.value(), "1");
    }
    let shallow = format!("(length '{}{})", "(".repeat(5_000), ")".repeat(5_000));
    assert_eq!(
        relay
            .call(json!({ "expression": shallow, "timeout_ms": 60_000 }))
            .value(),
        "1"
    );
    let text = format!("(length \"{}\")", "(".repeat(20_000));
    assert_eq!(relay.value(&text), "20000");
    assert_eq!(relay.value("'after"), "after");
    assert!(emacs.is_alive());
}

#[test]
fn jumps_leave_a_persons_minibuffer_open() {
    // B29
    let scratch = Scratch::new();
    let terminal = Terminal::start(&scratch);
    let mut relay = RelayBuilder::at(terminal.socket()).by("module").start();
    terminal.press("M-x");
    terminal.r#type("find-lib");
    terminal.wait_for_text("M-x find-lib");
    for form in [
        "(throw 'top-level nil)",
        "(top-level)",
        "(throw 'exit nil)",
        "(abort-recursive-edit)",
        "(abort-minibuffers)",
        "(exit-minibuffer)",
    ] {
        let answer = relay.eval(form);
        assert_eq!(answer.code(), "elisp_error", "{form}: {answer:?}");
        assert_eq!(relay.value("(minibuffer-depth)"), "1", "{form}");
    }
    let _ = relay.call(json!({ "expression": "(while t)", "timeout_ms": 300 }));
    assert_eq!(relay.value("(minibuffer-depth)"), "1");
    terminal.r#type("rary");
    terminal.press("Enter");
    terminal.wait_for_text("Library name");
    let answer = relay.eval("(kill-emacs)");
    assert_eq!(
        (answer.code(), answer.evaluation()),
        ("emacs_unavailable", "unknown")
    );
}

#[test]
fn timed_questions_that_nobody_can_answer_end_and_leave_nothing_open() {
    // B41, B43
    let scratch = Scratch::new();
    for start in [Emacs::start, Emacs::start_without_module] {
        let emacs = start(&scratch);
        let mut relay = RelayBuilder::to(&emacs).start();
        for form in [
            "(y-or-n-p \"go? \")",
            "(read-string \"x\")",
            "(read-passwd \"p\")",
            "(read-char \"k\")",
            "(read-key \"k\")",
        ] {
            let answer = relay.call(json!({ "expression": form, "timeout_ms": 500 }));
            assert!(
                ["elisp_error", "evaluation_timeout"].contains(&answer.code()),
                "{form}: {answer:?}"
            );
            assert_ne!(answer.evaluation(), "unknown", "{form}");
            assert_eq!(
                relay.value("(list (minibuffer-depth) (recursion-depth))"),
                "(0 0)",
                "{form}"
            );
        }
        let file = scratch.path().join("b43.txt");
        fs::write(&file, "one\n").unwrap();
        relay.value(&format!(
            "(with-current-buffer (find-file-noselect {file:?}) (insert \"two\") nil)"
        ));
        fs::write(&file, "changed on disk\n").unwrap();
        let answer = relay.call(json!({ "expression": "(with-current-buffer \"b43.txt\" (save-buffer))", "timeout_ms": 1_000 }));
        assert_ne!(answer.code(), "", "{answer:?}");
        assert_eq!(
            relay.value("(list (minibuffer-depth) (recursion-depth))"),
            "(0 0)"
        );
    }
}

#[test]
fn timed_many_timeouts_leave_no_process_and_an_emacs_that_answers() {
    // B44
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    for _ in 0..5 {
        let answer = relay.call(json!({ "expression": "(while t)", "timeout_ms": 500 }));
        assert_eq!(
            (answer.code(), answer.evaluation()),
            ("evaluation_timeout", "interrupted")
        );
        assert!(answer.took < Duration::from_millis(1_500));
    }
    assert_eq!(relay.value("1"), "1");
}

#[test]
fn timed_a_ping_is_answered_while_a_form_runs() {
    // B49
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let id =
        relay.begin_eval("(let ((end (+ (float-time) 0.5))) (while (< (float-time) end)) 'done)");
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(relay.request("ping", json!({}))["result"], json!({}));
        assert!(
            begun.elapsed() < Duration::from_millis(50),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(
        relay.answer_to(id)["result"]["structuredContent"]["value"],
        "done"
    );
}

#[test]
fn a_thousand_calls_behind_a_sleeping_form_are_all_answered() {
    // B83
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let mut ids =
        vec![relay.begin_call(json!({ "expression": "(sleep-for 3)", "timeout_ms": 20_000 }))];
    let padding = "x".repeat(4_000);
    for nth in 0..1_000 {
        ids.push(relay.begin_call(
            json!({ "expression": format!("(progn \"{padding}\" {nth})"), "timeout_ms": 1_000 }),
        ));
    }
    for id in ids {
        let envelope = relay.answer_to(id)["result"]["structuredContent"].clone();
        let code = envelope["error"]["code"].as_str().unwrap_or("");
        assert!(
            ["", "evaluation_timeout", "emacs_unavailable"].contains(&code),
            "{envelope}"
        );
        if !code.is_empty() {
            assert_eq!(
                envelope["error"]["data"]["evaluation"], "not_started",
                "{envelope}"
            );
        }
    }
    assert_eq!(relay.value("1"), "1");
}

#[test]
fn emacs_may_end_during_a_call() {
    // B84
    let scratch = Scratch::new();
    let mut emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let id = relay.begin_eval("(progn (run-at-time 0.1 nil #'kill-emacs) (sleep-for 30))");
    let begun = Instant::now();
    let error = relay.answer_to(id)["result"]["structuredContent"]["error"].clone();
    assert_eq!(
        (error["code"].as_str(), error["data"]["evaluation"].as_str()),
        (Some("emacs_unavailable"), Some("unknown"))
    );
    wait_until("Emacs's end", || !emacs.is_alive());
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(!emacs.module_socket().exists());
}

#[test]
fn a_person_may_stop_everything() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let file = scratch.path().join("runs");
    let first = relay.begin_call(json!({ "expression": format!("(progn (write-region \"x\" nil {file:?} nil 'quiet) (sleep-for 30))"), "timeout_ms": 60_000 }));
    let second =
        relay.begin_call(json!({ "expression": "(setq person-second t)", "timeout_ms": 60_000 }));
    wait_until("the form to run", || file.exists());
    // What else is done within the form's wait isn't cut off with the form.
    let said = emacs.ask(
        "(progn (emacs-runtime-mcp-cancel) (let ((end (+ (float-time) 0.2))) (while (< (float-time) end))) 'whole)",
    );
    assert_eq!(said, "whole");
    for (id, evaluation) in [(first, "interrupted"), (second, "not_started")] {
        let error = relay.answer_to(id)["result"]["structuredContent"]["error"].clone();
        assert_eq!(
            (error["code"].as_str(), error["data"]["symbol"].as_str()),
            (Some("elisp_error"), Some("quit")),
            "{error}"
        );
        assert_eq!(error["data"]["evaluation"], evaluation, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains("person"),
            "{error}"
        );
    }
    assert_eq!(relay.value("(boundp 'person-second)"), "nil");
}

#[test]
fn progress_is_told_to_who_wants_it() {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    let call = |expression: &str, meta: serde_json::Value| json!({ "name": "emacs_eval", "arguments": { "expression": expression, "timeout_ms": 30_000 }, "_meta": meta });
    let first = relay.begin(
        "tools/call",
        call("(sleep-for 5.5)", json!({ "progressToken": "t1" })),
    );
    let second = relay.begin("tools/call", call("'second", json!({ "progressToken": 2 })));
    let third = relay.begin("tools/call", call("'third", json!({})));
    let (mut told, mut answered) = (Vec::new(), Vec::new());
    while answered.len() < 3 {
        let message = relay.receive();
        if message["method"] == "notifications/progress" {
            told.push((
                message["params"]["progressToken"].clone(),
                message["params"]["message"].as_str().unwrap().to_owned(),
            ));
        } else {
            answered.push(message["id"].as_i64().unwrap());
        }
    }
    assert_eq!(answered, [first, second, third]);
    told.sort_by_key(|(token, _)| token.to_string());
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0].0, "t1");
    assert!(told[0].1.contains("runs"), "{told:?}");
    assert_eq!(told[1].0, 2);
    assert!(told[1].1.contains("behind"), "{told:?}");
}

#[test]
fn timed_waits_and_prompts_are_given_back_by_emacsclient_too() {
    let scratch = Scratch::new();
    let emacs = EmacsBuilder::new("t").without_module().start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).start();
    relay.value("1");
    for form in [
        "(sleep-for 30)",
        "(sit-for 30)",
        "(read-key \"k\")",
        "(recursive-edit)",
        "(accept-process-output nil 30)",
    ] {
        let answer = relay.call(json!({ "expression": format!("(unwind-protect {form} (setq given-back '{}))", form.len()), "timeout_ms": 400 }));
        assert_eq!(
            (answer.code(), answer.evaluation()),
            ("evaluation_timeout", "interrupted"),
            "{form}: {answer:?}"
        );
        assert!(
            answer.envelope["elapsed_ms"].as_u64().unwrap() <= 650,
            "{form}"
        );
        assert_eq!(
            relay.value("(list given-back (minibuffer-depth) (recursion-depth))"),
            format!("({} 0 0)", form.len())
        );
    }
    // A loop can't be stopped on this path: it may still run.
    let answer = relay.call(json!({ "expression": "(let ((end (+ (float-time) 1))) (while (< (float-time) end)))", "timeout_ms": 300 }));
    assert_eq!(
        (answer.code(), answer.evaluation()),
        ("evaluation_timeout", "unknown")
    );
    assert_eq!(
        relay
            .call(json!({ "expression": "'after", "timeout_ms": 20_000 }))
            .value(),
        "after"
    );
}
