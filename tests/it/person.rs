//! The person who sits in front of Emacs, in a terminal: they notice nothing but what a form does.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::{Relay, RelayBuilder, Scratch, Terminal, Window, wait_until};
use serde_json::json;

/// The last one goes first: the folder is needed until Emacs has ended.
fn start() -> (Scratch, Terminal, Relay) {
    let scratch = Scratch::new();
    let terminal = Terminal::start(&scratch);
    let relay = RelayBuilder::at(terminal.socket()).by("module").start();
    (scratch, terminal, relay)
}

#[test]
fn somebody_in_the_minibuffer_keeps_what_they_typed() {
    let (_scratch, terminal, mut relay) = start();
    terminal.press("M-x");
    terminal.r#type("find-lib");
    terminal.wait_for_text("M-x find-lib");
    for nth in 0..100 {
        let answer = relay.eval(&format!(
            "(progn (message \"over the prompt %d\" {nth}) (with-current-buffer (get-buffer-create \"other\") (insert \"x\")) (buffer-name))"
        ));
        assert_eq!(answer.value(), "\"*scratch*\"");
    }
    assert_eq!(
        relay.value("(progn (insert \"typed by the form\") (minibuffer-depth))"),
        "1"
    );
    assert_eq!(
        relay.value(
            "(with-current-buffer (window-buffer (minibuffer-window)) (minibuffer-contents))"
        ),
        "\"find-lib\""
    );
    let screen = terminal.screen();
    assert!(screen.contains("M-x find-lib"), "{screen}");
    assert!(!screen.contains("over the prompt"), "{screen}");
    // And it still works: the command runs, and asks for a library.
    terminal.r#type("rary");
    terminal.press("Enter");
    terminal.wait_for_text("Library name");
    terminal.press("C-g");
    wait_until("the prompt's end", || {
        relay.value("(minibuffer-depth)") == "0"
    });
    assert!(
        relay
            .value("(with-current-buffer \"*scratch*\" (buffer-string))")
            .contains("typed by the form")
    );
}

#[test]
fn messages_of_a_form_leave_the_echo_area_alone() {
    let (_scratch, terminal, mut relay) = start();
    terminal.press("M-:");
    terminal.r#type("(message \"the-persons-own\")");
    terminal.press("Enter");
    wait_until("the person's message", || {
        let screen = terminal.screen();
        screen.contains("\"the-persons-own\"") && !screen.contains("Eval:")
    });
    let answer = relay.eval("(progn (message \"from a form\") (sleep-for 0.05) (redisplay) 1)");
    assert_eq!(answer.envelope["output"], "from a form\n");
    wait_until("the person's message alone", || {
        let screen = terminal.screen();
        screen.contains("the-persons-own") && !screen.contains("from a form")
    });
}

#[test]
fn one_undo_takes_back_only_what_was_typed_last() {
    let (_scratch, terminal, mut relay) = start();
    relay.value("(progn (switch-to-buffer \"undo\") (buffer-enable-undo) nil)");
    let text = |relay: &mut Relay| {
        relay.value("(with-current-buffer \"undo\" (buffer-substring-no-properties 1 (point-max)))")
    };
    terminal.r#type("abc");
    wait_until("abc", || text(&mut relay) == "\"abc\"");
    relay.value("(progn (insert \"-form-\") nil)");
    terminal.r#type("def");
    wait_until("def", || text(&mut relay) == "\"abc-form-def\"");
    terminal.press("C-_");
    wait_until("the undo", || text(&mut relay) == "\"abc-form-\"");
    terminal.press("C-_");
    wait_until("the second undo", || text(&mut relay) == "\"abc\"");
    terminal.press("C-_");
    wait_until("the third undo", || text(&mut relay) == "\"\"");
}

#[test]
fn forms_that_change_nothing_do_not_cut_typing_into_undo_steps() {
    let (_scratch, terminal, mut relay) = start();
    relay.value("(progn (switch-to-buffer \"undo\") (buffer-enable-undo) nil)");
    for (nth, letter) in "abcdef".chars().enumerate() {
        terminal.r#type(&letter.to_string());
        wait_until("the letter", || {
            relay.value("(with-current-buffer \"undo\" (buffer-size))") == (nth + 1).to_string()
        });
    }
    terminal.press("C-_");
    wait_until("the undo", || {
        relay.value("(with-current-buffer \"undo\" (buffer-size))") == "0"
    });
}

#[test]
fn the_region_stays_active() {
    let (_scratch, terminal, mut relay) = start();
    relay.value("(progn (switch-to-buffer \"region\") (insert \"abc def\") (goto-char 1) nil)");
    terminal.press("C-Space");
    terminal.press("M-f");
    wait_until("the region", || relay.value("(region-active-p)") == "t");
    relay.value("(with-current-buffer (get-buffer-create \"elsewhere\") (insert \"x\") nil)");
    relay.value("(progn (save-excursion (goto-char (point-max)) (insert \"!\")) nil)");
    assert_eq!(
        relay.value("(list (region-active-p) (region-beginning) (region-end))"),
        "(t 1 4)"
    );
}

#[test]
fn c_g_ends_a_running_form() {
    let (scratch, terminal, mut relay) = start();
    for form in [
        "(while t)",
        "(sleep-for 30)",
        "(call-process \"sleep\" nil nil nil \"30\")",
    ] {
        let file = scratch.path().join("runs");
        let _ = std::fs::remove_file(&file);
        let id = relay.begin_call(json!({
            "expression": format!("(progn (write-region \"x\" nil {file:?} nil 'quiet) {form})"),
            "timeout_ms": 20_000,
        }));
        wait_until("the form to run", || file.exists());
        terminal.press("C-g");
        let error = relay.answer_to(id)["result"]["structuredContent"]["error"].clone();
        assert_eq!(error["code"], "elisp_error", "{form}: {error}");
        assert_eq!(error["data"]["symbol"], "quit", "{form}: {error}");
        assert_eq!(relay.value("(list quit-flag inhibit-quit)"), "(nil nil)");
    }
    // What the form handles is its own.
    let file = scratch.path().join("handled");
    let id = relay.begin_eval(&format!(
        "(condition-case nil (progn (write-region \"x\" nil {file:?} nil 'quiet) (while t)) (quit 42))"
    ));
    wait_until("the form to run", || file.exists());
    terminal.press("C-g");
    assert_eq!(
        relay.answer_to(id)["result"]["structuredContent"]["value"],
        "42"
    );
}

/// A buffer in which each letter's arrival is noted; and `spins`, how often `spin` has to count for a
/// form of 5 ms. It makes no garbage: collecting that takes Emacs longer than the form, and the form
/// isn't over before.
const TYPING: &str = "(progn (defvar typed-at nil) (switch-to-buffer \"typing\")
  (add-hook 'post-self-insert-hook (lambda () (push (float-time) typed-at)))
  (fset 'spin (byte-compile '(lambda (n) (while (> n 0) (setq n (1- n))))))
  (setq spins (let ((n 2000000) (from (float-time)))
                (spin n)
                (round (* n (/ 0.005 (- (float-time) from))))))
  nil)";

/// Types 200 letters; how long each took to arrive in the buffer, sorted, in milliseconds.
fn type_letters(emacs: &Path, typist: &mut dyn FnMut(char)) -> Vec<f64> {
    const LETTERS: usize = 200;
    let ask = |form: &str| harness::ask(emacs, form);
    ask("(progn (setq typed-at nil) (with-current-buffer \"typing\" (erase-buffer)) nil)");
    let mut sent = Vec::new();
    let mut text = String::new();
    for letter in ('a'..='z').cycle().take(LETTERS) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        sent.push(now.as_secs_f64());
        typist(letter);
        text.push(letter);
        // A person's pace, if a fast one's; what is measured is each letter's own way.
        thread::sleep(Duration::from_millis(20));
    }
    wait_until("all letters", || {
        ask("(length typed-at)") == LETTERS.to_string()
    });
    let buffer = ask("(with-current-buffer \"typing\" (buffer-string))");
    assert_eq!(buffer.trim_matches('"'), text, "in order, none lost");
    let arrived =
        ask("(mapconcat (lambda (time) (format \"%.6f\" time)) (reverse typed-at) \" \")");
    let arrived = arrived
        .trim_matches('"')
        .split(' ')
        .map(|time| time.parse::<f64>().expect("a time"));
    let mut delays: Vec<_> = arrived
        .zip(sent)
        .map(|(arrived, sent)| (arrived - sent) * 1_000.0)
        .collect();
    delays.sort_by(f64::total_cmp);
    delays
}

/// Types without and with a client that sends forms of 5 ms without pause.
fn typing_goes_first(emacs: &Path, mut relay: Relay, typist: &mut dyn FnMut(char), where_: &str) {
    relay.value(TYPING);
    let idle = type_letters(emacs, typist);
    let stop = Arc::new(AtomicBool::new(false));
    let flood = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut forms = 0;
            let mut waiting = VecDeque::new();
            while !stop.load(Ordering::SeqCst) {
                waiting.push_back(relay.begin_eval("(spin spins)"));
                if waiting.len() > 4 {
                    relay.answer_to(waiting.pop_front().expect("five"));
                    forms += 1;
                }
            }
            forms
        }
    });
    let loaded = type_letters(emacs, typist);
    stop.store(true, Ordering::SeqCst);
    let forms = flood.join().expect("all answered");
    let at_95 = |delays: &[f64]| delays[delays.len() * 95 / 100];
    let later = at_95(&loaded) - at_95(&idle);
    harness::show(&format!(
        "typing under a flood, {where_}: {later:.1} ms later at the 95th percentile ({:.1} against {:.1})",
        at_95(&loaded),
        at_95(&idle)
    ));
    assert!(forms > 100, "only {forms} forms ran");
    assert!(
        later <= 30.0,
        "{later:.1} ms later at the 95th percentile ({:.1} against {:.1})",
        at_95(&loaded),
        at_95(&idle)
    );
}

#[test]
fn timed_typing_goes_first_in_a_terminal() {
    let (_scratch, terminal, relay) = start();
    let mut typist = terminal.typist();
    typing_goes_first(
        terminal.socket(),
        relay,
        &mut |letter| typist.r#type(letter),
        "in a terminal",
    );
}

#[test]
fn timed_typing_goes_first_in_a_window() {
    let scratch = Scratch::new();
    let window = match Window::start(&scratch) {
        Ok(window) => window,
        Err(why) => return harness::skipped("typing in a graphical Emacs", &why),
    };
    let relay = RelayBuilder::at(window.socket()).by("module").start();
    typing_goes_first(
        window.socket(),
        relay,
        &mut |letter| window.r#type(letter),
        "in a window",
    );
}
