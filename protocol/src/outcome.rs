//! How a call ended: the part of an envelope that Emacs knows. Size and truncation are decided
//! here, so that both paths cut and refuse alike.

use serde::{Deserialize, Serialize};

use crate::{ErrorCode, limits};

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The form returned.
    Success(Success),
    /// It didn't, or never ran.
    Failure(Failure),
}

/// A form that returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Success {
    /// What `prin1-to-string` gives, cut after `max_output_chars` Emacs characters.
    pub value: String,
    /// Whether `value` was cut.
    pub truncated: bool,
    /// The whole length before cutting, in Emacs characters.
    pub original_chars: u64,
    /// What the form printed and messaged; `None` where that was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which kind of failure.
    pub code: ErrorCode,
    /// For the reader: what failed and what to do; never empty, at most
    /// [`limits::MESSAGE_MAX_CHARS`] characters.
    pub message: String,
    /// What a program may want to know of it.
    #[serde(default, skip_serializing_if = "FailureData::is_empty")]
    pub data: FailureData,
}

/// Details of a failure; all optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureData {
    /// The Lisp condition's symbol name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// What became of the form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Evaluation>,
    /// The stack from where the error was signalled to the form, innermost first, a line a frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    /// The places where an Emacs was looked for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked_at: Vec<String>,
}

/// What became of a form that gave no value. Never a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evaluation {
    /// It was withdrawn before it began and will never run.
    NotStarted,
    /// It was running and has been stopped; nothing of it runs on.
    Interrupted,
    /// It may still run.
    Unknown,
}

impl FailureData {
    /// Whether there is nothing in it, and the key is left out.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Failure {
    /// A failure of `code`. An empty message is replaced by the code's name, a long one is cut.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.trim().is_empty() {
            message = code.name().to_owned();
        }
        cut(&mut message, limits::MESSAGE_MAX_CHARS);
        Self {
            code,
            message,
            data: FailureData::default(),
        }
    }

    /// The same, with the condition's symbol.
    pub fn with_symbol(mut self, symbol: impl Into<String>) -> Self {
        self.data.symbol = Some(symbol.into());
        self
    }

    /// The same, saying what became of the form.
    pub fn with_evaluation(mut self, evaluation: Evaluation) -> Self {
        self.data.evaluation = Some(evaluation);
        self
    }

    /// The same, naming the places where an Emacs was looked for.
    pub fn with_looked_at(mut self, places: Vec<String>) -> Self {
        self.data.looked_at = places;
        self
    }

    /// A call that a person stopped, or withdrew before it began.
    pub fn by_person(evaluation: Evaluation) -> Self {
        Self::new(
            ErrorCode::ElispError,
            "a person stopped this call in Emacs; ask them before you go on",
        )
        .with_symbol("quit")
        .with_evaluation(evaluation)
    }

    /// A call that got no answer in time.
    pub fn timeout(timeout_ms: u64, evaluation: Evaluation) -> Self {
        let fate = match evaluation {
            Evaluation::NotStarted => {
                "it was still waiting for Emacs and has been withdrawn: it will not run; try again, or give it a larger timeout_ms"
            }
            Evaluation::Interrupted => {
                "it has been stopped and nothing of it runs on; what it changed before that stays changed"
            }
            Evaluation::Unknown => {
                "it may still be running in Emacs: look at the state it would change before you repeat it"
            }
        };
        Self::new(
            ErrorCode::EvaluationTimeout,
            format!("no answer within {timeout_ms} ms; {fate}"),
        )
        .with_evaluation(evaluation)
    }
}

impl Outcome {
    /// This outcome, or `output_too_large` where its JSON has more bytes than
    /// [`limits::REPLY_MAX_BYTES`].
    pub fn within_limit(self) -> Self {
        // Each byte of text takes at most six in JSON, so only a long one needs to be measured.
        if self.text_bytes() * 6 + 1024 <= limits::REPLY_MAX_BYTES {
            return self;
        }
        let bytes = serde_json::to_vec(&self).map_or(usize::MAX, |json| json.len());
        if bytes <= limits::REPLY_MAX_BYTES {
            return self;
        }
        Failure::new(
            ErrorCode::OutputTooLarge,
            format!(
                "the reply has {bytes} bytes of JSON, the limit is {}; ask for less: a part of the value, or a smaller max_output_chars",
                limits::REPLY_MAX_BYTES
            ),
        )
        .into()
    }

    /// Bytes of the texts in it, to judge its size without writing it out.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Success(success) => {
                success.value.len() + success.output.as_ref().map_or(0, String::len)
            }
            Self::Failure(failure) => {
                failure.message.len() + failure.data.symbol.as_ref().map_or(0, String::len)
            }
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Cuts `text` after `max` characters.
pub fn cut(text: &mut String, max: usize) {
    if let Some((end, _)) = text.char_indices().nth(max) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn success(value: String) -> Outcome {
        Outcome::Success(Success {
            value,
            truncated: false,
            original_chars: 0,
            output: None,
        })
    }

    #[test]
    fn a_message_is_never_empty_and_never_long() {
        assert_eq!(
            Failure::new(ErrorCode::ElispError, " \n").message,
            "elisp_error"
        );
        let long = Failure::new(ErrorCode::ElispError, "é".repeat(5_000));
        assert_eq!(long.message.chars().count(), limits::MESSAGE_MAX_CHARS);
    }

    #[test]
    fn a_reply_at_the_limit_passes_and_one_byte_more_does_not() {
        let around = serde_json::to_vec(&success(String::new())).unwrap().len();
        let at = success("a".repeat(limits::REPLY_MAX_BYTES - around));
        assert_eq!(at.clone().within_limit(), at);
        let over = success("a".repeat(limits::REPLY_MAX_BYTES - around + 1)).within_limit();
        let Outcome::Failure(failure) = over else {
            panic!("{over:?}")
        };
        assert_eq!(failure.code, ErrorCode::OutputTooLarge);
    }

    #[test]
    fn escapes_count_with_their_written_length() {
        let value = "\u{1}".repeat(limits::REPLY_MAX_BYTES / 6);
        let Outcome::Failure(failure) = success(value).within_limit() else {
            panic!()
        };
        assert_eq!(failure.code, ErrorCode::OutputTooLarge);
    }
}
