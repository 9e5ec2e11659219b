//! Options: from the command line and the environment to a checked configuration. What is wrong is
//! said by the name under which it came in.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Parser;
use emacs_runtime_mcp_protocol::limits;
use emacs_runtime_mcp_protocol::place::Selector;
use tracing::level_filters::LevelFilter;

/// The command line as it is typed. Values stay raw here, so that option and variable are judged by
/// the same rules in [`Config::new`].
#[derive(Debug, Default, Parser)]
#[command(
    name = "emacs-runtime-mcp",
    version,
    about = "An MCP server (stdio) that lets a coding agent evaluate Emacs Lisp in your running Emacs.",
    long_about = "An MCP server (stdio) that lets a coding agent evaluate Emacs Lisp in your running Emacs.\n\n\
        You don't run it yourself: name it as the command of an MCP server in your agent's configuration. \
        It never starts an Emacs. With (require 'emacs-runtime-mcp-module) in your init file it talks to \
        a socket inside Emacs; without, it goes through emacsclient, which needs a running Emacs server \
        (emacs --daemon, or M-x server-start).\n\n\
        SECURITY: whoever can send it a request can do with your files and your Emacs whatever you can.",
    after_help = "Each option can be given by an environment variable instead (in brackets); the option wins.\n\
        Without --socket-name and --server-file, EMACS_SOCKET_NAME and EMACS_SERVER_FILE count as they do for emacsclient."
)]
pub(crate) struct Args {
    /// The emacsclient program, for Emacs without the module [EMACS_RUNTIME_MCP_EMACSCLIENT; default: emacsclient]
    #[arg(long, value_name = "PATH", allow_hyphen_values = true)]
    emacsclient: Option<OsString>,

    /// Name or socket path of the Emacs server, as in emacs --daemon=NAME [EMACS_RUNTIME_MCP_SOCKET_NAME; default: the default server]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    socket_name: Option<OsString>,

    /// File of an Emacs server that uses TCP [EMACS_RUNTIME_MCP_SERVER_FILE]
    #[arg(long, value_name = "PATH", allow_hyphen_values = true)]
    server_file: Option<OsString>,

    /// How long a call may take if it doesn't say, in milliseconds, 100 to 120000 [EMACS_RUNTIME_MCP_TIMEOUT_MS; default: 10000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    timeout_ms: Option<OsString>,

    /// How many characters of a value to return if a call doesn't say, 1 to 262144 [EMACS_RUNTIME_MCP_MAX_OUTPUT_CHARS; default: 65536]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_output_chars: Option<OsString>,

    /// Way into Emacs: auto (module, else emacsclient), module or emacsclient [EMACS_RUNTIME_MCP_TRANSPORT; default: auto]
    #[arg(
        long,
        value_name = "auto|module|emacsclient",
        allow_hyphen_values = true
    )]
    transport: Option<OsString>,

    /// Which server's tools to offer; may be repeated [EMACS_RUNTIME_MCP_SERVER_ID, separated by commas; default: eval]
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    server_id: Vec<OsString>,

    /// What to log: off, error, warn, info, debug or trace [EMACS_RUNTIME_MCP_LOG; default: warn]
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true)]
    log_level: Option<OsString>,

    /// Where to log, for clients that hide stderr [EMACS_RUNTIME_MCP_LOG_FILE; default: stderr]
    #[arg(long, value_name = "PATH", allow_hyphen_values = true)]
    log_file: Option<OsString>,
}

/// Which way into Emacs a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The module where it listens, else emacsclient.
    Auto,
    /// Only the module.
    Module,
    /// Only emacsclient.
    Emacsclient,
}

/// The relay's configuration; every value is in range.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The emacsclient program: a path, or a name to be found in `PATH`.
    pub(crate) emacsclient: OsString,
    /// Which Emacs is meant.
    pub(crate) selector: Selector,
    /// `timeout_ms` of a call that doesn't say.
    pub(crate) timeout_ms: u64,
    /// `max_output_chars` of a call that doesn't say.
    pub(crate) max_output_chars: u64,
    /// Ways that may be taken.
    pub(crate) transport: Transport,
    /// What is logged.
    pub(crate) log_level: LevelFilter,
    /// Where it is logged; stderr if not set.
    pub(crate) log_file: Option<PathBuf>,
}

/// The id of the built-in server with `emacs_eval`.
const EVAL_SERVER: &str = "eval";

impl Config {
    /// Checks `args`, filled up from `environment`. Relative paths are taken from `directory`.
    ///
    /// # Errors
    ///
    /// A message that names the option, or the variable where the value came from.
    pub(crate) fn new(
        args: Args,
        environment: impl Fn(&str) -> Option<OsString>,
        directory: &Path,
    ) -> Result<Self, String> {
        let lookup = |name: &str| environment(name).filter(|value| !value.is_empty());
        let pick = |option: &'static str, value: Option<OsString>| -> Result<_, String> {
            let variable = variable_of(option);
            let given = match value {
                Some(value) => Some(Given {
                    name: option.to_owned(),
                    value,
                }),
                None => lookup(&variable).map(|value| Given {
                    name: variable,
                    value,
                }),
            };
            match given {
                Some(given) if given.value.is_empty() => {
                    Err(format!("{}: the value is empty", given.name))
                }
                given => Ok(given),
            }
        };
        let emacsclient = pick("--emacsclient", args.emacsclient)?;
        let socket_name = pick("--socket-name", args.socket_name)?;
        let server_file = pick("--server-file", args.server_file)?;
        let timeout_ms = pick("--timeout-ms", args.timeout_ms)?;
        let max_output_chars = pick("--max-output-chars", args.max_output_chars)?;
        let transport = pick("--transport", args.transport)?;
        let log_level = pick("--log-level", args.log_level)?;
        let log_file = pick("--log-file", args.log_file)?;
        check_server_ids(&args.server_id, &lookup)?;

        let selector = match (socket_name, server_file) {
            (Some(socket), Some(file)) => {
                return Err(format!(
                    "{} and {} both select an Emacs server; give only one of them",
                    socket.name, file.name
                ));
            }
            (Some(socket), None) => Selector::socket_name(&socket.value, directory),
            (None, Some(file)) => Selector::server_file(&file.value, directory),
            (None, None) => inherited_selector(&lookup, directory),
        };
        Ok(Self {
            emacsclient: emacsclient.map_or_else(|| "emacsclient".into(), |given| given.value),
            selector,
            timeout_ms: number(timeout_ms, limits::TIMEOUT_MS, limits::TIMEOUT_DEFAULT_MS)?,
            max_output_chars: number(
                max_output_chars,
                limits::OUTPUT_CHARS,
                limits::OUTPUT_DEFAULT_CHARS,
            )?,
            transport: word(
                transport,
                &[
                    ("auto", Transport::Auto),
                    ("module", Transport::Module),
                    ("emacsclient", Transport::Emacsclient),
                ],
                Transport::Auto,
            )?,
            log_level: word(
                log_level,
                &[
                    ("off", LevelFilter::OFF),
                    ("error", LevelFilter::ERROR),
                    ("warn", LevelFilter::WARN),
                    ("info", LevelFilter::INFO),
                    ("debug", LevelFilter::DEBUG),
                    ("trace", LevelFilter::TRACE),
                ],
                LevelFilter::WARN,
            )?,
            log_file: log_file.map(|given| directory.join(given.value)),
        })
    }
}

/// A value and the name under which it was given.
struct Given {
    name: String,
    value: OsString,
}

/// The environment variable that stands for `option`.
fn variable_of(option: &str) -> String {
    let name = match option {
        "--log-level" => "LOG".to_owned(),
        other => other
            .trim_start_matches('-')
            .replace('-', "_")
            .to_uppercase(),
    };
    format!("EMACS_RUNTIME_MCP_{name}")
}

/// What emacsclient's own variables select.
fn inherited_selector(lookup: &impl Fn(&str) -> Option<OsString>, directory: &Path) -> Selector {
    if let Some(name) = lookup("EMACS_SOCKET_NAME") {
        Selector::socket_name(&name, directory)
    } else if let Some(file) = lookup("EMACS_SERVER_FILE") {
        Selector::server_file(&file, directory)
    } else {
        Selector::Default
    }
}

/// Refuses ids of servers that this version can't serve.
fn check_server_ids(
    options: &[OsString],
    lookup: &impl Fn(&str) -> Option<OsString>,
) -> Result<(), String> {
    let (name, ids) = if options.is_empty() {
        let name = "EMACS_RUNTIME_MCP_SERVER_ID";
        let list = lookup(name).unwrap_or_else(|| EVAL_SERVER.into());
        let list = list.to_string_lossy().into_owned();
        (
            name,
            list.split(',')
                .map(|id| id.trim().to_owned())
                .collect::<Vec<_>>(),
        )
    } else {
        let ids = options.iter().map(|id| id.to_string_lossy().into_owned());
        ("--server-id", ids.collect())
    };
    match ids.iter().find(|id| *id != EVAL_SERVER) {
        None => Ok(()),
        Some(id) if id.is_empty() => Err(format!("{name}: the value is empty")),
        Some(id) => Err(format!(
            "{name}: there is no server {id:?}; this version has only the built-in one, {EVAL_SERVER}"
        )),
    }
}

fn number(given: Option<Given>, range: RangeInclusive<u64>, default: u64) -> Result<u64, String> {
    let Some(Given { name, value }) = given else {
        return Ok(default);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!(
                "{name}: {} is no whole number from {} to {}",
                shown(&value),
                range.start(),
                range.end()
            )
        })
}

fn word<T: Copy>(given: Option<Given>, words: &[(&str, T)], default: T) -> Result<T, String> {
    let Some(Given { name, value }) = given else {
        return Ok(default);
    };
    words
        .iter()
        .find(|(word, _)| value == *word)
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            format!("{name}: {} is none of {}", shown(&value), known.join(", "))
        })
}

fn shown(value: &OsStr) -> String {
    format!("{:?}", value.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str], environment: &[(&str, &str)]) -> Result<Config, String> {
        let args = Args::try_parse_from([&["relay"], args].concat()).map_err(|e| e.to_string())?;
        let lookup = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Config::new(args, lookup, Path::new("/here"))
    }

    #[test]
    fn nothing_said_is_the_contracts_defaults() {
        let config = config(&[], &[]).unwrap();
        assert_eq!(config.emacsclient, "emacsclient");
        assert_eq!(config.selector, Selector::Default);
        assert_eq!(
            (config.timeout_ms, config.max_output_chars),
            (10_000, 65_536)
        );
        assert_eq!(config.transport, Transport::Auto);
        assert_eq!(config.log_level, LevelFilter::WARN);
    }

    #[test]
    fn the_command_line_wins_and_an_empty_variable_is_unset() {
        let environment = [
            ("EMACS_RUNTIME_MCP_TIMEOUT_MS", "200"),
            ("EMACS_RUNTIME_MCP_MAX_OUTPUT_CHARS", ""),
            ("EMACS_RUNTIME_MCP_SOCKET_NAME", "work"),
        ];
        let config = config(&["--timeout-ms", "300"], &environment).unwrap();
        assert_eq!((config.timeout_ms, config.max_output_chars), (300, 65_536));
        assert_eq!(config.selector, Selector::Name("work".into()));
    }

    #[test]
    fn emacsclients_own_variables_count_only_without_a_selector_of_ours() {
        let inherited = [("EMACS_SOCKET_NAME", "theirs"), ("EMACS_SERVER_FILE", "/f")];
        assert_eq!(
            config(&[], &inherited).unwrap().selector,
            Selector::Name("theirs".into())
        );
        assert_eq!(
            config(&["--server-file", "/g"], &inherited)
                .unwrap()
                .selector,
            Selector::ServerFile("/g".into())
        );
        assert_eq!(
            config(&[], &inherited[1..]).unwrap().selector,
            Selector::ServerFile("/f".into())
        );
    }

    #[test]
    fn a_name_may_begin_with_a_dash() {
        let config = config(&["--socket-name", "-x"], &[]).unwrap();
        assert_eq!(config.selector, Selector::Name("-x".into()));
    }

    #[test]
    fn what_is_wrong_is_said_by_its_name() {
        let file = ("EMACS_RUNTIME_MCP_SERVER_FILE", "/f");
        for (args, environment, names) in [
            (
                vec!["--socket-name", "a", "--server-file", "/f"],
                vec![],
                vec!["--socket-name", "--server-file"],
            ),
            (
                vec!["--socket-name", "a"],
                vec![file],
                vec!["--socket-name", file.0],
            ),
            (vec!["--socket-name", ""], vec![], vec!["--socket-name"]),
            (
                vec!["--timeout-ms", "99"],
                vec![],
                vec!["--timeout-ms", "100", "120000"],
            ),
            (vec!["--timeout-ms", "-5"], vec![], vec!["--timeout-ms"]),
            (
                vec![],
                vec![("EMACS_RUNTIME_MCP_TIMEOUT_MS", "120001")],
                vec!["EMACS_RUNTIME_MCP_TIMEOUT_MS"],
            ),
            (
                vec!["--max-output-chars", "0"],
                vec![],
                vec!["--max-output-chars"],
            ),
            (
                vec!["--max-output-chars", "262145"],
                vec![],
                vec!["--max-output-chars"],
            ),
            (
                vec!["--transport", "tcp"],
                vec![],
                vec!["--transport", "auto"],
            ),
            (
                vec![],
                vec![("EMACS_RUNTIME_MCP_LOG", "loud")],
                vec!["EMACS_RUNTIME_MCP_LOG", "warn"],
            ),
            (
                vec!["--server-id", "other"],
                vec![],
                vec!["--server-id", "other"],
            ),
            (
                vec![],
                vec![("EMACS_RUNTIME_MCP_SERVER_ID", "eval,x")],
                vec!["EMACS_RUNTIME_MCP_SERVER_ID"],
            ),
        ] {
            let error = config(&args, &environment).unwrap_err();
            for name in names {
                assert!(error.contains(name), "{error:?} should name {name}");
            }
        }
    }
}
