//! `make demo`: an Emacs of its own, an MCP client, and what they say to each other through the
//! relay, by both paths; readable, and gone without a trace.

#![allow(clippy::print_stdout, reason = "showing is what it is for")]

use std::time::Duration;

use harness::{
    Answer, Emacs, EmacsBuilder, Relay, RelayBuilder, Scratch, emacs_program, major_version,
};

/// How many calls are timed by each path.
const TIMED_CALLS: usize = 100;

fn main() {
    let scratch = Scratch::new();
    println!(
        "\nStarting Emacs {} ({}) as a daemon with the module, HOME in {} ...",
        major_version(),
        emacs_program().to_string_lossy(),
        scratch.path().display()
    );
    let emacs = EmacsBuilder::new("demo").start(&scratch);
    println!("The module listens on {}.", emacs.module_socket().display());
    let mut module = RelayBuilder::to(&emacs).by("module").start();

    println!("\nAn agent calls the tool emacs_eval, through the module:");
    ask(&mut module, "a value", "(+ 1 1)");
    ask(
        &mut module,
        "text is exact",
        "(concat \"naïve \" \"日本語 \" \"👩‍💻\")",
    );
    ask(&mut module, "an error", "(car 'not-a-list)");
    ask(&mut module, "two forms", "(setq a 1) (setq b 2)");
    ask(&mut module, "a prompt", "(y-or-n-p \"Really? \")");
    ask(
        &mut module,
        "write a buffer",
        "(with-current-buffer (get-buffer-create \"notes\") (insert \"Buy milk.\\n\") (message \"noted\") (buffer-size))",
    );
    ask(
        &mut module,
        "look at it",
        "(with-current-buffer \"notes\" (list (buffer-name) major-mode (buffer-string)))",
    );

    println!("\nThe same Emacs through emacsclient, as without the module:");
    let mut client = RelayBuilder::to(&emacs).by("emacsclient").start();
    ask(
        &mut client,
        "live state",
        "(with-current-buffer \"notes\" (buffer-string))",
    );

    compare(&mut module, &mut client);
    finish(emacs, module, client);
}

/// Evaluates one form and shows question, answer and time.
fn ask(relay: &mut Relay, title: &str, expression: &str) {
    let answer = relay.eval(expression);
    println!("\n  {title}\n    > {expression}");
    println!("    < {}", shown(&answer));
    println!(
        "      {} by {}",
        milliseconds(answer.took),
        answer.meta["transport"].as_str().unwrap_or("nothing")
    );
}

fn shown(answer: &Answer) -> String {
    if answer.code().is_empty() {
        let output = answer.envelope["output"].as_str();
        let output = output
            .map(|text| format!("   (output: {text:?})"))
            .unwrap_or_default();
        format!("{}{output}", answer.value())
    } else {
        format!("{}: {}", answer.code(), answer.message())
    }
}

/// Times the same small call by both paths in turn.
fn compare(module: &mut Relay, client: &mut Relay) {
    let (mut by_module, mut by_client) = (Vec::new(), Vec::new());
    for _ in 0..TIMED_CALLS {
        by_module.push(module.eval("(+ 1 1)").took);
        by_client.push(client.eval("(+ 1 1)").took);
    }
    by_module.sort();
    by_client.sort();
    let (module, client) = (by_module[TIMED_CALLS / 2], by_client[TIMED_CALLS / 2]);
    println!(
        "\n{TIMED_CALLS} calls of (+ 1 1) by each path in turn, median: module {}, emacsclient {}: {:.0} times faster.",
        milliseconds(module),
        milliseconds(client),
        client.as_secs_f64() / module.as_secs_f64()
    );
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

/// Ends everything; the temporary folder goes with the scratch.
fn finish(emacs: Emacs, module: Relay, client: Relay) {
    drop((module, client));
    drop(emacs);
    println!("\nThat was all; nothing of it is left. Next: make install, and the lines it prints.");
}
