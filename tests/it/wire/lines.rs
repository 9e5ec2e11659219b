//! Lines that are no message, or almost none. Whatever is wrong with one, the session goes on, and
//! where an id can be found, it is answered.

use serde_json::{Value, json};

use super::{answers, without_emacs};

/// A call of `emacs_eval` with this text between the quotes of its expression.
fn call(id: &str, expression: &[u8]) -> Vec<u8> {
    let before = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"emacs_eval","arguments":{{"expression":""#
    );
    [before.as_bytes(), expression, br#""}}}"#].concat()
}

fn nested(depth: usize) -> Vec<u8> {
    let (open, close) = ("[".repeat(depth), "]".repeat(depth));
    format!(r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":"emacs_eval","arguments":{{"x":{open}{close}}}}},"id":5005}}"#).into_bytes()
}

#[test]
fn what_has_an_id_is_answered_with_it_and_the_session_goes_on() {
    // B92, B93, B94
    let mut relay = without_emacs().start();
    let cases: Vec<(Vec<u8>, Value, i64)> = vec![
        (
            br#"{"jsonrpc":"2.0","id":5005,"method":"tools/call","params":{"name":"emacs"#.to_vec(),
            json!(5005),
            -32700,
        ),
        (
            br#"{"id":"five","method":"ping","jsonrpc""#.to_vec(),
            json!("five"),
            -32700,
        ),
        (call("5005", br"\ud83d"), json!(5005), -32700),
        (call("5005", b"\xff\xfe"), json!(5005), -32700),
        (nested(200), json!(5005), -32700),
        (nested(100_000), json!(5005), -32700),
        (
            br#"{"jsonrpc":"1.0","id":5005,"method":"ping"}"#.to_vec(),
            json!(5005),
            -32600,
        ),
        (
            br#"{"id":5005,"method":"ping"}"#.to_vec(),
            json!(5005),
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":5005}"#.to_vec(),
            json!(5005),
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":5005,"method":7}"#.to_vec(),
            json!(5005),
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":5005,"method":"ping","method":"ping"}"#.to_vec(),
            json!(5005),
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_vec(),
            Value::Null,
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.to_vec(),
            Value::Null,
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#.to_vec(),
            Value::Null,
            -32600,
        ),
        (
            br#"{"jsonrpc":"2.0","id":{"x":1},"method":"ping"}"#.to_vec(),
            Value::Null,
            -32600,
        ),
        (
            br#"[{"jsonrpc":"2.0","id":5005,"method":"ping"}]"#.to_vec(),
            Value::Null,
            -32600,
        ),
        (b"[]".to_vec(), Value::Null, -32600),
        (b"7".to_vec(), Value::Null, -32600),
        (br#""ping""#.to_vec(), Value::Null, -32600),
        (
            br#"{"jsonrpc":"2.0","id":5005,"method":"no/such"}"#.to_vec(),
            json!(5005),
            -32601,
        ),
    ];
    for (line, id, code) in cases {
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        let answered = answers(&mut relay, line);
        assert_eq!(answered.len(), 1, "{shown}: {answered:?}");
        // Without an id the key is left out: some clients refuse a null.
        assert_eq!(
            answered[0].get("id").cloned().unwrap_or_default(),
            id,
            "{shown}: {answered:?}"
        );
        assert!(
            id != Value::Null || answered[0].get("id").is_none(),
            "{answered:?}"
        );
        assert_eq!(answered[0]["error"]["code"], code, "{shown}: {answered:?}");
    }
}

#[test]
fn what_asks_nothing_is_answered_with_nothing() {
    // B89, B93
    let mut relay = without_emacs().start();
    for line in [
        "",
        " \t ",
        "\r",
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/no/such","params":{"x":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":77,"error":{"code":-1,"message":"x"}}"#,
    ] {
        assert_eq!(answers(&mut relay, line), Vec::<Value>::new(), "{line}");
    }
    for garbage in [
        &b"not json"[..],
        b"\x00\x01\x02\xff\xfe",
        b"{",
        b"}",
        b"\xef\xbb\xbf",
    ] {
        let answered = answers(&mut relay, garbage);
        assert!(answered.len() <= 1, "{answered:?}");
        assert!(
            answered
                .iter()
                .all(|answer| answer["error"]["code"] == -32700),
            "{answered:?}"
        );
    }
    assert_eq!(relay.stderr(), "");
}

#[test]
fn byte_order_marks_and_returns_are_no_part_of_a_message() {
    // B93
    let mut relay = without_emacs().spawn();
    relay.send_line("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"bom\",\"method\":\"ping\"}\r");
    assert_eq!(
        relay.receive(),
        json!({ "jsonrpc": "2.0", "id": "bom", "result": {} })
    );
    relay.initialize("2025-11-25");
    let answered = answers(
        &mut relay,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"again\",\"method\":\"ping\"}\r",
    );
    assert_eq!(answered[0]["id"], "again");
}

#[test]
fn an_id_comes_back_as_it_was_where_it_can() {
    let mut relay = without_emacs().start();
    for (id, back) in [
        ("1.0", json!(1)),
        ("\"abc\"", json!("abc")),
        ("-7", json!(-7)),
        ("0", json!(0)),
        ("\"\"", json!("")),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let answered = answers(&mut relay, line);
        assert_eq!(
            answered,
            [json!({ "jsonrpc": "2.0", "id": back, "result": {} })]
        );
    }
}

#[test]
fn a_line_over_the_limit_is_refused_by_its_id_wherever_that_stands() {
    let mut relay = without_emacs().start();
    for id_first in [true, false] {
        let text = "x".repeat(9 * 1024 * 1024);
        let line = if id_first {
            format!(
                r#"{{"jsonrpc":"2.0","id":5005,"method":"tools/call","params":{{"x":"{text}"}}}}"#
            )
        } else {
            format!(
                r#"{{"method":"tools/call","params":{{"x":"{text}","id":6}},"jsonrpc":"2.0","id":5005}}"#
            )
        };
        let answered = answers(&mut relay, line);
        assert_eq!(
            (&answered[0]["id"], &answered[0]["error"]["code"]),
            (&json!(5005), &json!(-32600))
        );
        let message = answered[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("8388608"), "{message}");
    }
    // The longest valid call isn't near it: each character as two escapes.
    let text = br"\ud83d\ude00".repeat(262_140);
    let line = call("7007", &[br#"\""#, &text[..], br#"\""#].concat());
    let answered = answers(&mut relay, line);
    assert_eq!(
        answered[0]["result"]["structuredContent"]["error"]["code"], "emacs_unavailable",
        "{answered:?}"
    );
}

#[test]
fn keys_that_stand_twice_in_the_arguments_are_the_callers_mistake() {
    let mut relay = without_emacs().start();
    let line = r#"{"jsonrpc":"2.0","id":5005,"method":"tools/call","params":{"name":"emacs_eval","arguments":{"expression":"1","expression":"2"}}}"#;
    let error = answers(&mut relay, line)[0]["result"]["structuredContent"]["error"].clone();
    assert_eq!(error["code"], "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("expression"));
}

#[test]
fn a_call_that_could_be_one_of_two_is_neither() {
    let mut relay = without_emacs().start();
    for (params, code) in [
        (
            r#""name":"emacs_eval","arguments":{"expression":"1"},"arguments":{"expression":"2"}"#,
            -32602,
        ),
        (
            r#""name":"other","name":"emacs_eval","arguments":{"expression":"1"}"#,
            -32602,
        ),
        (
            r#""name":"emacs_eval","arguments":{"expression":"1"},"_meta":7"#,
            -32600,
        ),
    ] {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":901,"method":"tools/call","params":{{{params}}}}}"#);
        let answered = answers(&mut relay, &line);
        assert_eq!(answered[0]["error"]["code"], code, "{answered:?}");
    }
}

#[test]
fn numbers_and_nulls_as_clients_write_them() {
    // B96, B97
    let mut relay = without_emacs().start();
    let mut code = |arguments: &str| {
        let arguments = if arguments.is_empty() {
            String::new()
        } else {
            format!(r#","arguments":{arguments}"#)
        };
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":5005,"method":"tools/call","params":{{"name":"emacs_eval"{arguments}}}}}"#
        );
        let answered = answers(&mut relay, line);
        let error = answered[0]["result"]["structuredContent"]["error"].clone();
        if error.is_null() {
            return (
                answered[0]["error"]["code"].to_string(),
                answered[0]["id"].to_string(),
            );
        }
        (
            error["code"].as_str().unwrap().to_owned(),
            error["message"].as_str().unwrap().to_owned(),
        )
    };
    for fine in ["10000.0", "null", "1e3"] {
        // It gets as far as looking for an Emacs.
        assert_eq!(
            code(&format!(r#"{{"expression":"1","timeout_ms":{fine}}}"#)).0,
            "emacs_unavailable",
            "{fine}"
        );
    }
    assert_eq!(
        code(r#"{"expression":"1","max_output_chars":null}"#).0,
        "emacs_unavailable"
    );
    for wrong in [r#""10000""#, "10000.5", "99", "120001", "true", "[]", "{}"] {
        let (code, message) = code(&format!(r#"{{"expression":"1","timeout_ms":{wrong}}}"#));
        assert_eq!(code, "invalid_request", "{wrong}");
        assert!(message.contains("timeout_ms"), "{message}");
    }
    assert_eq!(
        code(r#"{"expression":"1","timeout_ms":1e400}"#),
        ("-32700".to_owned(), "5005".to_owned())
    );
    for nothing in ["null", "", "{}", "[1]", r#""x""#] {
        let (code, message) = code(nothing);
        assert_eq!(code, "invalid_request", "{nothing}");
        assert!(message.contains("expression"), "{message}");
    }
}

#[test]
fn an_id_that_is_in_use_is_refused_and_the_first_is_still_answered() {
    let scratch = harness::Scratch::new();
    let emacs = harness::Emacs::start(&scratch);
    let mut relay = harness::RelayBuilder::to(&emacs).start();
    let first = relay.begin_eval("(progn (sleep-for 0.3) 'first)");
    let again = json!({ "jsonrpc": "2.0", "id": first, "method": "ping" });
    let answered = answers(&mut relay, again.to_string());
    assert_eq!(
        (&answered[0]["id"], &answered[0]["error"]["code"]),
        (&json!(first), &json!(-32600))
    );
    assert_eq!(
        relay.answer_to(first)["result"]["structuredContent"]["value"],
        "first"
    );
    // Afterwards it is free.
    assert_eq!(
        answers(&mut relay, again.to_string())[0]["result"],
        json!({})
    );
}
