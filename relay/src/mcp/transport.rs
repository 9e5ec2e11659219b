//! rmcp's transport over our lines: every request that has an id gets an answer, whatever else is
//! wrong with its line, and a bad line ends nothing.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, GetMeta,
    JsonRpcMessage, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::line::{self, Incoming, Lines};
use super::stdio::{Input, Output};

/// Messages that may wait to be written; then no more lines are read until the client reads. The
/// answers of tool calls can be more: as many as calls may be under way.
const UNWRITTEN_MAX: usize = 64;

/// Tells of the two ways in which a client leaves.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    /// Cancelled at the end of input.
    pub(super) input_ended: CancellationToken,
    /// Cancelled when output can't be written any more.
    pub(super) output_closed: CancellationToken,
}

/// A client over stdin and stdout.
pub(super) struct Stdio {
    input: Input,
    lines: Lines,
    buffer: Vec<u8>,
    writer: Writer,
    /// The ids that are not answered yet.
    in_flight: HashSet<RequestId>,
    /// Whether rmcp has a session. Before that a notification would end it.
    open: bool,
    watch: Watch,
}

/// Writes whole lines, one after the other.
#[derive(Clone)]
struct Writer {
    output: Arc<tokio::sync::Mutex<Output>>,
    /// How many messages wait to be written.
    unwritten: Arc<watch::Sender<usize>>,
    closed: CancellationToken,
}

impl Writer {
    fn new(output: Output, closed: CancellationToken) -> Self {
        Self {
            output: Arc::new(tokio::sync::Mutex::new(output)),
            unwritten: Arc::default(),
            closed,
        }
    }

    /// Waits until the client has read enough that more may be written for it.
    async fn room(&self) {
        let mut unwritten = self.unwritten.subscribe();
        // The sender is ours, so it is there.
        let _ = unwritten.wait_for(|count| *count < UNWRITTEN_MAX).await;
    }

    /// Counted from now on, written when the future is polled; dropped, it counts no more.
    fn write(
        &self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let counted = Unwritten::new(&self.unwritten);
        let writer = self.clone();
        async move {
            let written = writer.write_now(&message).await;
            drop(counted);
            written
        }
    }

    async fn write_now(&self, message: &ServerJsonRpcMessage) -> io::Result<()> {
        let mut output = self.output.lock().await;
        let mut text = escape_separators(serde_json::to_vec(message)?);
        text.push(b'\n');
        let written = async {
            output.write_all(&text).await?;
            output.flush().await
        };
        written.await.inspect_err(|_| self.closed.cancel())
    }
}

/// One message that waits to be written.
struct Unwritten(Arc<watch::Sender<usize>>);

impl Unwritten {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Stdio {
    pub(super) fn new(input: Input, output: Output, watch: Watch) -> Self {
        Self {
            input,
            lines: Lines::default(),
            buffer: vec![0; 64 * 1024],
            writer: Writer::new(output, watch.output_closed.clone()),
            in_flight: HashSet::new(),
            open: false,
            watch,
        }
    }

    /// What of `message` goes on to rmcp.
    fn admit(&mut self, message: ClientJsonRpcMessage) -> Incoming {
        match &message {
            JsonRpcMessage::Request(request) => {
                if !self.in_flight.insert(request.id.clone()) {
                    return in_use(request.id.clone());
                }
                self.open |= opens(&request.request);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // It will not be answered.
                    self.in_flight.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        if self.open || matches!(message, JsonRpcMessage::Request(_)) {
            Incoming::Message(Box::new(message))
        } else {
            Incoming::Nothing
        }
    }

    /// Answers a line that rmcp never sees, without waiting for the client to read.
    fn answer(&self, answer: ServerJsonRpcMessage) {
        tokio::spawn(self.writer.write(answer));
    }
}

/// The refusal of an id that a request has which is not answered yet.
fn in_use(id: RequestId) -> Incoming {
    let text = format!("id {id} is in use by a request that is not answered yet");
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, text, None);
    Incoming::Refused(Some(id), error)
}

/// Escapes what some clients take for the end of a line: U+2028, U+2029 and U+0085. In JSON they can
/// only stand inside strings, where an escape means the same.
fn escape_separators(json: Vec<u8>) -> Vec<u8> {
    const SEPARATORS: [(&[u8], &[u8]); 3] = [
        ("\u{2028}".as_bytes(), br"\u2028"),
        ("\u{2029}".as_bytes(), br"\u2029"),
        ("\u{85}".as_bytes(), br"\u0085"),
    ];
    let separator = |at: usize| {
        SEPARATORS
            .iter()
            .find(|(raw, _)| json[at..].starts_with(raw))
    };
    // Mostly there is none, and nothing is copied.
    let Some(first) = (0..json.len()).find(|&at| json[at] >= 0xc2 && separator(at).is_some())
    else {
        return json;
    };
    let mut escaped = json[..first].to_vec();
    let mut at = first;
    while at < json.len() {
        if let Some((raw, escape)) = separator(at) {
            escaped.extend_from_slice(escape);
            at += raw.len();
        } else {
            escaped.push(json[at]);
            at += 1;
        }
    }
    escaped
}

/// Whether rmcp begins a session with `request`; it stays before one with all others.
fn opens(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => false,
        request => {
            let meta = request.get_meta();
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28)
                .is_empty()
                && meta
                    .protocol_version()
                    .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
        }
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            JsonRpcMessage::Response(response) => {
                self.in_flight.remove(&response.id);
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.in_flight.remove(id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        self.writer.write(message)
    }

    /// May be dropped at any await without losing anything.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.writer.room().await;
            while let Some(line) = self.lines.next() {
                let incoming = match line::read(line) {
                    Incoming::Message(message) => self.admit(*message),
                    Incoming::Ping(id) if self.in_flight.contains(&id) => in_use(id),
                    other => other,
                };
                let answer = match incoming {
                    Incoming::Message(message) => return Some(*message),
                    Incoming::Ping(id) => {
                        ServerJsonRpcMessage::response(ServerResult::empty(()), id)
                    }
                    Incoming::Refused(id, error) => {
                        tracing::debug!(code = error.code.0, message = %error.message, "refused a line");
                        ServerJsonRpcMessage::error(error, id)
                    }
                    Incoming::Nothing => continue,
                };
                self.answer(answer);
                self.writer.room().await;
            }
            match self.input.read(&mut self.buffer).await {
                Ok(count) if count > 0 => self.lines.push(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client that is gone without a word has ended the input just the same.
                Ok(_) | Err(_) => {
                    self.watch.input_ended.cancel();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_that_is_dropped_takes_no_room() {
        let writer = Writer::new(Box::new(tokio::io::sink()), CancellationToken::new());
        let answer = |id| ServerJsonRpcMessage::response(ServerResult::empty(()), id);
        for id in 0..UNWRITTEN_MAX as i64 {
            drop(writer.write(answer(RequestId::Number(id))));
        }
        let written = writer.write(answer(RequestId::Number(-1)));
        assert_eq!(*writer.unwritten.borrow(), 1);
        written.await.unwrap();
        assert_eq!(*writer.unwritten.borrow(), 0);
    }

    #[test]
    fn separators_are_escaped_and_nothing_else_is_touched() {
        for text in [
            "plain",
            "é日本😀\u{2027}\u{202a}\u{84}",
            "a\u{2028}b\u{2029}\u{85}c\u{2028}",
        ] {
            let json = serde_json::to_vec(text).unwrap();
            let escaped = escape_separators(json.clone());
            assert_eq!(serde_json::from_slice::<String>(&escaped).unwrap(), text);
            let written = String::from_utf8(escaped).unwrap();
            assert!(!written.contains(['\u{2028}', '\u{2029}', '\u{85}']));
            assert_eq!(written.contains("\\u"), text.contains('\u{2028}'));
        }
    }
}
