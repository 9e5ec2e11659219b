//! The arguments of `emacs_eval`: from any JSON to a checked request, or to what is wrong with it.

use std::ops::RangeInclusive;

use emacs_runtime_mcp_protocol::{ErrorCode, Failure, limits};
use serde_json::{Map, Value};

/// A call whose arguments are all in range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Source text of one form.
    pub(crate) expression: String,
    /// Time until the answer must be out, in milliseconds.
    pub(crate) timeout_ms: u64,
    /// After how many Emacs characters the value is cut.
    pub(crate) max_output_chars: u64,
}

/// What a call that doesn't say gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    /// For `timeout_ms`.
    pub(crate) timeout_ms: u64,
    /// For `max_output_chars`.
    pub(crate) max_output_chars: u64,
}

impl Request {
    /// Checks `arguments`, as they stood in the call; `None` where there were none.
    ///
    /// # Errors
    ///
    /// `invalid_request`, naming the key.
    pub(crate) fn new(arguments: Option<&Value>, defaults: Defaults) -> Result<Self, Failure> {
        let empty = Map::new();
        let arguments = match arguments {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(arguments)) => arguments,
            Some(other) => {
                return Err(invalid(format!(
                    "arguments must be an object with the key expression, not {}",
                    kind(other)
                )));
            }
        };
        let known = ["expression", "timeout_ms", "max_output_chars"];
        if let Some(key) = arguments.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(invalid(format!(
                "unknown key {key:?}; the keys are {}",
                known.join(", ")
            )));
        }
        Ok(Self {
            expression: expression(arguments.get("expression"))?,
            timeout_ms: integer(arguments, "timeout_ms", limits::TIMEOUT_MS)?
                .unwrap_or(defaults.timeout_ms),
            max_output_chars: integer(arguments, "max_output_chars", limits::OUTPUT_CHARS)?
                .unwrap_or(defaults.max_output_chars),
        })
    }
}

/// An `invalid_request` that says `message`.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InvalidRequest, message)
}

fn expression(value: Option<&Value>) -> Result<String, Failure> {
    let text = match value {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => {
            return Err(invalid(
                "expression is required: the source text of one Emacs Lisp form",
            ));
        }
        Some(other) => {
            return Err(invalid(format!(
                "expression must be a string, not {}",
                kind(other)
            )));
        }
    };
    if text.trim().is_empty() {
        return Err(invalid(
            "expression is empty; it must be one Emacs Lisp form",
        ));
    }
    // A text of no more bytes than that needs no counting.
    if text.len() > limits::EXPRESSION_MAX_CHARS {
        let chars = text.chars().count();
        if chars > limits::EXPRESSION_MAX_CHARS {
            return Err(invalid(format!(
                "expression has {chars} characters, the limit is {}; load a file instead",
                limits::EXPRESSION_MAX_CHARS
            )));
        }
    }
    Ok(text.clone())
}

/// The number at `key`; `None` where it is left out or null.
fn integer(
    arguments: &Map<String, Value>,
    key: &str,
    range: RangeInclusive<u64>,
) -> Result<Option<u64>, Failure> {
    let wanted = || {
        format!(
            "{key} must be a whole number from {} to {}",
            range.start(),
            range.end()
        )
    };
    let number = match arguments.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number,
        Some(other) => return Err(invalid(format!("{}, not {}", wanted(), kind(other)))),
    };
    // JSON has one kind of number: 100.0 is whole.
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        let fits = float.fract() == 0.0 && (0.0..=9e15).contains(&float);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked"
        )]
        fits.then_some(float as u64)
    });
    match whole.filter(|whole| range.contains(whole)) {
        Some(whole) => Ok(Some(whole)),
        None => Err(invalid(format!("{}, not {number}", wanted()))),
    }
}

/// What a JSON value is, for a message.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DEFAULTS: Defaults = Defaults {
        timeout_ms: 10_000,
        max_output_chars: 65_536,
    };

    fn check(arguments: Value) -> Result<Request, String> {
        Request::new(Some(&arguments), DEFAULTS).map_err(|failure| {
            assert_eq!(failure.code, ErrorCode::InvalidRequest);
            failure.message
        })
    }

    #[test]
    fn what_is_left_out_or_null_has_its_default() {
        for arguments in [
            json!({"expression": "1"}),
            json!({"expression": "1", "timeout_ms": null, "max_output_chars": null}),
        ] {
            let request = check(arguments).unwrap();
            assert_eq!(
                (request.timeout_ms, request.max_output_chars),
                (10_000, 65_536)
            );
        }
    }

    #[test]
    fn numbers_at_their_limits_pass_and_one_past_them_do_not() {
        for (key, good, bad) in [
            (
                "timeout_ms",
                [json!(100), json!(120_000), json!(100.0)],
                [
                    json!(99),
                    json!(120_001),
                    json!(100.5),
                    json!("100"),
                    json!(true),
                    json!(-100),
                ],
            ),
            (
                "max_output_chars",
                [json!(1), json!(262_144), json!(1e3)],
                [
                    json!(0),
                    json!(262_145),
                    json!(0.5),
                    json!([1]),
                    json!({}),
                    json!(1e300),
                ],
            ),
        ] {
            for value in good {
                check(json!({"expression": "1", key: value})).unwrap();
            }
            for value in bad {
                let error = check(json!({"expression": "1", key: value})).unwrap_err();
                assert!(error.contains(key), "{error}");
            }
        }
    }

    #[test]
    fn expressions_are_counted_in_code_points() {
        for wide in ["a", "é", "😀"] {
            check(json!({"expression": wide.repeat(limits::EXPRESSION_MAX_CHARS)})).unwrap();
            let long = wide.repeat(limits::EXPRESSION_MAX_CHARS + 1);
            assert!(
                check(json!({"expression": long}))
                    .unwrap_err()
                    .contains("262145")
            );
        }
        for blank in ["", " \n\t", "\u{a0}"] {
            assert!(
                check(json!({"expression": blank}))
                    .unwrap_err()
                    .contains("expression")
            );
        }
    }

    #[test]
    fn what_is_no_closed_object_names_the_key() {
        for (arguments, word) in [
            (json!({}), "expression"),
            (json!({"expression": null}), "expression"),
            (json!({"expression": 1}), "expression"),
            (json!({"expression": "1", "timeout": 5}), "\"timeout\""),
            (json!([1]), "arguments"),
            (json!("1"), "arguments"),
            (Value::Null, "expression"),
        ] {
            let error = check(arguments).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(
            Request::new(None, DEFAULTS)
                .unwrap_err()
                .message
                .contains("expression")
        );
    }
}
