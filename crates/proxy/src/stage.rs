//! The trait of a stage, and its decision on a message.

use std::future::Future;
use std::pin::Pin;

use duologue_schema::Error as RpcError;
use duologue_transcript::Side;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::link::{StageCall, StageLink};
use crate::message::StageMessage;

/// A stage of a [`Proxy`](crate::Proxy).
///
/// The methods run in the order of the wire, one after the other for all stages of a chain, under its lock. So decide and
/// return. For slow work [take](Decision::Take) the request, work in a task, and answer through
/// [`StageLink::handle`].
///
/// ```
/// use std::path::{Component, Path};
///
/// use duologue_proxy::{ProxyStage, StageLink, StageMessage, Decision, schema};
/// use schema::{Error, WriteTextFileRequest};
///
/// /// Rejects requests that write files outside of `/tmp`.
/// struct OnlyTmp;
///
/// /// `/tmp/../etc` starts with `/tmp` too. Links are not followed here.
/// fn is_in_tmp(path: &Path) -> bool {
///     path.starts_with("/tmp") && !path.components().any(|part| part == Component::ParentDir)
/// }
///
/// impl ProxyStage for OnlyTmp {
///     fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
///         // The client may read such a line as a request.
///         if message.is_suspect() {
///             return Decision::Drop;
///         }
///         match message.request::<WriteTextFileRequest>() {
///             Some(Ok(write)) if !is_in_tmp(&write.path) => {
///                 Decision::error(Error::invalid_params("only files in /tmp can be written"))
///             }
///             Some(Err(error)) => Decision::error(error),
///             _ => Decision::Pass,
///         }
///     }
/// }
/// ```
///
/// Such a stage rejects requests only. An agent that writes a file itself, as every agent of protocol version 2 does, sends no
/// request that a stage can reject.
pub trait ProxyStage: Send + 'static {
    /// Called for each line of the client.
    fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        let _ = (message, link);
        Decision::Pass
    }

    /// Called for each line of the agent.
    fn agent_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        let _ = (message, link);
        Decision::Pass
    }

    /// Called for the response to a request that this stage has sent. No other stage between the sender and here keeps it.
    /// If the receiver leaves, the outcome is an error.
    fn response(&mut self, call: StageCall, outcome: Result<&RawValue, RpcError>, link: &mut StageLink<'_>) {
        let _ = (call, outcome, link);
    }

    /// Called at the end of the output of a side.
    fn ended(&mut self, side: Side, link: &mut StageLink<'_>) {
        let _ = (side, link);
    }

    /// Returns a future to delay the connection. Called after the stages have seen the lines of one read or write. Nothing
    /// is passed on before the future is ready.
    fn wait(&mut self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }
}

/// The decision of a stage on a message.
#[derive(Debug)]
#[non_exhaustive]
#[must_use]
pub enum Decision {
    /// The message goes on, byte for byte.
    Pass,
    /// Another message goes on in its place, see [`StageMessage::with_params`].
    Replace(Replacement),
    /// The request is answered here. For a response, its outcome is replaced. A notification is dropped.
    Answer(Result<Box<RawValue>, RpcError>),
    /// The request ends here, and this stage answers it later with [`StageLink::respond`]. Other messages are dropped.
    /// A cancel of the request reaches this stage as a message and goes no further.
    Take,
    /// The message ends here. The sender of a request gets an error, and so does the receiver of a response.
    Drop,
}

impl Decision {
    /// Answers a request with a result.
    pub fn result<R: Serialize + ?Sized>(result: &R) -> Self {
        Decision::Answer(
            serde_json::value::to_raw_value(result)
                .map_err(|error| RpcError::internal(format!("the result cannot be encoded: {error}"))),
        )
    }

    /// Answers a request with an error.
    pub fn error(error: RpcError) -> Self {
        Decision::Answer(Err(error))
    }

    pub(crate) fn replacement(line: Result<Vec<u8>, String>, is_same: bool) -> Self {
        match line {
            Ok(line) => Decision::Replace(Replacement { line, is_same }),
            Err(error) => Decision::error(RpcError::internal(format!(
                "a stage of the proxy cannot change the message: {error}"
            ))),
        }
    }
}

/// The line that goes on in the place of a message. The methods of [`StageMessage`] make it.
#[derive(Debug)]
pub struct Replacement {
    /// The line with its end.
    pub(crate) line: Vec<u8>,
    /// True if it is a message of the same kind with the same id.
    pub(crate) is_same: bool,
}

/// A stage that is a closure for the messages of the client.
pub(crate) struct OnClientMessage<F>(pub(crate) F);

impl<F> ProxyStage for OnClientMessage<F>
where
    F: FnMut(&StageMessage<'_>, &mut StageLink<'_>) -> Decision + Send + 'static,
{
    fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        (self.0)(message, link)
    }
}

/// A stage that is a closure for the messages of the agent.
pub(crate) struct OnAgentMessage<F>(pub(crate) F);

impl<F> ProxyStage for OnAgentMessage<F>
where
    F: FnMut(&StageMessage<'_>, &mut StageLink<'_>) -> Decision + Send + 'static,
{
    fn agent_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        (self.0)(message, link)
    }
}
