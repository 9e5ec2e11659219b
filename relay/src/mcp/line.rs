//! Lines of input: bytes to lines, and a line to a message or to what is wrong with it. Pure.

use std::fmt;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorCode,
    ErrorData, GetExtensions, JsonObject, JsonRpcMessage, RequestId, RequestMetaObject,
};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

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
    let arrived = Arrived(tokio::time::Instant::now());
    if let Some(incoming) = usual(line, arrived) {
        return incoming;
    }
    match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
        Ok(mut message) => {
            if let JsonRpcMessage::Request(request) = &mut message {
                request.request.extensions_mut().insert(arrived);
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

/// Reads a line that is a call or a bare ping, which nearly all are, in one go; rmcp tries one kind
/// of message after the other. `None` for all else, calls of a wrong shape among them.
fn usual(line: &[u8], arrived: Arrived) -> Option<Incoming> {
    #[derive(Deserialize)]
    struct Usual<'a> {
        jsonrpc: &'a str,
        id: RequestId,
        method: &'a str,
        params: Option<Params>,
    }
    #[derive(Deserialize)]
    struct Params {
        name: String,
        arguments: Option<Arguments>,
        #[serde(rename = "_meta")]
        meta: Option<RequestMetaObject>,
    }
    let line = serde_json::from_slice::<Usual<'_>>(line).ok()?;
    match (line.jsonrpc, line.method, line.params) {
        ("2.0", "ping", None) => Some(Incoming::Ping(line.id)),
        ("2.0", "tools/call", Some(params)) => {
            let mut call = CallToolRequest::new(CallToolRequestParams::new(params.name));
            call.extensions.insert(arrived);
            if let Some(meta) = params.meta {
                call.extensions.insert(meta);
            }
            if let Some(arguments) = params.arguments {
                call.params.arguments = Some(arguments.all);
                if let Some(key) = arguments.twice {
                    call.extensions.insert(DuplicateKey(key));
                }
            }
            let request = ClientRequest::CallToolRequest(call);
            let message = ClientJsonRpcMessage::request(request, line.id);
            Some(Incoming::Message(Box::new(message)))
        }
        _ => None,
    }
}

fn refused(id: Option<RequestId>, code: ErrorCode, message: String) -> Incoming {
    Incoming::Refused(id, ErrorData::new(code, message, None))
}

/// An object, and the first key that stands in it twice.
#[derive(Default)]
struct Arguments {
    all: JsonObject,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgumentsVisitor;
        impl<'de> Visitor<'de> for ArgumentsVisitor {
            type Value = Arguments;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Arguments, A::Error> {
                let mut arguments = Arguments::default();
                while let Some(key) = map.next_key::<String>()? {
                    if arguments.all.contains_key(&key) {
                        arguments.twice.get_or_insert_with(|| key.clone());
                    }
                    arguments.all.insert(key, map.next_value()?);
                }
                Ok(arguments)
            }
        }
        deserializer.deserialize_map(ArgumentsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        let Incoming::Message(message) = read(Line::Whole(line.as_bytes().to_vec())) else {
            panic!()
        };
        let JsonRpcMessage::Request(request) = *message else {
            panic!()
        };
        let extensions = request.request.extensions();
        assert_eq!(extensions.get::<DuplicateKey>().unwrap().0, "expression");
        assert!(extensions.get::<Arrived>().is_some());
    }

    #[test]
    fn a_call_is_read_as_rmcp_reads_it() {
        let arrived = Arrived(tokio::time::Instant::now());
        for params in [
            r#"{"name":"emacs_eval","arguments":{"expression":"(+ 1 1) \"\u00e9\ud83d\ude00\"","timeout_ms":1e3}}"#,
            r#"{"name":"emacs_eval","arguments":{},"_meta":{"progressToken":7,"x":{"y":[null]}}}"#,
            r#"{"name":"\u0065macs_eval","arguments":null,"_meta":null}"#,
            r#"{"_meta":{},"name":"other","more":[1,{}]}"#,
        ] {
            for id in ["7", r#""seven""#, "-9007199254740993"] {
                let line = format!(
                    r#"{{"method":"tools/call","id":{id},"params":{params},"jsonrpc":"2.0","x":0}}"#
                );
                let Some(Incoming::Message(ours)) = usual(line.as_bytes(), arrived) else {
                    panic!("{line}")
                };
                let theirs: ClientJsonRpcMessage = serde_json::from_str(&line).unwrap();
                assert_eq!(json!(ours), json!(theirs), "{line}");
            }
        }
        for params in [
            "7",
            "[]",
            "{}",
            r#"{"name":7}"#,
            r#"{"name":"x","arguments":[]}"#,
        ] {
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
            assert!(usual(line.as_bytes(), arrived).is_none(), "{line}");
        }
    }
}
