//! One form is read, and nothing runs before that is certain.

on_both_paths! {
    fn what_cannot_be_read_is_an_invalid_expression(on) {
        // B10, and others of its kind.
        for expression in [
            "(a . b c)", "#<buffer x>", r#""\N{NO SUCH}""#, "(list \"abc", "(list 1", ")", "(+ 1 1))",
            "'", "#s(", "?", "(1 . )", "[1 2", "\"\\u{zzzz}\"", "#1=", "(,@)) x",
        ] {
            let answer = on.relay.eval(expression);
            assert_eq!(answer.code(), "invalid_expression", "{expression}: {answer:?}");
            assert_ne!(answer.symbol(), "", "{expression}");
        }
    }

    fn the_first_of_two_forms_has_not_run(on) {
        // B04
        let answer = on.relay.eval("(setq b04 1) (setq b04 2)");
        assert_eq!(answer.code(), "invalid_expression");
        assert!(answer.message().contains("(setq b04 2)"), "{}", answer.message());
        assert!(answer.message().contains("progn"), "{}", answer.message());
        assert_eq!(on.relay.value("(boundp 'b04)"), "nil");
    }

    fn comments_before_the_form_are_fine_and_after_it_are_not(on) {
        // B06, B07
        assert_eq!(on.relay.value("; why\n(+ 1 2)"), "3");
        assert_eq!(on.relay.value(" \n\t(+ 1 2)\n \t\r\n"), "3");
        let answer = on.relay.eval("(+ 1 2) ; sum");
        assert_eq!(answer.code(), "invalid_expression");
        assert!(answer.message().contains("; sum"), "{}", answer.message());
        let answer = on.relay.eval("; x");
        assert_eq!(answer.code(), "invalid_expression");
        assert!(answer.message().contains("comments"), "{}", answer.message());
    }

    fn fences_and_byte_order_marks_evaluate_nothing(on) {
        // B08
        for expression in ["```elisp\n(setq b08 1)\n```", "```\n(setq b08 1)\n```", "\u{feff}(setq b08 1)"] {
            assert_eq!(on.relay.eval(expression).code(), "invalid_expression", "{expression}");
        }
        assert_eq!(on.relay.value("(boundp 'b08)"), "nil");
    }

    fn settings_of_the_reader_change_nothing(on) {
        on.relay.value("(progn (setq-default read-circle nil) nil)");
        assert_eq!(on.relay.value("(let ((x '#1=(a . #1#))) (eq x (cdr x)))"), "t");
    }

    fn symbols_with_odd_characters_survive_the_way(on) {
        assert_eq!(on.relay.value(r"'a\ b&c\\d"), r"a\ b&c\\d");
        assert_eq!(on.relay.value("\"%s %d && -x 'q' `b` $HOME\""), "\"%s %d && -x 'q' `b` $HOME\"");
        assert_eq!(on.relay.value("(length \"\u{0}\u{1}\u{7f}\")"), "3");
        assert_eq!(on.relay.value("-5"), "-5");
    }
}
