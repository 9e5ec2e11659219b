//! The live state of Emacs, and what the person has of it.

use harness::wait_until;
use serde_json::json;

on_both_paths! {
    fn state_lives_across_calls_and_relays(on) {
        on.relay.value("(progn (setq state-counter 41) (defun state-next () (setq state-counter (1+ state-counter))))");
        assert_eq!(on.relay.value("(state-next)"), "42");
        assert_eq!(on.builder.start().value("(state-next)"), "43");
        assert_eq!(on.emacs.ask("state-counter"), "43");
    }

    fn the_current_buffer_is_the_selected_windows(on) {
        // B56
        let notes = on.scratch.path().join("notes.org");
        on.emacs.ask(&format!("(progn (set-window-buffer (selected-window) (let (auto-mode-alist) (find-file-noselect {notes:?}))) nil)"));
        assert_eq!(on.relay.value("(buffer-name)"), "\"notes.org\"");
        assert_eq!(on.relay.value("buffer-file-name"), format!("{notes:?}"));
    }

    fn a_form_may_unbind_what_is_bound_around_forms(on) {
        for variable in ["float-output-format", "print-gensym", "current-prefix-arg", "debug-ignored-errors", "max-specpdl-size"] {
            assert_eq!(on.relay.eval(&format!("(makunbound '{variable})")).code(), "", "{variable}");
            assert_eq!(on.relay.value("(list 1.5 'a)"), "(1.5 a)", "after {variable}");
        }
    }

    fn binding_is_lexical(on) {
        // B59
        assert_eq!(on.relay.value("(mapcar (let ((k 1)) (lambda (x) (+ x k))) '(1 2))"), "(2 3)");
        assert_eq!(on.relay.value("(let ((x 1)) (let ((f (lambda () x))) (let ((x 2)) (funcall f))))"), "1");
    }

    fn what_the_person_has_is_as_before(on) {
        // B55
        let look = "(list (selected-window) (current-buffer) (point) (mark t) mark-active (match-data) this-command last-command)";
        on.emacs.ask("(with-current-buffer \"*scratch*\" (insert \"abc abc\") (set-mark 2) (string-match \"b\" \"ab\") nil)");
        let observe = format!("(with-current-buffer \"*scratch*\" (string-match \"b\" \"xab\") (format \"%S\" {look}))");
        let before = on.emacs.ask(&observe);
        for form in [
            "(with-current-buffer (get-buffer-create \"b55\") (insert \"x\") (string-match \"x\" \"x\"))",
            "(progn (string-match \"[0-9]+\" \"a77\") (setq this-command 'odd last-command 'odd) nil)",
            "(progn (set-buffer (get-buffer-create \"b55\")) (goto-char 1) (insert \"y\"))",
        ] {
            assert_eq!(on.relay.eval(form).code(), "", "{form}");
            assert_eq!(on.emacs.ask(&observe), before, "{form}");
        }
    }

    fn a_forms_changes_are_an_undo_step_of_their_own(on) {
        on.emacs.ask("(with-current-buffer \"*scratch*\" (buffer-enable-undo) (erase-buffer) (undo-boundary) (insert \"abc\") nil)");
        on.relay.value("(with-current-buffer \"*scratch*\" (goto-char (point-max)) (insert \"-form-\") nil)");
        on.emacs.ask("(with-current-buffer \"*scratch*\" (goto-char (point-max)) (insert \"def\") (undo-boundary) nil)");
        let undo = "(with-current-buffer \"*scratch*\" (setq last-command nil) (undo) (buffer-substring-no-properties (point-min) (point-max)))";
        assert_eq!(on.emacs.ask(undo), "\"abc-form-\"");
    }

    fn nothing_is_left_behind(on) {
        let symbols = "(let (found) (mapatoms (lambda (s) (and (string-prefix-p \"emacs-runtime-mcp\" (symbol-name s)) (or (fboundp s) (boundp s) (symbol-plist s)) (push s found)))) (sort found #'string<))";
        let before = on.emacs.ask(symbols);
        assert_eq!(on.relay.value("(progn (message \"x\") (sit-for 0.01) 1)"), "1");
        assert_eq!(on.relay.eval("(car 1)").code(), "elisp_error");
        assert_eq!(on.emacs.ask(symbols), before);
        assert_eq!(on.emacs.ask("(boundp 'current-load-list)"), "t");
        let timers = "(length timer-list)";
        let timers_before = on.emacs.ask(timers);
        on.relay.value("1");
        assert_eq!(on.emacs.ask(timers), timers_before);
        let folder = on.emacs.socket().parent().unwrap().to_owned();
        let pid = on.relay.pid();
        on.relay.close_input();
        assert!(on.relay.wait().success());
        wait_until("the relay's folder to be gone", || {
            let entries = std::fs::read_dir(&folder).unwrap().flatten();
            entries.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(&format!("mcp-{pid}-")))
        });
    }

    fn a_long_expression_leaves_no_file(on) {
        let text = "x".repeat(50_000);
        let answer = on.relay.call(json!({ "expression": format!("(length \"{text}\")"), "timeout_ms": 60_000 }));
        assert_eq!(answer.value(), "50000");
        let folder = on.emacs.socket().parent().unwrap().to_owned();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                assert_eq!(std::fs::read_dir(entry.path()).unwrap().count(), 0, "{entry:?}");
            }
        }
    }
}
