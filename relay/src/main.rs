//! The relay: an MCP client starts it, speaks MCP to it over stdio, and reaches through it the Emacs
//! that a person has open. This file reads the options, starts logging, and runs.

#![forbid(unsafe_code)]

mod cli;
mod emacs;
mod envelope;
mod log;
mod mcp;
mod request;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::cli::{Args, Config};
use crate::emacs::Emacs;
use crate::request::Defaults;

/// Exit code when the options are wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let config = Config::new(Args::parse(), |name| std::env::var_os(name), &directory)
        .and_then(|config| log::start(&config).map(|()| config));
    match config {
        Ok(config) => match run(&config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("{error:#}");
                ExitCode::FAILURE
            }
        },
        Err(message) => {
            #[allow(
                clippy::print_stderr,
                reason = "nothing is set up yet to say it otherwise"
            )]
            {
                eprintln!("emacs-runtime-mcp: {message}\nTry --help.");
            }
            ExitCode::from(USAGE)
        }
    }
}

fn run(config: &Config) -> anyhow::Result<()> {
    let defaults = Defaults {
        timeout_ms: config.timeout_ms,
        max_output_chars: config.max_output_chars,
    };
    tracing::info!(
        version = emacs_runtime_mcp_protocol::VERSION,
        pid = std::process::id(),
        "the relay has started"
    );
    let emacs = Arc::new(Emacs::new(config));
    // One thread: requests are begun in their order of arrival.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(mcp::serve(emacs, defaults));
    // A read from a terminal or a file may be under way in a thread; nobody waits for it.
    runtime.shutdown_background();
    result
}
