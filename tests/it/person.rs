//! The person who sits in front of Emacs, in a terminal: they notice nothing but what a form does.

use harness::{Relay, RelayBuilder, Scratch, Terminal, wait_until};

/// The last one goes first: the folder is needed until Emacs has ended.
fn start() -> (Scratch, Terminal, Relay) {
    let scratch = Scratch::new();
    let terminal = Terminal::start(&scratch);
    let relay = RelayBuilder::new()
        .arg("--socket-name")
        .arg(terminal.socket())
        .arg("--transport")
        .arg("module")
        .start();
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
