//! The protocol's revisions: sessions that begin with initialize, and 2026-07-28, which has none. The
//! beginning and the end of a conversation.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{answers, modern, without_emacs};

const LATEST_WITH_INITIALIZE: &str = "2025-11-25";

#[test]
fn a_known_revision_is_kept_and_another_gets_ours() {
    // B88
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut relay = without_emacs().spawn();
        assert_eq!(relay.initialize(version)["protocolVersion"], version);
    }
    for version in ["2026-07-28", "2099-01-01", "draft"] {
        let mut relay = without_emacs().spawn();
        assert_eq!(
            relay.initialize(version)["protocolVersion"],
            LATEST_WITH_INITIALIZE
        );
    }
}

#[test]
fn a_session_may_be_initialized_again() {
    let mut relay = without_emacs().start();
    assert_eq!(
        relay.initialize("2025-03-26")["serverInfo"]["name"],
        "emacs-runtime-mcp"
    );
    assert_eq!(relay.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn before_initialize_nothing_is_lost_and_nothing_ends() {
    // B104
    let mut relay = without_emacs().spawn();
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        "not json",
    ] {
        for answer in answers(&mut relay, line) {
            assert_eq!(answer["error"]["code"], -32700, "{line}");
        }
    }
    for (method, params) in [
        (
            "tools/call",
            json!({ "name": "emacs_eval", "arguments": { "expression": "1" } }),
        ),
        ("tools/list", json!({})),
        ("initialize", json!({})),
        (
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
        ),
    ] {
        assert_eq!(
            relay.request(method, params)["error"]["code"],
            -32602,
            "{method}"
        );
    }
    // A call right after the answer, without the notification, is served.
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "it", "version": "0" } });
    assert_eq!(
        relay.request("initialize", hello)["result"]["protocolVersion"],
        LATEST_WITH_INITIALIZE
    );
    assert_eq!(relay.eval("1").code(), "emacs_unavailable");
}

fn call(expression: &str, meta: Value) -> Value {
    json!({ "name": "emacs_eval", "arguments": { "expression": expression }, "_meta": meta })
}

#[test]
fn the_stateless_revision_needs_no_session() {
    let mut relay = without_emacs().spawn();
    let found = relay.request("server/discover", json!({ "_meta": modern("2026-07-28") }));
    let found = &found["result"];
    assert_eq!(
        found["supportedVersions"].as_array().unwrap().len(),
        5,
        "{found}"
    );
    assert!(
        found["instructions"]
            .as_str()
            .unwrap()
            .contains("emacs_eval")
    );
    let answer = relay.request("tools/call", call("1", modern("2026-07-28")));
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(
        answer["result"]["structuredContent"]["error"]["code"],
        "emacs_unavailable"
    );
    // Also where the arguments are no object.
    let odd = json!({ "name": "emacs_eval", "arguments": [1], "_meta": modern("2026-07-28") });
    let answer = relay.request("tools/call", odd);
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(
        answer["result"]["structuredContent"]["error"]["code"],
        "invalid_request"
    );
    let list = relay.request("tools/list", json!({ "_meta": modern("2026-07-28") }));
    assert!(
        list["result"]["ttlMs"].is_u64() && list["result"]["cacheScope"].is_string(),
        "{list}"
    );
    // What it may not do.
    assert_eq!(
        relay.request("tools/call", call("1", json!({})))["error"]["code"],
        -32602
    );
    let answer = relay.request("tools/call", call("1", modern("2031-01-01")));
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert!(answer["error"]["data"]["supported"].is_array(), "{answer}");
}

#[test]
fn one_pipe_may_have_both() {
    let mut relay = without_emacs().spawn();
    relay.request("server/discover", json!({ "_meta": modern("2026-07-28") }));
    assert_eq!(
        relay.initialize("2025-06-18")["protocolVersion"],
        "2025-06-18"
    );
    let legacy = relay.request("tools/call", call("1", json!({})));
    assert!(legacy["result"].get("resultType").is_none(), "{legacy}");
    let answer = relay.request("tools/call", call("1", modern("2026-07-28")));
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let mut relay = without_emacs().spawn();
    relay.request("tools/call", call("1", modern("2026-07-28")));
    assert_eq!(
        relay.initialize("2025-11-25")["protocolVersion"],
        "2025-11-25"
    );
}

#[test]
fn who_only_probes_sees_a_silent_end() {
    // B102
    for begin in [None, Some("initialize"), Some("server/discover")] {
        let mut relay = without_emacs().spawn();
        match begin {
            Some("initialize") => drop(relay.initialize("2025-11-25")),
            Some(method) => drop(relay.request(method, json!({ "_meta": modern("2026-07-28") }))),
            None => {}
        }
        relay.close_input();
        assert!(relay.wait().success(), "{begin:?}");
        assert_eq!(relay.stderr(), "", "{begin:?}");
    }
    // Standard input that is none.
    let mut child = without_emacs()
        .command()
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let status = harness::wait_for("the relay's end", || child.try_wait().unwrap());
    assert!(status.success());
}

#[test]
fn a_last_line_without_its_end_is_no_message() {
    let mut child = without_emacs().command().spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn who_listens_is_told_of_the_end() {
    let mut relay = without_emacs().spawn();
    let filter = json!({ "toolsListChanged": true });
    let id = relay.begin(
        "subscriptions/listen",
        json!({ "notifications": filter, "_meta": modern("2026-07-28") }),
    );
    let acknowledged = relay.receive();
    assert_eq!(
        acknowledged["method"], "notifications/subscriptions/acknowledged",
        "{acknowledged}"
    );
    assert_eq!(
        relay.request("ping", json!({ "_meta": modern("2026-07-28") }))["id"],
        id + 1
    );
    let begun = Instant::now();
    relay.close_input();
    let end = relay.answer_to(id);
    assert!(end.get("result").is_some(), "{end}");
    assert!(relay.wait().success());
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}
