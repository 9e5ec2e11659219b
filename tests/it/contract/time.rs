//! Time: answers come when they were promised, calls in their order, forms once.

use std::fs;

use serde_json::json;

on_both_paths! {
    fn timed_a_timeout_is_answered_in_time_and_says_what_became_of_the_form(on) {
        let answer = on.relay.call(json!({ "expression": "(sleep-for 1)", "timeout_ms": 300 }));
        assert_eq!(answer.code(), "evaluation_timeout");
        assert!(["unknown", "interrupted"].contains(&answer.evaluation()), "{answer:?}");
        let elapsed = answer.envelope["elapsed_ms"].as_u64().unwrap();
        assert!((300..=550).contains(&elapsed), "{elapsed}");
        assert_eq!(on.relay.call(json!({ "expression": "'after", "timeout_ms": 60_000 })).value(), "after");
    }

    fn calls_of_one_client_run_in_their_order_and_once(on) {
        let file = on.scratch.path().join("order");
        let ids: Vec<_> = (0..20)
            .map(|nth| on.relay.begin_eval(&format!("(progn (write-region \"{nth} \" nil {file:?} t 'quiet) {nth})")))
            .collect();
        for (nth, id) in ids.into_iter().enumerate() {
            let answer = on.relay.answer_to(id);
            assert_eq!(answer["result"]["structuredContent"]["value"], nth.to_string());
        }
        let wanted: String = (0..20).map(|nth| format!("{nth} ")).collect();
        assert_eq!(fs::read_to_string(file).unwrap(), wanted);
    }

    fn forms_are_never_nested(on) {
        // B47
        let file = on.scratch.path().join("nested");
        let log = |text: &str| format!("(write-region \"{text} \" nil {file:?} t 'quiet)");
        let first = on.relay.begin_eval(&format!("(progn {} (sit-for 0.2) (accept-process-output nil 0.2) (sleep-for 0.1) {} 'one)", log("begin1"), log("end1")));
        let second = on.relay.begin_eval(&format!("(progn {} (accept-process-output nil 0.1) {} 'two)", log("begin2"), log("end2")));
        assert_eq!(on.relay.answer_to(first)["result"]["structuredContent"]["value"], "one");
        assert_eq!(on.relay.answer_to(second)["result"]["structuredContent"]["value"], "two");
        assert_eq!(fs::read_to_string(file).unwrap(), "begin1 end1 begin2 end2 ");
    }

    fn two_clients_take_turns_and_one_leaving_leaves_the_other(on) {
        // B73
        let mut other = on.builder.start();
        for nth in 0..if on.by_module { 50 } else { 15 } {
            let (mine, theirs) = (on.relay.begin_eval(&format!("(* 2 {nth})")), other.begin_eval(&format!("(* 3 {nth})")));
            assert_eq!(on.relay.answer_to(mine)["result"]["structuredContent"]["value"], (2 * nth).to_string());
            assert_eq!(other.answer_to(theirs)["result"]["structuredContent"]["value"], (3 * nth).to_string());
        }
        other.close_input();
        assert!(other.wait().success());
        assert_eq!(on.relay.value("'still"), "still");
    }

    fn what_waited_too_long_never_runs(on) {
        let first = on.relay.begin_call(json!({ "expression": "(sleep-for 1)", "timeout_ms": 5_000 }));
        let second = on.relay.begin_call(json!({ "expression": "(setq waited-too-long t)", "timeout_ms": 200 }));
        let answer = on.relay.answer_to(second);
        assert_eq!(answer["result"]["structuredContent"]["error"]["data"]["evaluation"], "not_started");
        assert_eq!(on.relay.answer_to(first)["result"]["structuredContent"]["ok"], true);
        assert_eq!(on.relay.value("(boundp 'waited-too-long)"), "nil");
    }

    fn a_call_that_is_cancelled_gets_no_answer_and_the_next_one_does(on) {
        // B51, B52: also a cancel for nothing.
        let id = on.relay.begin_eval("(sleep-for 0.3)");
        on.relay.notify("notifications/cancelled", json!({ "requestId": id }));
        on.relay.notify("notifications/cancelled", json!({ "requestId": 999 }));
        on.relay.notify("notifications/cancelled", json!({ "requestId": "x" }));
        on.relay.notify("notifications/cancelled", json!({}));
        assert_eq!(on.relay.value("'next"), "next");
    }
}
