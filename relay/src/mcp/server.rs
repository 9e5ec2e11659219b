//! The MCP server: offers the one tool and the skill, and runs calls of the tool. A failed evaluation
//! is a result that the model reads; a protocol error is only for what can't be routed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use emacs_runtime_mcp_protocol::{ErrorCode, Evaluation, Failure, Outcome, VERSION, limits};
use futures_util::FutureExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest,
    CustomResult, ErrorData, GetSkillRequestParams, GetSkillResult, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    MetaObject, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    ReadResourceDirectoryRequestParams, ReadResourceDirectoryResult, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, RequestId, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::line::{Arrived, DuplicateKey};
use super::{skill, tool};
use crate::emacs::{Answer, Emacs, Progress, Report, Via};
use crate::envelope::Envelope;
use crate::request::{Defaults, Request, invalid};

/// The methods that are served and can't do without parameters, but for `tools/call`.
const WITH_PARAMETERS: [&str; 3] = ["resources/read", "resources/directory/read", "skills/get"];

/// Serves one client.
pub(super) struct Server {
    emacs: Arc<Emacs>,
    defaults: Defaults,
    tool: Tool,
    /// A permit for each call that may be under way.
    room: Semaphore,
    /// Cancelled when the relay ends: calls then end with what is known of them.
    stop: CancellationToken,
}

impl Server {
    pub(super) fn new(emacs: Arc<Emacs>, defaults: Defaults, stop: CancellationToken) -> Self {
        Self {
            emacs,
            defaults,
            tool: tool::tool(defaults),
            room: Semaphore::new(limits::CALLS_MAX),
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
        let answer = match request {
            Err(failure) => Answer {
                outcome: failure.into(),
                via: None,
            },
            Ok(request) => {
                tracing::debug!(id = %context.id, expression = request.expression, "a call");
                let evaluation = self.evaluate(&request, arrived, context);
                or_internal_error(evaluation).await
            }
        };
        let elapsed_ms = u64::try_from(arrived.elapsed().as_millis()).unwrap_or(u64::MAX);
        log(&context.id, &answer, elapsed_ms);
        result(answer, elapsed_ms)
    }

    async fn evaluate(
        &self,
        request: &Request,
        arrived: Instant,
        context: &RequestContext<RoleServer>,
    ) -> Answer {
        let nowhere = |failure: Failure| Answer {
            outcome: failure.into(),
            via: None,
        };
        let Ok(_permit) = self.room.try_acquire() else {
            return nowhere(crowded());
        };
        let reporter = Reporter::new(context);
        let report = reporter
            .as_ref()
            .map(|reporter| |progress| reporter.report(progress));
        let report = report.as_ref().map(|report| report as &Report<'_>);
        tokio::select! {
            answer = self.emacs.evaluate(request, arrived, report) => answer,
            // rmcp drops the answer to a cancelled request.
            () = context.ct.cancelled() => nowhere(ended()),
            () = self.stop.cancelled() => nowhere(ended()),
        }
    }
}

/// What a panic costs: the one call in which it happened.
async fn or_internal_error(evaluation: impl Future<Output = Answer>) -> Answer {
    let ended = AssertUnwindSafe(evaluation).catch_unwind().await;
    ended.unwrap_or_else(|_| Answer {
        outcome: Failure::new(
            ErrorCode::InternalError,
            "the relay has failed during the call, please report what its log says; the form may have run",
        )
        .with_evaluation(Evaluation::Unknown)
        .into(),
        via: None,
    })
}

/// Tells a client that gave a token how far its call is.
struct Reporter {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    count: AtomicU32,
}

impl Reporter {
    /// `None` where the client gave no token: then nobody wants to hear.
    fn new(context: &RequestContext<RoleServer>) -> Option<Self> {
        Some(Self {
            token: context.meta.get_progress_token()?,
            peer: context.peer.clone(),
            count: AtomicU32::new(0),
        })
    }

    fn report(&self, progress: Progress) {
        let message = match progress {
            Progress::Running => "the form runs in Emacs".to_owned(),
            Progress::Waiting { ahead: 1 } => "the form waits behind another one".to_owned(),
            Progress::Waiting { ahead } => format!("the form waits behind {ahead} others"),
        };
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let params = ProgressNotificationParam::new(self.token.clone(), f64::from(count))
            .with_message(message);
        let peer = self.peer.clone();
        tokio::spawn(async move {
            // A client that has left hears nothing.
            let _ = peer.notify_progress(params).await;
        });
    }
}

/// What one call too many gets.
fn crowded() -> Failure {
    let message = format!(
        "{} calls of this client are under way already; wait for their answers",
        limits::CALLS_MAX
    );
    Failure::new(ErrorCode::EmacsUnavailable, message).with_evaluation(Evaluation::NotStarted)
}

/// What a call gets that was under way when the relay had to end.
fn ended() -> Failure {
    Failure::new(
        ErrorCode::EmacsUnavailable,
        "the relay was ended before Emacs had answered",
    )
    .with_evaluation(Evaluation::Unknown)
}

/// An event for each call. What it said and what came of it is the person's.
fn log(id: &RequestId, answer: &Answer, elapsed_ms: u64) {
    let outcome = match &answer.outcome {
        Outcome::Success(_) => "ok",
        Outcome::Failure(failure) => failure.code.name(),
    };
    let via = match answer.via {
        None => "no way",
        Some(Via::Emacsclient) => "emacsclient",
        Some(Via::Module { .. }) => "module",
    };
    tracing::info!(%id, outcome, via, elapsed_ms, "a call has ended");
}

/// The MCP result of `answer`: the envelope as structured content and, the same, as text.
fn result(answer: Answer, elapsed_ms: u64) -> CallToolResult {
    let envelope = Envelope::new(answer.outcome, elapsed_ms);
    let text = serde_json::to_string(&envelope).expect("it has only strings and numbers");
    let content = vec![ContentBlock::text(text)];
    let mut result = if envelope.is_ok() {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    result.structured_content = Some(json!(envelope));
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
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_skills_with_directory_read()
            .build();
        let implementation = Implementation::new("emacs-runtime-mcp", VERSION)
            .with_title("Emacs")
            .with_description("The Emacs that a person has open")
            .with_website_url(env!("CARGO_PKG_REPOSITORY"));
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(tool::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        first_page(request)?;
        Ok(ListToolsResult::with_all_items(vec![self.tool.clone()]))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        first_page(request)?;
        Ok(ListResourcesResult::with_all_items(vec![skill::resource()]))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        first_page(request)?;
        Ok(ListResourceTemplatesResult::default())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match skill::read(&request.uri) {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => Err(no_resource(request.uri)),
        }
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        first_page(request)?;
        Ok(ListSkillsResult::with_all_items(vec![skill::skill()]))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        skill::skill_at(&request.uri)
            .map(GetSkillResult::new)
            .ok_or_else(|| {
                ErrorData::invalid_params(format!("no such skill: {}", request.uri), None)
            })
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        if let Some(cursor) = request.cursor {
            return Err(unknown_cursor(&cursor));
        }
        skill::directory(&request.uri)
            .map(ReadResourceDirectoryResult::with_all_items)
            .ok_or_else(|| {
                ErrorData::invalid_params(format!("not a directory: {}", request.uri), None)
            })
    }

    /// Nothing that is offered changes, but a client may listen.
    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
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

    /// What doesn't parse as a request that rmcp knows comes here: an unknown method, parameters of a
    /// wrong shape, a call whose `arguments` are no object.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "tools/call" {
            return Err(if WITH_PARAMETERS.contains(&request.method.as_str()) {
                let message = format!("{}: its parameters have a wrong shape", request.method);
                ErrorData::invalid_params(message, None)
            } else {
                ErrorData::new(
                    rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                    request.method,
                    None,
                )
            });
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
        let arguments = params.get("arguments").cloned();
        if arguments
            .as_ref()
            .is_none_or(|it| it.is_object() || it.is_null())
        {
            // Then it is something around them. Which of two forms is meant nobody knows.
            let message = "tools/call: its parameters have a wrong shape, or one stands twice";
            return Err(ErrorData::invalid_params(message, None));
        }
        let mut result = self.eval(arguments, &context).await;
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

/// All fits one page, so no cursor was ever handed out.
fn first_page(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor) {
        Some(cursor) => Err(unknown_cursor(&cursor)),
        None => Ok(()),
    }
}

fn unknown_cursor(cursor: &str) -> ErrorData {
    ErrorData::invalid_params(format!("unknown cursor: {cursor}"), None)
}

fn no_resource(uri: String) -> ErrorData {
    ErrorData::resource_not_found(
        format!("no such resource: {uri}"),
        Some(json!({ "uri": uri })),
    )
}

fn unknown_tool(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("Unknown tool: {name}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_costs_one_call_its_answer() {
        let answer = or_internal_error(async { panic!("on purpose") }).await;
        let Outcome::Failure(failure) = answer.outcome else {
            panic!("a value")
        };
        assert_eq!(failure.code, ErrorCode::InternalError);
        assert_eq!(failure.data.evaluation, Some(Evaluation::Unknown));
    }
}
