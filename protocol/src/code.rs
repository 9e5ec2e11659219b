//! The stable error codes of an envelope; what became of a failed call in one word.

use serde::{Deserialize, Serialize};

/// Why a call failed. The names on the wire are part of the contract and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The arguments break the tool's input table; nothing reached Emacs.
    InvalidRequest,
    /// The expression can't be read, or is not exactly one form; nothing was evaluated.
    InvalidExpression,
    /// No Emacs at the selected place, or it went away, or its queue is full.
    EmacsUnavailable,
    /// The form signalled, was quit, or threw past the evaluation.
    ElispError,
    /// No answer within `timeout_ms`, the wait in the queue included.
    EvaluationTimeout,
    /// The reply's JSON is larger than [`crate::limits::REPLY_MAX_BYTES`].
    OutputTooLarge,
    /// The reply is not one the other side may send.
    BridgeProtocolError,
    /// Anything else: a defect of ours.
    InternalError,
}

impl ErrorCode {
    /// Every code, in the order of the contract.
    pub const ALL: [Self; 8] = [
        Self::InvalidRequest,
        Self::InvalidExpression,
        Self::EmacsUnavailable,
        Self::ElispError,
        Self::EvaluationTimeout,
        Self::OutputTooLarge,
        Self::BridgeProtocolError,
        Self::InternalError,
    ];

    /// The code as it stands in an envelope.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidExpression => "invalid_expression",
            Self::EmacsUnavailable => "emacs_unavailable",
            Self::ElispError => "elisp_error",
            Self::EvaluationTimeout => "evaluation_timeout",
            Self::OutputTooLarge => "output_too_large",
            Self::BridgeProtocolError => "bridge_protocol_error",
            Self::InternalError => "internal_error",
        }
    }

    /// The code of `name`, or `None` for a name that is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_wire_form() {
        for code in ErrorCode::ALL {
            let wire = serde_json::to_string(&code).unwrap();
            assert_eq!(wire, format!("\"{}\"", code.name()));
            assert_eq!(ErrorCode::from_name(code.name()), Some(code));
        }
        assert_eq!(ErrorCode::from_name("no_such_code"), None);
    }
}
