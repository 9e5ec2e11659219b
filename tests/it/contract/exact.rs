//! Every value and every error, exactly and within bounds: one valid line, right to the character.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

/// Sends one evaluation and returns the raw line of its answer.
fn raw_line(on: &mut crate::contract::Fixture, expression: &str) -> String {
    let id = on.relay.begin_eval(expression);
    let line = on.relay.receive_line();
    let message: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(message["id"], id);
    line
}

on_both_paths! {
    fn cycles_and_depth_print_as_emacs_prints_them(on) {
        // B13, B15
        let answer = on.relay.eval("(let ((x (list 1 2))) (setcdr (cdr x) x) x)");
        assert_eq!(answer.code(), "");
        assert!(answer.took < Duration::from_secs(1));
        for levels in [150, 250, 100_000] {
            let nested = format!("(let (x) (dotimes (_ {levels}) (setq x (list x))) x)");
            let plain = on.emacs.ask(&format!("(condition-case e (length (prin1-to-string {nested})) (error (car e)))"));
            let answer = on.relay.call(json!({ "expression": nested, "timeout_ms": 60_000 }));
            if answer.code().is_empty() {
                assert_eq!(answer.envelope["original_chars"].to_string(), plain);
            } else {
                assert_eq!((answer.code(), answer.symbol()), ("elisp_error", plain.as_str()));
            }
        }
    }

    fn what_text_cannot_carry_is_replaced_and_counted_before(on) {
        // B18, B20, B34
        let line = raw_line(on, "(string #xd800 ?a)");
        assert!(!line.contains("\\ud8") && line.contains('\u{fffd}'), "{line}");
        let answer = on.relay.eval("(string #xd800 ?a)");
        assert_eq!((answer.value().as_str(), &answer.envelope["original_chars"]), ("\"\u{fffd}a\"", &json!(4)));
        assert!(raw_line(on, "(string 0 ?a)").contains("\\u0000a"));
        let answer = on.relay.eval("(string 0 ?a)");
        assert_eq!((answer.value().as_str(), &answer.envelope["original_chars"]), ("\"\0a\"", &json!(4)));
        assert_eq!(on.relay.value("(concat \"é\" \"\\377\")"), "\"é\\377\"");
        assert_eq!(on.relay.value("\"\\377\\300\""), "\"\\377\\300\"");
        assert_eq!(on.relay.value("(intern (string #x3fffff))"), "\\377");
        let answer = on.relay.eval("(error \"bad %s\\n100%%\" (concat \"\\377\" \"é\"))");
        assert_eq!(answer.message(), "bad \\377é\n100%");
        let answer = on.relay.eval("(signal (intern (string #xd800)) nil)");
        assert_eq!(answer.symbol(), "\u{fffd}");
    }

    fn no_character_splits_the_line(on) {
        // B21
        let line = raw_line(on, "\"a\u{2028}b\u{2029}c\u{85}d\"");
        assert!(!line.contains(['\u{2028}', '\u{2029}', '\u{85}']), "{line}");
        assert_eq!(on.relay.value("\"a\u{2028}b\u{2029}c\u{85}d\""), "\"a\u{2028}b\u{2029}c\u{85}d\"");
    }

    fn a_slow_reader_gets_the_whole_line(on) {
        // B25
        let mut child = on.builder.command().spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut send = |message: Value| std::io::Write::write_all(&mut stdin, format!("{message}\n").as_bytes()).unwrap();
        send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "slow", "version": "0" } } }));
        send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "emacs_eval",
            "arguments": { "expression": "(make-string 200000 ?a)", "max_output_chars": 262_144 } } }));
        let mut stdout = child.stdout.take().unwrap();
        let (mut all, mut piece) = (Vec::new(), [0; 1024]);
        while all.iter().filter(|&&byte| byte == b'\n').count() < 2 {
            let count = stdout.read(&mut piece).unwrap();
            assert!(count > 0, "the end before the second line");
            all.extend_from_slice(&piece[..count]);
            std::thread::sleep(Duration::from_micros(500));
        }
        let text = String::from_utf8(all).unwrap();
        let message: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        assert_eq!(message["result"]["structuredContent"]["original_chars"], 200_002);
        drop(stdin);
        child.wait().unwrap();
    }

    fn replies_around_the_ceiling_are_whole_or_refused(on) {
        for (form, fits) in [("(make-string 262142 ?😀)", false), ("(make-string 262142 7)", false),
                             ("(make-string 262142 ?a)", true), ("(make-string 262142 ?é)", true), ("(make-string 262142 ?日)", true),
                             ("(make-string 200000 ?😀)", true), ("(make-string 150000 7)", true)] {
            let answer = on.relay.call(json!({ "expression": form, "max_output_chars": 262_144, "timeout_ms": 60_000 }));
            if fits {
                assert_eq!(answer.envelope["truncated"], false, "{form}");
            } else {
                assert_eq!(answer.code(), "output_too_large", "{form}");
            }
        }
        assert_eq!(on.relay.value("1"), "1");
    }

    fn an_error_has_the_forms_own_frames(on) {
        on.relay.value("(progn (defun bt-inner (x) (car x)) (defun bt-outer (x) (1+ (bt-inner x))) nil)");
        let answer = on.relay.eval("(progn (ignore-errors (error \"handled\")) (bt-outer 'seven))");
        let backtrace = answer.envelope["error"]["data"]["backtrace"].as_str().unwrap();
        let lines: Vec<_> = backtrace.lines().collect();
        assert!(lines.contains(&"bt-inner(seven)") && lines.contains(&"bt-outer(seven)"), "{backtrace}");
        assert!(!backtrace.contains("emacs-runtime-mcp"), "{backtrace}");
        let answer = on.relay.eval("(progn (defun bt-deep (n x) (if (= n 0) (car 1) (1+ (bt-deep (1- n) x)))) (bt-deep 80 (make-string 5000 ?y)))");
        let backtrace = answer.envelope["error"]["data"]["backtrace"].as_str().unwrap();
        assert!(backtrace.chars().count() <= 8_192 && backtrace.starts_with("car(1)"), "{backtrace}");
        let depth = on.emacs.ask("max-lisp-eval-depth");
        assert_eq!(on.relay.call(json!({ "timeout_ms": 60_000, "expression": "(progn (fset 'bt-loop (lambda (n) (bt-loop (1+ n)))) (bt-loop 0))" })).code(), "elisp_error");
        assert_eq!(on.emacs.ask("max-lisp-eval-depth"), depth);
        assert_eq!(on.relay.value("(let ((n 0)) (dotimes (_ 2000) (ignore-errors (car 1)) (setq n (1+ n))) n)"), "2000");
    }

    fn advice_and_debugging_options_change_nothing(on) {
        on.emacs.ask("(progn (setq comp-enable-subr-trampolines nil native-comp-enable-subr-trampolines nil) (advice-add 'prin1-to-string :override (lambda (&rest _) \"advised\")) (advice-add 'error-message-string :override (lambda (&rest _) \"\")) nil)");
        assert_eq!(on.relay.value("(list 1 \"two\")"), "(1 \"two\")");
        let answer = on.relay.eval("(car 1)");
        assert!(!answer.message().is_empty());
    }

    fn a_throw_a_quit_and_a_value(on) {
        // B81
        assert_eq!(on.relay.eval("(throw 'b81 1)").symbol(), "no-catch");
        assert_eq!(on.relay.eval("(keyboard-quit)").symbol(), "quit");
        assert_eq!(on.relay.value("'b81"), "b81");
    }

    fn a_lone_surrogate_in_a_request_is_answered(on) {
        // B100
        on.relay.send_line(r#"{"jsonrpc":"2.0","id":700,"method":"tools/call","params":{"name":"emacs_eval","arguments":{"expression":"\"\ud83d\""}}}"#);
        assert_eq!(on.relay.answer_to(700)["error"]["code"], -32700);
        assert_eq!(on.relay.value("(length \"\u{0}\")"), "1");
    }
}
