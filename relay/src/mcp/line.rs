//! Lines of input: bytes to lines, and a line to a message or to what is wrong with it. Pure.

use std::fmt;

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, Extensions, RequestId};
use rmcp::model::{GetExtensions, JsonRpcMessage};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::id::IdScanner;

/// Longest line, in bytes: above the largest valid call, in which each of 262,144 characters is
/// written as a surrogate pair of twelve bytes.
pub(super) const LINE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Cuts input into lines, keeping no more of one than [`LINE_MAX_BYTES`].
#[derive(Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Where the line that is being read begins.
    start: usize,
    /// Up to here there is no newline.
    searched: usize,
    /// The line was too long; the rest of it is only looked through for its id.
    too_long: Option<IdScanner>,
}

/// A whole line.
pub(super) enum Line {
    /// Its bytes, without what ends it.
    Whole(Vec<u8>),
    /// It was longer than the limit; it had this id.
    TooLong(Option<RequestId>),
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(64 * 1024);
            (self.start, self.searched) = (0, 0);
        } else if self.start > 0 && self.buffer.len() + bytes.len() > self.buffer.capacity() {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, or `None` while more bytes are needed.
    pub(super) fn next(&mut self) -> Option<Line> {
        let newline = self.buffer[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n');
        let end = newline.map_or(self.buffer.len(), |at| self.searched + at);
        let line = &self.buffer[self.start..end];
        if self.too_long.is_none() && line.len() > LINE_MAX_BYTES {
            self.too_long = Some(IdScanner::default());
        }
        if let Some(scanner) = &mut self.too_long {
            scanner.push(line);
            self.start = end;
        }
        self.searched = end;
        newline?;
        (self.start, self.searched) = (end + 1, end + 1);
        Some(match self.too_long.take() {
            Some(scanner) => Line::TooLong(scanner.id()),
            None => Line::Whole(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
        })
    }
}

/// What a line is.
pub(super) enum Incoming {
    /// A message for rmcp.
    Message(Box<ClientJsonRpcMessage>),
    /// A ping that asks for no more than that somebody is there, and its id.
    Ping(RequestId),
    /// No message; the answer to send, with the id where one could be found.
    Refused(Option<RequestId>, ErrorData),
    /// Nothing to answer.
    Nothing,
}

/// A key that stood twice in a tool call's arguments; travels in the request's extensions, since a
/// parsed object no longer shows it.
#[derive(Debug, Clone)]
pub(super) struct DuplicateKey(pub(super) String);

/// When the relay had the request; travels in its extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived(pub(super) tokio::time::Instant);

/// Reads one line.
pub(super) fn read(line: Line) -> Incoming {
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong(id) => {
            let message = format!("message too large: more than {LINE_MAX_BYTES} bytes");
            return refused(id, ErrorCode::INVALID_REQUEST, message);
        }
    };
    // Some shells put a byte order mark before what they pipe.
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
    if line.trim_ascii().is_empty() {
        return Incoming::Nothing;
    }
    if let Some(id) = ping(line) {
        return Incoming::Ping(id);
    }
    let arrived = Arrived(tokio::time::Instant::now());
    match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
        Ok(mut message) => {
            if let Some(extensions) = call_extensions(&mut message) {
                extensions.insert(arrived);
                if let Some(key) = duplicate_key(line) {
                    extensions.insert(DuplicateKey(key));
                }
            }
            Incoming::Message(Box::new(message))
        }
        Err(error) => {
            let mut scanner = IdScanner::default();
            scanner.push(line);
            let id = scanner.id();
            match error.classify() {
                // Well-formed JSON that is no request, or has an id that can't be one.
                serde_json::error::Category::Data => {
                    refused(id, ErrorCode::INVALID_REQUEST, error.to_string())
                }
                _ => refused(id, ErrorCode::PARSE_ERROR, error.to_string()),
            }
        }
    }
}

/// The id of a line that is a bare ping. Those are told apart here, so that they cost next to
/// nothing; one that says more of itself, as the stateless revision wants it, goes the usual way.
fn ping(line: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Ping<'a> {
        jsonrpc: &'a str,
        id: RequestId,
        method: &'a str,
    }
    const BARE_PING_MAX_BYTES: usize = 256;
    if line.len() > BARE_PING_MAX_BYTES {
        return None;
    }
    let ping = serde_json::from_slice::<Ping<'_>>(line).ok()?;
    (ping.jsonrpc == "2.0" && ping.method == "ping").then_some(ping.id)
}

fn refused(id: Option<RequestId>, code: ErrorCode, message: String) -> Incoming {
    Incoming::Refused(id, ErrorData::new(code, message, None))
}

/// The extensions of a message that is a tool call, in whatever shape.
fn call_extensions(message: &mut ClientJsonRpcMessage) -> Option<&mut Extensions> {
    match message {
        JsonRpcMessage::Request(request) if request.request.method() == "tools/call" => {
            Some(request.request.extensions_mut())
        }
        _ => None,
    }
}

fn duplicate_key(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Call {
        params: Params,
    }
    #[derive(Deserialize)]
    struct Params {
        #[serde(default)]
        arguments: Option<Keys>,
    }
    serde_json::from_slice::<Call>(line)
        .ok()?
        .params
        .arguments?
        .twice
}

/// An object of which only the first key that stands twice is kept.
struct Keys {
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor;
        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                // Kept small: a call with more keys than that is refused for the first unknown one.
                const KEYS_MAX: usize = 16;
                let mut seen: Vec<String> = Vec::new();
                let mut twice = None;
                while let Some(key) = map.next_key::<String>()? {
                    map.next_value::<IgnoredAny>()?;
                    if seen.contains(&key) {
                        twice.get_or_insert(key);
                    } else if seen.len() < KEYS_MAX {
                        seen.push(key);
                    }
                }
                Ok(Keys { twice })
            }
        }
        deserializer.deserialize_map(KeysVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next() {
                all.push(match line {
                    Line::Whole(line) => String::from_utf8(line).unwrap(),
                    Line::TooLong(id) => format!("TOO LONG {id:?}"),
                });
            }
        }
        all
    }

    #[test]
    fn lines_come_out_whole_however_they_come_in() {
        let stream = "a\r\n\nbé\nlast".as_bytes();
        for cut in 0..stream.len() {
            assert_eq!(
                lines(&[&stream[..cut], &stream[cut..]]),
                ["a", "", "bé"],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_line_at_the_limit_passes_and_a_longer_one_is_dropped_to_its_end() {
        let at = [vec![b'a'; LINE_MAX_BYTES], b"\n".to_vec()].concat();
        assert_eq!(lines(&[&at])[0].len(), LINE_MAX_BYTES);
        let half = vec![b'a'; LINE_MAX_BYTES / 2 + 1];
        assert_eq!(
            lines(&[br#"{"p":""#, &half, &half, &half, b"\",\"id\":7}\r\nb\n"]),
            ["TOO LONG Some(Number(7))", "b"]
        );
        assert_eq!(lines(&[&half, &half, b"\nb\n"]), ["TOO LONG None", "b"]);
    }

    fn refusal(line: &str) -> (Option<RequestId>, i32) {
        match read(Line::Whole(line.as_bytes().to_vec())) {
            Incoming::Refused(id, error) => (id, error.code.0),
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_id() {
        let seven = Some(RequestId::Number(7));
        for (line, id, code) in [
            ("not json", None, -32700),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"#,
                seven.clone(),
                -32700,
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"\ud800"}}"#,
                seven.clone(),
                -32700,
            ),
            (
                r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#,
                None,
                -32600,
            ),
            ("[]", None, -32600),
            ("7", None, -32600),
            (
                r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
                seven.clone(),
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#, seven, -32600),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                None,
                -32600,
            ),
        ] {
            assert_eq!(refusal(line), (id, code), "{line}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_seen() {
        let line = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"emacs_eval","arguments":{"expression":"1","timeout_ms":100,"expression":"2"}}}"#;
        let Incoming::Message(mut message) = read(Line::Whole(line.as_bytes().to_vec())) else {
            panic!()
        };
        let extensions = call_extensions(&mut message).unwrap();
        assert_eq!(extensions.get::<DuplicateKey>().unwrap().0, "expression");
        assert!(extensions.get::<Arrived>().is_some());
    }
}
