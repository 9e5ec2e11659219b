//! What the server offers: one tool, its schemas, the skill; and what it answers to what it doesn't.

use serde_json::{Value, json};

use super::without_emacs;

#[test]
fn both_schemas_have_an_object_at_their_root() {
    // B86
    let mut relay = without_emacs().start();
    let tools = relay.request("tools/list", json!({}))["result"]["tools"].clone();
    assert_eq!(tools.as_array().unwrap().len(), 1);
    let tool = &tools[0];
    for key in ["inputSchema", "outputSchema"] {
        let schema = &tool[key];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        for combinator in ["oneOf", "anyOf", "allOf", "not", "$ref"] {
            assert!(schema.get(combinator).is_none(), "{key} has {combinator}");
        }
        described(schema, key);
    }
    assert_eq!(tool["_meta"]["anthropic/maxResultSizeChars"], 500_000);
    assert_eq!(
        tool["annotations"],
        json!({ "title": tool["title"], "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true })
    );
}

/// Every property says what it is.
fn described(schema: &Value, path: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(
            property["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{path}"
        );
        described(property, &path);
    }
}

/// What of `value` the output schema forbids. It is flat, so this little is enough.
fn misfit(schema: &Value, value: &Value) -> Option<String> {
    if let Some(allowed) = schema["enum"].as_array() {
        return (!allowed.contains(value)).then(|| format!("{value} is none of {allowed:?}"));
    }
    let fits = match schema["type"].as_str()? {
        "object" => {
            let object = value.as_object()?;
            let required = schema["required"].as_array().into_iter().flatten();
            for key in required.filter_map(Value::as_str) {
                if !object.contains_key(key) {
                    return Some(format!("{key} is missing"));
                }
            }
            for (key, value) in object {
                let property = &schema["properties"][key];
                if property.is_null() && schema["additionalProperties"] == false {
                    return Some(format!("{key} is unknown"));
                }
                if let Some(why) = misfit(property, value) {
                    return Some(format!("{key}: {why}"));
                }
            }
            true
        }
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "array" => value.is_array(),
        other => panic!("{other}"),
    };
    (!fits).then(|| format!("{value} is no {}", schema["type"]))
}

#[test]
fn values_and_errors_fit_the_output_schema() {
    // B87
    let scratch = harness::Scratch::new();
    let emacs = harness::Emacs::start(&scratch);
    let mut relay = harness::RelayBuilder::to(&emacs).start();
    let schema =
        relay.request("tools/list", json!({}))["result"]["tools"][0]["outputSchema"].clone();
    for arguments in [
        json!({ "expression": "(progn (message \"x\") 1)" }),
        json!({ "expression": "(car 1)" }),
        json!({ "expression": "(" }),
        json!({}),
        json!({ "expression": "(sleep-for 5)", "timeout_ms": 100 }),
        json!({ "expression": "(make-string 262140 1)", "max_output_chars": 262_144 }),
    ] {
        let answer = relay.call(arguments);
        assert_eq!(misfit(&schema, &answer.envelope), None, "{answer:?}");
    }
    let mut nowhere = without_emacs().start();
    let answer = nowhere.eval("1");
    assert_eq!(misfit(&schema, &answer.envelope), None, "{answer:?}");
    assert!(misfit(&schema, &json!({ "ok": 1, "elapsed_ms": 0 })).is_some());
    assert!(misfit(&schema, &json!({ "ok": true })).is_some());
}

#[test]
fn what_is_not_offered_is_refused_as_the_specification_says() {
    // B105
    let mut relay = without_emacs().start();
    for method in [
        "prompts/list",
        "prompts/get",
        "logging/setLevel",
        "completion/complete",
        "tasks/list",
    ] {
        let params = match method {
            "logging/setLevel" => json!({ "level": "info" }),
            "prompts/get" => json!({ "name": "x" }),
            "completion/complete" => {
                json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "b" } })
            }
            _ => json!({}),
        };
        assert_eq!(
            relay.request(method, params)["error"]["code"],
            -32601,
            "{method}"
        );
    }
    for (method, params) in [
        ("tools/call", json!({ "name": "nope" })),
        ("tools/call", json!({ "name": "nope", "arguments": [1] })),
        ("tools/call", json!({ "arguments": {} })),
        ("tools/list", json!({ "cursor": "x" })),
        ("resources/list", json!({ "cursor": "x" })),
        ("resources/templates/list", json!({ "cursor": "x" })),
        ("skills/list", json!({ "cursor": "x" })),
        ("resources/directory/read", json!({ "uri": "skill://nope" })),
    ] {
        let answer = relay.request(method, params.clone());
        assert_eq!(
            answer["error"]["code"], -32602,
            "{method} {params}: {answer}"
        );
    }
    assert_eq!(
        relay.request("resources/read", json!({ "uri": "x:y" }))["error"]["code"],
        -32002
    );
    assert_eq!(relay.stderr(), "");
}

#[test]
fn parameters_of_a_wrong_shape_are_told_from_a_method_that_is_not_there() {
    let mut relay = without_emacs().start();
    for (method, params) in [
        ("skills/get", json!({})),
        ("skills/get", json!({ "uri": 7 })),
        ("resources/read", json!({})),
        ("resources/directory/read", json!({ "uri": [] })),
    ] {
        let answer = relay.request(method, params.clone());
        assert_eq!(
            answer["error"]["code"], -32602,
            "{method} {params}: {answer}"
        );
    }
    assert_eq!(
        relay.request("skills/nope", json!({}))["error"]["code"],
        -32601
    );
}

#[test]
fn a_progress_token_is_optional_and_never_invented() {
    // B98
    let mut relay = without_emacs().start();
    for meta in [
        json!({ "progressToken": "t1" }),
        json!({ "progressToken": 1 }),
        json!({}),
        json!({ "x/y": [1] }),
    ] {
        let params =
            json!({ "name": "emacs_eval", "arguments": { "expression": "1" }, "_meta": meta });
        let id = relay.begin("tools/call", params);
        let answer = relay.receive();
        assert_eq!(answer["id"], id, "{answer}");
        assert_eq!(
            answer["result"]["structuredContent"]["error"]["code"],
            "emacs_unavailable"
        );
    }
}

#[test]
fn the_skill_is_the_file_of_this_version() {
    let mut relay = without_emacs().start();
    let file = std::fs::read_to_string(harness::root().join("skills/emacs-live/SKILL.md")).unwrap();
    let uri = "skill://emacs-live/SKILL.md";
    let contents =
        relay.request("resources/read", json!({ "uri": uri }))["result"]["contents"][0].clone();
    assert_eq!(contents["text"], file);
    let skills = relay.request("skills/list", json!({}))["result"]["skills"].clone();
    assert_eq!(skills.as_array().unwrap().len(), 1);
    assert_eq!(skills[0]["uri"], uri);
    assert_eq!(skills[0]["resources"][0]["size"], file.len());
    assert_eq!(
        relay.request("skills/get", json!({ "uri": uri }))["result"]["skill"],
        skills[0]
    );
    for folder in ["skill://emacs-live", "skill://emacs-live/"] {
        let listed = relay.request("resources/directory/read", json!({ "uri": folder }))["result"]
            ["resources"]
            .clone();
        assert_eq!(listed[0]["uri"], uri);
    }
    let instructions = relay.initialize("2025-11-25")["instructions"].clone();
    assert!(instructions.as_str().unwrap().len() < 2_048);
}
