//! The envelope: an outcome as a client of `emacs_eval` sees it.

use emacs_runtime_mcp_protocol::outcome::FailureData;
use emacs_runtime_mcp_protocol::{ErrorCode, Failure, Outcome};
use serde::Serialize;

/// An answer to one call. Its keys come out in the order of the contract.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Envelope {
    /// `{"ok":true,…}`
    Success {
        /// Always true.
        ok: bool,
        /// The printed value.
        value: String,
        /// Whether it was cut.
        truncated: bool,
        /// Its whole length, in Emacs characters.
        original_chars: u64,
        /// What the form printed and messaged.
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<String>,
        /// From the request to the answer, in milliseconds.
        elapsed_ms: u64,
    },
    /// `{"ok":false,…}`
    Failure {
        /// Always false.
        ok: bool,
        /// What failed.
        error: Error,
        /// From the request to the answer, in milliseconds.
        elapsed_ms: u64,
    },
}

/// The `error` of a failure.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    code: ErrorCode,
    message: String,
    #[serde(skip_serializing_if = "FailureData::is_empty")]
    data: FailureData,
}

impl Envelope {
    /// The envelope of `outcome` after `elapsed_ms` milliseconds.
    pub(crate) fn new(outcome: Outcome, elapsed_ms: u64) -> Self {
        match outcome {
            Outcome::Success(success) => Self::Success {
                ok: true,
                value: success.value,
                truncated: success.truncated,
                original_chars: success.original_chars,
                output: success.output,
                elapsed_ms,
            },
            Outcome::Failure(Failure {
                code,
                message,
                data,
            }) => Self::Failure {
                ok: false,
                error: Error {
                    code,
                    message,
                    data,
                },
                elapsed_ms,
            },
        }
    }

    /// Whether it is a success.
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Self::Success { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emacs_runtime_mcp_protocol::{Evaluation, Success};

    #[test]
    fn keys_stand_in_the_contracts_order() {
        let success = Outcome::Success(Success {
            value: "2".into(),
            truncated: false,
            original_chars: 1,
            output: Some("hi".into()),
        });
        assert_eq!(
            serde_json::to_string(&Envelope::new(success, 4)).unwrap(),
            r#"{"ok":true,"value":"2","truncated":false,"original_chars":1,"output":"hi","elapsed_ms":4}"#
        );
        let failure = Failure::new(ErrorCode::EvaluationTimeout, "late")
            .with_symbol("quit")
            .with_evaluation(Evaluation::Unknown);
        assert_eq!(
            serde_json::to_string(&Envelope::new(failure.into(), 4)).unwrap(),
            r#"{"ok":false,"error":{"code":"evaluation_timeout","message":"late","data":{"symbol":"quit","evaluation":"unknown"}},"elapsed_ms":4}"#
        );
        let bare = Failure::new(ErrorCode::InternalError, "x");
        assert_eq!(
            serde_json::to_string(&Envelope::new(bare.into(), 0)).unwrap(),
            r#"{"ok":false,"error":{"code":"internal_error","message":"x"},"elapsed_ms":0}"#
        );
    }
}
