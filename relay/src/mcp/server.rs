//! The MCP server: lists the one tool and runs calls of it. A failed evaluation is a result that the
//! model reads; a protocol error is only for what can't be routed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use emacs_runtime_mcp_protocol::{ErrorCode, Failure, Outcome, VERSION};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
    ErrorData, Implementation, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::line::{Arrived, DuplicateKey};
use super::tool;
use crate::emacs::{Answer, Emacs, Progress, Via};
use crate::envelope::Envelope;
use crate::request::{Defaults, Request, invalid};

/// Serves one client.
pub(super) struct Server {
    emacs: Arc<Emacs>,
    defaults: Defaults,
    tool: Tool,
    /// Cancelled when the relay ends: calls then end with what is known of them.
    stop: CancellationToken,
}

impl Server {
    pub(super) fn new(emacs: Arc<Emacs>, defaults: Defaults, stop: CancellationToken) -> Self {
        Self {
            emacs,
            defaults,
            tool: tool::tool(defaults),
            stop,
        }
    }

    /// One call of `emacs_eval`, whatever its arguments are.
    async fn eval(
        &self,
        arguments: Option<Value>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let arrived = context
            .extensions
            .get::<Arrived>()
            .map_or_else(Instant::now, |at| at.0);
        let request = match context.extensions.get::<DuplicateKey>() {
            Some(DuplicateKey(key)) => Err(invalid(format!("the key {key:?} stands twice"))),
            None => Request::new(arguments.as_ref(), self.defaults),
        };
        let progress = Reporter::new(context);
        let report = |progress_made| progress.report(progress_made);
        let answer = match request {
            Err(failure) => Answer {
                outcome: failure.into(),
                via: None,
            },
            Ok(request) => tokio::select! {
                answer = self.emacs.evaluate(&request, arrived, &report) => answer,
                // rmcp drops the answer to a cancelled request.
                () = context.ct.cancelled() => Answer { outcome: ended().into(), via: None },
                () = self.stop.cancelled() => Answer { outcome: ended().into(), via: None },
            },
        };
        result(answer, arrived)
    }
}

/// Tells a client that gave a token how far its call is.
struct Reporter {
    token: Option<ProgressToken>,
    peer: Peer<RoleServer>,
    count: AtomicU32,
}

impl Reporter {
    fn new(context: &RequestContext<RoleServer>) -> Self {
        Self {
            token: context.meta.get_progress_token(),
            peer: context.peer.clone(),
            count: AtomicU32::new(0),
        }
    }

    fn report(&self, progress: Progress) {
        let Some(token) = self.token.clone() else {
            return;
        };
        let message = match progress {
            Progress::Running => "the form runs in Emacs".to_owned(),
            Progress::Waiting { ahead: 1 } => "the form waits behind another one".to_owned(),
            Progress::Waiting { ahead } => format!("the form waits behind {ahead} others"),
        };
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let params = ProgressNotificationParam::new(token, f64::from(count)).with_message(message);
        let peer = self.peer.clone();
        tokio::spawn(async move {
            // A client that has left hears nothing.
            let _ = peer.notify_progress(params).await;
        });
    }
}

/// What a call gets that was under way when the relay had to end.
fn ended() -> Failure {
    Failure::new(
        ErrorCode::EmacsUnavailable,
        "the relay was ended before Emacs had answered",
    )
    .with_evaluation(emacs_runtime_mcp_protocol::Evaluation::Unknown)
}

/// The MCP result of `answer`: the envelope as structured content and, the same, as text.
fn result(answer: Answer, arrived: Instant) -> CallToolResult {
    let elapsed_ms = u64::try_from(arrived.elapsed().as_millis()).unwrap_or(u64::MAX);
    let envelope = Envelope::new(answer.outcome, elapsed_ms);
    let ok = envelope.is_ok();
    let envelope = serde_json::to_value(envelope).unwrap_or_else(|error| {
        let failure = Failure::new(ErrorCode::InternalError, error.to_string());
        json!(Envelope::new(Outcome::Failure(failure), elapsed_ms))
    });
    let mut result = if ok {
        CallToolResult::structured(envelope)
    } else {
        CallToolResult::structured_error(envelope)
    };
    let meta = match answer.via {
        None => return result,
        Some(Via::Emacsclient) => json!({ "transport": "emacsclient" }),
        Some(Via::Module { queue_ms }) => json!({ "transport": "module", "queue_ms": queue_ms }),
    };
    if let Value::Object(meta) = meta {
        result.meta = Some(MetaObject(meta));
    }
    result
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("emacs-runtime-mcp", VERSION).with_title("Emacs"))
            .with_instructions(tool::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // All fits one page, so no cursor was ever handed out.
        if let Some(cursor) = request.and_then(|request| request.cursor) {
            return Err(ErrorData::invalid_params(
                format!("unknown cursor: {cursor}"),
                None,
            ));
        }
        Ok(ListToolsResult::with_all_items(vec![self.tool.clone()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == tool::NAME).then(|| self.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != tool::NAME {
            return Err(unknown_tool(&request.name));
        }
        Ok(self
            .eval(request.arguments.map(Value::Object), &context)
            .await
            .into())
    }

    /// A call whose `arguments` are no object doesn't parse as one and comes here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "tools/call" {
            return Err(ErrorData::new(
                rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                request.method,
                None,
            ));
        }
        let params = request.params.unwrap_or_default();
        match params.get("name").and_then(Value::as_str) {
            Some(tool::NAME) => {}
            Some(name) => return Err(unknown_tool(name)),
            None => {
                return Err(ErrorData::invalid_params(
                    "tools/call needs the name of a tool",
                    None,
                ));
            }
        }
        let mut result = self.eval(params.get("arguments").cloned(), &context).await;
        if context
            .protocol_version()
            .is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
        {
            // rmcp does that for its own results only.
            result.result_type = None;
        }
        Ok(CustomResult::new(json!(result)))
    }
}

fn unknown_tool(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("Unknown tool: {name}"), None)
}
