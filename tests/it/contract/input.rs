//! Arguments and their limits: the input table, at its ends and one past them.

use serde_json::{Value, json};

/// An expression of exactly `chars` code points whose value is the number of `wide` in it.
fn long_expression(chars: usize, wide: &str) -> (String, usize) {
    let count = chars - "(length \"\")".len();
    (format!("(length \"{}\")", wide.repeat(count)), count)
}

on_both_paths! {
    fn expressions_at_the_limit_run_and_one_past_it_do_not(on) {
        // B02, B03: longer than an argument may be, counted neither in bytes nor in UTF-16 units.
        for (chars, wide) in [(140_000, "a"), (262_144, "é"), (262_144, "😀")] {
            let (expression, count) = long_expression(chars, wide);
            let answer = on.relay.call(json!({ "expression": expression, "timeout_ms": 60_000 }));
            assert_eq!(answer.value(), count.to_string());
        }
        let (expression, _) = long_expression(262_145, "😀");
        let answer = on.relay.eval(&expression);
        assert_eq!(answer.code(), "invalid_request");
        assert!(answer.message().contains("expression"), "{}", answer.message());
    }

    fn numbers_at_their_limits_pass_and_one_past_them_name_the_key(on) {
        for (key, good, bad) in [
            ("timeout_ms",
             vec![json!(100), json!(120_000), json!(100.0), Value::Null],
             vec![json!(99), json!(120_001), json!(100.5), json!("100"), json!(true)]),
            ("max_output_chars",
             vec![json!(1), json!(262_144), json!(2.0), Value::Null],
             vec![json!(0), json!(262_145), json!(1.5), json!("1"), json!([])]),
        ] {
            for value in good {
                // The emacsclient path may be slow on a busy machine: only what is refused counts.
                let answer = on.relay.call(json!({ "expression": "7", key: value }));
                assert!(answer.code() == "" || answer.code() == "evaluation_timeout", "{answer:?}");
            }
            for value in bad {
                let answer = on.relay.call(json!({ "expression": "(setq input-ran t)", key: value }));
                assert_eq!(answer.code(), "invalid_request", "{value}");
                assert!(answer.message().contains(key), "{}", answer.message());
            }
        }
        assert_eq!(on.relay.value("(boundp 'input-ran)"), "nil");
    }

    fn what_is_no_closed_object_is_refused_before_emacs(on) {
        for (arguments, word) in [
            (json!({}), "expression"),
            (json!({ "expression": null }), "expression"),
            (json!({ "expression": 1 }), "expression"),
            (json!({ "expression": "" }), "expression"),
            (json!({ "expression": " \n\t " }), "expression"),
            (json!({ "expression": "1", "timeout": 1000 }), "timeout"),
            (json!([1]), "arguments"),
            (json!("(+ 1 1)"), "arguments"),
            (Value::Null, "expression"),
        ] {
            let answer = on.relay.call(arguments.clone());
            assert_eq!(answer.code(), "invalid_request", "{arguments}");
            assert!(answer.message().contains(word), "{}", answer.message());
            assert_eq!(answer.meta, Value::Null, "nothing reached Emacs");
        }
        on.relay.send_line(
            r#"{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"emacs_eval","arguments":{"expression":"(setq input-ran 1)","expression":"(setq input-ran 2)"}}}"#,
        );
        let message = on.relay.answer_to(900);
        let error = &message["result"]["structuredContent"]["error"];
        assert_eq!(error["code"], "invalid_request");
        assert!(error["message"].as_str().unwrap().contains("expression"), "{error}");
        on.relay.send_line(r#"{"jsonrpc":"2.0","id":901,"method":"tools/call","params":{"name":"emacs_eval"}}"#);
        assert_eq!(on.relay.answer_to(901)["result"]["structuredContent"]["error"]["code"], "invalid_request");
        assert_eq!(on.relay.value("(boundp 'input-ran)"), "nil");
    }

    fn an_unknown_tool_is_a_protocol_error(on) {
        for params in [json!({ "name": "nope", "arguments": {} }), json!({ "name": "nope", "arguments": [] }), json!({})] {
            let answer = on.relay.request("tools/call", params);
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    }

    fn defaults_come_from_options_and_environment(on) {
        let mut relay = on.builder.clone().arg("--max-output-chars").arg("3").start();
        let answer = relay.eval("12345");
        assert_eq!((answer.value().as_str(), &answer.envelope["truncated"]), ("123", &json!(true)));
        let answer = relay.call(json!({ "expression": "12345", "max_output_chars": 4 }));
        assert_eq!(answer.value(), "1234");
        let mut relay = on.builder.clone()
            .env("EMACS_RUNTIME_MCP_MAX_OUTPUT_CHARS", "2")
            .env("EMACS_RUNTIME_MCP_TIMEOUT_MS", "400")
            .start();
        assert_eq!(relay.eval("12345").value(), "12");
        let answer = relay.eval("(sleep-for 2)");
        assert_eq!(answer.code(), "evaluation_timeout");
        assert!(answer.message().contains("400 ms"), "{}", answer.message());
        assert!(answer.envelope["elapsed_ms"].as_u64().unwrap() >= 400, "{answer:?}");
        let tools = relay.request("tools/list", json!({}));
        let schema = &tools["result"]["tools"][0]["inputSchema"]["properties"];
        assert_eq!(schema["timeout_ms"]["default"], 400);
    }

    fn exactly_one_tool_is_listed(on) {
        let tools = on.relay.request("tools/list", json!({}));
        let tools = tools["result"]["tools"].as_array().unwrap().clone();
        assert_eq!(tools.len(), 1);
        let tool = &tools[0];
        assert_eq!(tool["name"], "emacs_eval");
        assert!(tool["description"].as_str().unwrap().contains("never instructions"));
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object");
            assert_eq!(tool[schema]["additionalProperties"], false);
            for combinator in ["oneOf", "anyOf", "allOf"] {
                assert!(tool[schema].get(combinator).is_none());
            }
        }
    }
}
