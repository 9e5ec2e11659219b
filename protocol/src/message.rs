//! The messages on the module's socket; one JSON document a line, see [`crate::frame`].

use serde::{Deserialize, Serialize};

use crate::Outcome;

/// The version of these messages. Relay and module talk only if theirs are equal.
pub const PROTOCOL: u32 = 1;

/// What a relay sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromRelay {
    /// First on every connection.
    Hello {
        /// [`PROTOCOL`] of the relay.
        protocol: u32,
        /// Version of the relay, for messages.
        version: String,
    },
    /// Evaluate; answered by one [`FromModule::Reply`] of the same id.
    Eval(Eval),
    /// How far is this call? Answered by [`FromModule::Ahead`], or not at all if it is gone.
    Ask {
        /// Id of the [`Eval`].
        id: u64,
    },
    /// Nobody waits for this call any more: it is withdrawn, or stopped.
    Cancel {
        /// Id of the [`Eval`].
        id: u64,
    },
}

/// One form to evaluate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eval {
    /// Chosen by the relay, unique on its connection.
    pub id: u64,
    /// Source text of exactly one form.
    pub expression: String,
    /// The time that the call was given, in milliseconds; for messages.
    pub timeout_ms: u64,
    /// What is left of it, in milliseconds.
    pub left_ms: u64,
    /// After how many Emacs characters the value is cut.
    pub max_output_chars: u64,
}

/// What the module sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromModule {
    /// Answer to the relay's hello, also when the versions don't fit. From stored values: a busy
    /// Emacs answers it too.
    Hello(Hello),
    /// Instead of a hello: the module can't serve this relay, and why.
    Refused {
        /// For the relay's log.
        reason: String,
    },
    /// Answer to an [`Eval`].
    Reply(Reply),
    /// Answer to [`FromRelay::Ask`].
    Ahead {
        /// Id of the [`Eval`].
        id: u64,
        /// How many calls are before it, the running one included; 0 when it runs itself.
        ahead: u64,
    },
    /// Instead of a reply: listening has ended, and this call will never begin. The relay may take
    /// another way with it.
    Withdrawn {
        /// Id of the [`Eval`].
        id: u64,
    },
}

/// Who listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the module.
    pub protocol: u32,
    /// Version of the module.
    pub version: String,
    /// `emacs-version`.
    pub emacs_version: String,
    /// Process id of Emacs.
    pub pid: u32,
    /// `server-name` when listening began.
    pub server_name: String,
    /// `default-directory` when listening began.
    pub directory: String,
}

/// Answer to one [`Eval`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Id of the [`Eval`].
    pub id: u64,
    /// How long the form waited before it began, or was withdrawn, in milliseconds.
    pub queue_ms: u64,
    /// How it ended.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorCode, Evaluation, Failure, Success};

    fn golden<T>(message: &T, json: &str)
    where
        T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug,
    {
        assert_eq!(serde_json::to_string(message).unwrap(), json);
        assert_eq!(&serde_json::from_str::<T>(json).unwrap(), message);
    }

    #[test]
    fn what_a_relay_sends() {
        golden(
            &FromRelay::Hello {
                protocol: 1,
                version: "0.1.0".into(),
            },
            r#"{"hello":{"protocol":1,"version":"0.1.0"}}"#,
        );
        golden(
            &FromRelay::Eval(Eval {
                id: 7,
                expression: "\"é\u{0}\"".into(),
                timeout_ms: 100,
                left_ms: 99,
                max_output_chars: 1,
            }),
            r#"{"eval":{"id":7,"expression":"\"é\u0000\"","timeout_ms":100,"left_ms":99,"max_output_chars":1}}"#,
        );
        golden(&FromRelay::Cancel { id: 7 }, r#"{"cancel":{"id":7}}"#);
        golden(&FromRelay::Ask { id: 7 }, r#"{"ask":{"id":7}}"#);
    }

    #[test]
    fn what_the_module_sends() {
        golden(
            &FromModule::Hello(Hello {
                protocol: 1,
                version: "0.1.0".into(),
                emacs_version: "28.2".into(),
                pid: 42,
                server_name: "server".into(),
                directory: "~/".into(),
            }),
            r#"{"hello":{"protocol":1,"version":"0.1.0","emacs_version":"28.2","pid":42,"server_name":"server","directory":"~/"}}"#,
        );
        golden(
            &FromModule::Reply(Reply {
                id: 7,
                queue_ms: 0,
                outcome: Outcome::Success(Success {
                    value: "2".into(),
                    truncated: false,
                    original_chars: 1,
                    output: None,
                }),
            }),
            r#"{"reply":{"id":7,"queue_ms":0,"outcome":{"success":{"value":"2","truncated":false,"original_chars":1}}}}"#,
        );
        golden(
            &FromModule::Reply(Reply {
                id: 8,
                queue_ms: 3,
                outcome: Failure::new(ErrorCode::EvaluationTimeout, "late")
                    .with_evaluation(Evaluation::NotStarted)
                    .into(),
            }),
            r#"{"reply":{"id":8,"queue_ms":3,"outcome":{"failure":{"code":"evaluation_timeout","message":"late","data":{"evaluation":"not_started"}}}}}"#,
        );
        golden(
            &FromModule::Ahead { id: 9, ahead: 2 },
            r#"{"ahead":{"id":9,"ahead":2}}"#,
        );
        golden(
            &FromModule::Withdrawn { id: 9 },
            r#"{"withdrawn":{"id":9}}"#,
        );
        golden(
            &FromModule::Refused {
                reason: "full".into(),
            },
            r#"{"refused":{"reason":"full"}}"#,
        );
    }
}
