//! An agent that does not advertise envelopes: the example of the official Python SDK. It receives none.

use super::answers;
use crate::interop::{InteropPaths, Result, install};
use duologue_agent::PeerAgent;
use duologue_client::exchange::Error;
use duologue_client::rpc::{Direction, Tap, TappedFrame};
use duologue_client::{Client, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the messages beyond ACP that are sent.
#[derive(Default)]
struct Sent(AtomicUsize);

impl Tap for Sent {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line = String::from_utf8_lossy(frame.bytes);
        if frame.direction == Direction::Outgoing && line.contains(r#""_session/"#) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Queries an agent without envelopes, expects the error, and goes on talking ACP.
pub(super) fn check(paths: &InteropPaths) -> Result<String> {
    let agent = install::python_example(paths)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let sent = Arc::new(Sent::default());
        let (program, script) = agent.split_once(' ').ok_or("no script")?;
        let client = Client::new(()).exchange(answers::exchange()?).tap(sent.clone());
        let agent = client.spawn(Command::new(program).arg(script)).await?;
        let session = agent.new_session(std::env::current_dir()?).await?;
        refused(&session.peer_agent()).await?;
        let reply = session.prompt("hello").await?.finish().await?;
        agent.close().await;
        match sent.0.load(Ordering::Relaxed) {
            0 => Ok(format!("the official Python SDK's example agent speaks no envelopes: it was sent none, and said {:?}", reply.text)),
            sent => Err(format!("{sent} messages were sent to an agent that advertises nothing").into()),
        }
    })
}

/// Nothing of an exchange may reach an agent that advertises none.
pub(in crate::interop) async fn refused(peer: &PeerAgent) -> Result<()> {
    for outcome in [peer.ping().await.map(drop), peer.query("echo").await.map(drop)] {
        if !matches!(outcome, Err(Error::NotSupported { .. })) {
            return Err(format!("{outcome:?} instead of a refusal").into());
        }
    }
    Ok(())
}
