//! Signals, throws and other ways not to return a value.

on_both_paths! {
    fn a_signal_has_its_symbol_and_message(on) {
        let answer = on.relay.eval("missing-variable");
        assert_eq!((answer.code(), answer.symbol()), ("elisp_error", "void-variable"));
        assert!(answer.message().contains("missing-variable"), "{}", answer.message());
        let answer = on.relay.eval("(car 1)");
        assert_eq!((answer.code(), answer.symbol()), ("elisp_error", "wrong-type-argument"));
    }

    fn a_condition_of_ones_own_keeps_its_name(on) {
        // B36
        let answer = on.relay.eval("(progn (define-error 'b36 \"B36\" 'file-error) (signal 'b36 '(\"a\" b 3)))");
        assert_eq!((answer.code(), answer.symbol()), ("elisp_error", "b36"));
        let message = on.relay.value("(error-message-string '(b36 \"a\" b 3))");
        assert_eq!(format!("\"{}\"", answer.message()), message);
    }

    fn what_the_form_handles_is_no_error(on) {
        assert_eq!(on.relay.value("(condition-case nil (car 1) (wrong-type-argument 'handled))"), "handled");
        assert_eq!(on.relay.value("(catch 'here (throw 'here 5))"), "5");
        assert_eq!(on.relay.value("(ignore-errors (error \"x\"))"), "nil");
    }

    fn a_throw_to_nobody_is_an_error(on) {
        // B30
        let answer = on.relay.eval("(throw 'b30 1)");
        assert_eq!((answer.code(), answer.symbol()), ("elisp_error", "no-catch"));
    }

    fn the_command_loops_own_jumps_stay_inside(on) {
        for form in ["(throw 'top-level nil)", "(top-level)", "(throw 'exit nil)", "(throw 'exit t)"] {
            let answer = on.relay.eval(form);
            assert_eq!((answer.code(), answer.symbol()), ("elisp_error", "no-catch"), "{form}");
        }
    }

    fn a_quit_is_an_error_of_its_name(on) {
        // B33
        for (form, symbol) in [("(keyboard-quit)", "quit"), ("(signal 'minibuffer-quit nil)", "minibuffer-quit")] {
            let answer = on.relay.eval(form);
            assert_eq!((answer.code(), answer.symbol()), ("elisp_error", symbol));
        }
    }

    fn odd_signals_are_answered(on) {
        // B31
        for (form, symbol) in [("(signal 'b31 \"text\")", "b31"), ("(signal 'error '(a . b))", "error"),
                               ("(signal 'error nil)", "error"), ("(error \"\")", "error")] {
            let answer = on.relay.eval(form);
            assert_eq!((answer.code(), answer.symbol()), ("elisp_error", symbol), "{form}");
        }
        let answer = on.relay.eval(r#"(error "bad %s\n100%%" "é")"#);
        assert_eq!(answer.message(), "bad é\n100%");
        let answer = on.relay.eval("(error (make-string 10000 ?x))");
        assert_eq!(answer.message().len(), 4_096);
    }

    fn a_prompt_is_an_error_at_once(on) {
        for form in ["(y-or-n-p \"go? \")", "(read-string \"x\")", "(read-char \"k\")", "(completing-read \"c\" nil)", "(yes-or-no-p \"sure? \")"] {
            let answer = on.relay.eval(form);
            assert_eq!((answer.code(), answer.symbol()), ("elisp_error", "inhibited-interaction"), "{form}");
        }
        assert_eq!(on.relay.value("(minibuffer-depth)"), "0");
        assert_eq!(on.relay.value("(progn (sit-for 0.01) (sleep-for 0.01) 'waited)"), "waited");
    }
}
