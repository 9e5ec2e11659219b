//! What runs in a form's wait and isn't the form, a timer or a filter, may end when the form is
//! stopped, although a signal strikes it.

use harness::{Emacs, RelayBuilder, Scratch};
use serde_json::json;

/// When the forms are stopped, in milliseconds. The guests begin 50 before that and end 50 after it;
/// the first signal comes 30 after it.
const TIMEOUT_MS: u64 = 300;

const ROUNDS: usize = 8;

/// Stops `form` by timeout again and again; how many of its guests have come to their end. None is to
/// see a quit that wasn't meant for it.
fn spared(form: &str) -> usize {
    let scratch = Scratch::new();
    let emacs = Emacs::start(&scratch);
    let mut relay = RelayBuilder::to(&emacs).by("module").start();
    relay.value("(progn (defvar guests 0) (defvar guest-quits 0) (defun guest-works () (let ((end (+ (float-time) 0.1))) (while (< (float-time) end) (condition-case nil (list 1) (quit (setq guest-quits (1+ guest-quits)))))) (setq guests (1+ guests))))");
    for _ in 0..ROUNDS {
        let answer = relay.call(json!({ "expression": form, "timeout_ms": TIMEOUT_MS }));
        // On a busy machine perhaps later than an answer may come.
        assert_eq!(answer.code(), "evaluation_timeout", "{answer:?}");
    }
    assert_eq!(relay.value("guest-quits"), "0");
    relay.value("guests").parse().expect("a number")
}

#[test]
fn a_timer_may_end() {
    let count = spared("(progn (run-at-time 0.25 nil #'guest-works) (sit-for 30))");
    // On a busy machine one may take too long.
    assert!(count >= ROUNDS - 2, "{count} of {ROUNDS}");
}

#[test]
fn a_filter_may_end() {
    let count = spared(
        "(progn
      (make-process :name \"guest\" :noquery t :connection-type 'pipe
                    :command '(\"sh\" \"-c\" \"sleep 0.24; echo x\")
                    :filter (lambda (_ _) (guest-works)))
      (sleep-for 30))",
    );
    assert!(count >= ROUNDS - 2, "{count} of {ROUNDS}");
}
