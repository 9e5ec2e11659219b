//! Values: printed as `prin1-to-string` does, counted in Emacs characters, cut after as many as asked.

use serde_json::json;

on_both_paths! {
    fn a_value_comes_with_its_length(on) {
        let answer = on.relay.eval("(list 1 \"two\" 'three)");
        assert_eq!(answer.envelope["value"], "(1 \"two\" three)");
        assert_eq!(answer.envelope["truncated"], false);
        assert_eq!(answer.envelope["original_chars"], 15);
    }

    fn characters_are_counted_as_emacs_counts_them(on) {
        // One glyph may be several characters, and a character several bytes.
        for (text, chars) in [("é", 3), ("e\u{301}", 4), ("👩‍💻", 5), ("日本語", 5), ("\u{10ffff}", 3)] {
            let answer = on.relay.eval(&format!("\"{text}\""));
            assert_eq!(answer.value(), format!("\"{text}\""));
            assert_eq!(answer.envelope["original_chars"], chars, "{text}");
            assert_eq!(on.relay.value(&format!("(length \"{text}\")")), (chars - 2).to_string());
        }
    }

    fn cutting_is_between_characters(on) {
        // B23
        let answer = on.relay.call(json!({ "expression": "(make-string 100 ?é)", "max_output_chars": 10 }));
        assert_eq!(answer.value(), format!("\"{}", "é".repeat(9)));
        assert_eq!(answer.envelope["truncated"], true);
        assert_eq!(answer.envelope["original_chars"], 102);
        for (max, value) in [(1, "\""), (2, "\"👩"), (3, "\"👩\u{200d}"), (4, "\"👩\u{200d}💻")] {
            let answer = on.relay.call(json!({ "expression": "\"👩‍💻\"", "max_output_chars": max }));
            assert_eq!(answer.value(), value);
        }
        let answer = on.relay.call(json!({ "expression": "\"日本語\"", "max_output_chars": 5 }));
        assert_eq!((answer.value().as_str(), &answer.envelope["truncated"]), ("\"日本語\"", &json!(false)));
    }

    fn long_values_are_cut_and_counted(on) {
        // B26
        let answer = on.relay.call(json!({ "expression": "(make-string 3000000 ?a)", "timeout_ms": 60_000 }));
        assert_eq!(answer.value().len(), 65_536);
        assert_eq!(answer.envelope["original_chars"], 3_000_002);
        let answer = on.relay.call(json!({
            "expression": "(make-string 262142 ?é)", "max_output_chars": 262_144, "timeout_ms": 60_000,
        }));
        assert_eq!(answer.value(), format!("\"{}\"", "é".repeat(262_142)));
        assert_eq!(answer.envelope["truncated"], false);
    }

    fn a_reply_over_the_ceiling_is_refused_whole(on) {
        let expression = "(make-string 262140 1)";
        let answer = on.relay.call(json!({ "expression": expression, "max_output_chars": 262_144, "timeout_ms": 60_000 }));
        assert_eq!(answer.code(), "output_too_large");
        assert!(answer.message().contains("1048576"), "{}", answer.message());
        let answer = on.relay.call(json!({ "expression": expression, "max_output_chars": 100_000, "timeout_ms": 60_000 }));
        assert_eq!(answer.value().chars().count(), 100_000);
    }

    fn text_is_exact(on) {
        // B22, B16, and others of their kind.
        assert_eq!(on.relay.value(r#""l1\nl2\ttab""#), "\"l1\nl2\ttab\"");
        assert_eq!(on.relay.eval(r#""l1\nl2\ttab""#).envelope["original_chars"], 11);
        assert_eq!(on.relay.value("(propertize \"x\" 'face 'bold)"), "#(\"x\" 0 1 (face bold))");
        assert_eq!(on.relay.value(r#""quote \" backslash \\ percent % amp &""#), r#""quote \" backslash \\ percent % amp &""#);
        assert_eq!(on.relay.value("(string 13 10 27 127)"), "\"\r\n\u{1b}\u{7f}\"");
        assert_eq!(on.relay.value("\"a\u{2028}b\u{2029}c\u{85}d\""), "\"a\u{2028}b\u{2029}c\u{85}d\"");
    }

    fn settings_of_the_printer_change_nothing(on) {
        // B11
        on.relay.value(
            "(progn (setq-default print-length 3 print-level 2 print-escape-newlines t print-quoted nil
                      print-escape-control-characters t float-output-format \"%.1f\") nil)",
        );
        assert_eq!(on.relay.value("(list 1 2 3 4 '(a (b (c))) ''q \"\n\" 1.25)"), "(1 2 3 4 (a (b (c))) 'q \"\n\" 1.25)");
    }

    fn coding_systems_change_nothing(on) {
        // B60
        on.relay.value("(progn (set-default-coding-systems 'gbk) nil)");
        let answer = on.relay.eval("\"é漢😀\"");
        assert_eq!((answer.value().as_str(), &answer.envelope["original_chars"]), ("\"é漢😀\"", &json!(5)));
    }
}
