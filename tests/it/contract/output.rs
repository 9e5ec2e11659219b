//! What a form prints and messages: beside the value, never in it, and never on the relay's stdout.

on_both_paths! {
    fn output_is_beside_the_value_in_order(on) {
        // B28
        let answer = on.relay.eval("(progn (princ \"A\") (message \"m %d\" 1) (print \"B\") 'v)");
        assert_eq!(answer.value(), "v");
        assert_eq!(answer.envelope["output"], "Am 1\n\n\"B\"\n");
        assert!(on.relay.eval("1").envelope.get("output").is_none());
    }

    fn messages_are_also_logged(on) {
        on.relay.value("(progn (message \"logged-here é\") nil)");
        assert_eq!(on.emacs.ask("(with-current-buffer \"*Messages*\" (and (string-match-p \"logged-here é\" (buffer-string)) t))"), "t");
    }

    fn equal_messages_are_told_apart(on) {
        for _ in 0..2 {
            let answer = on.relay.eval("(dotimes (_ 3) (message \"same\"))");
            assert_eq!(answer.envelope["output"], "same\nsame\nsame\n");
        }
    }

    fn a_chatty_form_keeps_the_beginning(on) {
        // B54
        let answer = on.relay.call(serde_json::json!({
            "expression": "(progn (princ \"NOISE\\n\" #'external-debugging-output) (send-string-to-terminal \"NOISE\\n\") (dotimes (i 20000) (message \"m %d\" i)) 1)",
            "timeout_ms": 60_000,
        }));
        assert_eq!(answer.value(), "1");
        let output = answer.envelope["output"].as_str().unwrap();
        assert_eq!(output.chars().count(), 16_384);
        assert!(output.starts_with("m 0\nm 1\nm 2\n"), "{}", &output[..40]);
        assert!(on.emacs.ask("(with-current-buffer \"*Messages*\" (count-lines 1 (point-max)))").parse::<u32>().unwrap() >= 1_000);
    }

    fn a_person_without_a_message_log_keeps_none(on) {
        on.emacs.ask("(progn (setq message-log-max nil) nil)");
        let before = on.emacs.ask("(with-current-buffer (messages-buffer) (buffer-size))");
        let answer = on.relay.eval("(progn (message \"unlogged\") 1)");
        assert_eq!(answer.envelope["output"], "unlogged\n");
        assert_eq!(on.emacs.ask("(with-current-buffer (messages-buffer) (buffer-size))"), before);
    }
}
