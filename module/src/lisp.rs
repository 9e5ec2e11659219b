//! Between Lisp values and the protocol's: the shape of a reply.

use emacs::{FromLisp, Result, Value, Vector};
use emacs_runtime_mcp_protocol::{ErrorCode, Failure, Outcome, Success};

use crate::running::{Ending, Stage};

/// A reply of `emacs-runtime-mcp-eval`: `[CODE TEXT CHARS TRUNCATED OUTPUT SYMBOL BACKTRACE]`, or
/// `stopped`, described in that function's documentation. Its strings must be valid Unicode.
pub(crate) struct LispReply(pub(crate) Ending);

impl<'e> FromLisp<'e> for LispReply {
    fn from_lisp(value: Value<'e>) -> Result<Self> {
        if value == value.env.intern("stopped")? {
            return Ok(Self(Ending::Stopped));
        }
        let reply: Vector<'e> = value.into_rust()?;
        let bare = reply.get::<Value<'e>>(3)? == value.env.intern("bare")?;
        let text = text(reply.get(1)?, if bare { "\"" } else { "" })?;
        let Some(code) = reply.get::<Option<String>>(0)? else {
            return Ok(Self(Ending::Done(Outcome::Success(Success {
                value: text,
                original_chars: reply.get(2)?,
                truncated: !bare && reply.get::<Option<Value<'e>>>(3)?.is_some(),
                output: reply.get(4)?,
            }))));
        };
        let Some(code) = ErrorCode::from_name(&code) else {
            return Err(emacs::Error::msg(format!("no such error code: {code}")));
        };
        let mut failure = Failure::new(code, text);
        failure.data.symbol = reply.get(5)?;
        failure.data.backtrace = reply.get(6)?;
        Ok(Self(Ending::Done(failure.into())))
    }
}

/// The text of a Lisp string of valid Unicode, perhaps a long one, between two of `quote`. To be
/// asked for its length Emacs would encode it once more, and leave that to its collector.
fn text(string: Value<'_>, quote: &str) -> Result<String> {
    let bytes: usize = string.env.call("string-bytes", [string])?.into_rust()?;
    let mut text = Vec::with_capacity(bytes + 2 * quote.len() + 1);
    text.extend_from_slice(quote.as_bytes());
    // Emacs ends a string with a zero.
    text.resize(quote.len() + bytes + 1, 0);
    let bytes = string.copy_string_contents(&mut text[quote.len()..])?.len();
    text.truncate(quote.len() + bytes);
    text.extend_from_slice(quote.as_bytes());
    Ok(String::from_utf8(text)?)
}

/// What Lisp tells of a running form: one of the symbols `enter`, `thrown`, `spare` and
/// `leave`.
pub(crate) struct LispStage(pub(crate) Stage);

impl<'e> FromLisp<'e> for LispStage {
    fn from_lisp(value: Value<'e>) -> Result<Self> {
        for (name, stage) in [
            ("enter", Stage::Enter),
            ("thrown", Stage::Thrown),
            ("spare", Stage::Spare),
            ("leave", Stage::Leave),
        ] {
            if value == value.env.intern(name)? {
                return Ok(Self(stage));
            }
        }
        Err(emacs::Error::msg("no such stage"))
    }
}
