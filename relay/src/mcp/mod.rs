//! MCP over stdio: what a client says and hears. rmcp speaks the protocol's revisions; lines, ids and
//! the end of the conversation are ours. Nothing outside this folder knows rmcp's types.

mod id;
mod line;
mod server;
mod skill;
mod stdio;
mod tool;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::server::Server;
use self::transport::{Stdio, Watch};
use crate::emacs::Emacs;
use crate::request::Defaults;

/// How long calls may go on after the end of input. Clients wait 2 s before they send a signal.
const END_GRACE: Duration = Duration::from_millis(1_500);

/// Serves one client over stdin and stdout, until it leaves or a signal comes.
///
/// # Errors
///
/// Where stdin or stdout can't be used, or the client and rmcp can't agree.
pub(crate) async fn serve(emacs: Arc<Emacs>, defaults: Defaults) -> anyhow::Result<()> {
    let (input, output) = stdio::open()?;
    let watch = Watch::default();
    // Ends the calls; their answers are still written.
    let stop = CancellationToken::new();
    // Ends the conversation.
    let end = CancellationToken::new();
    tokio::spawn(watch_for_the_end(watch.clone(), stop.clone(), end.clone())?);
    let server = Server::new(emacs, defaults, stop);
    let transport = Stdio::new(input, output, watch);
    match server.serve_with_ct(transport, end).await {
        Ok(running) => {
            running.waiting().await?;
            Ok(())
        }
        // The client left, or was only probing, before it began a session.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(ServerInitializeError::TransportError { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for whatever ends the relay and ends it the way that asks for.
fn watch_for_the_end(
    watch: Watch,
    stop: CancellationToken,
    end: CancellationToken,
) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let ended = async {
            watch.input_ended.cancelled().await;
            tokio::time::sleep(END_GRACE).await;
            tracing::info!("the client has left");
        };
        tokio::select! {
            () = ended => stop.cancel(),
            () = watch.output_closed.cancelled() => tracing::info!("the client reads no more"),
            _ = terminate.recv() => tracing::info!("SIGTERM"),
            _ = interrupt.recv() => tracing::info!("SIGINT"),
        }
        stop.cancel();
        end.cancel();
    })
}
