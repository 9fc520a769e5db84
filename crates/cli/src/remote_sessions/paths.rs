//! The folders of the client and of the server, which `--map` exchanges in each message.

use duologue_proxy::{PathMap, Side};
use duologue_rpc::raw_message::response_frame;
use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::{Error as RpcError, RequestId};

/// A request or notification that the map refuses.
#[derive(Debug)]
pub(super) struct RefusedMessage {
    /// The id of a request, which has to be answered.
    pub(super) id: Option<RequestId>,
    pub(super) error: RpcError,
}

/// Maps the paths of a line. A response that is refused has the error in the place of its outcome.
pub(super) fn mapped(paths: Option<&PathMap>, from: Side, line: Vec<u8>) -> Result<Vec<u8>, RefusedMessage> {
    let Some(paths) = paths else { return Ok(line) };
    let limits = Limits::default();
    let error = match paths.map_line(from, &line, &limits) {
        Ok(None) => return Ok(line),
        Ok(Some(mapped)) => return Ok(mapped),
        Err(error) => error,
    };
    match RpcMessage::read(&line, &limits) {
        Some(Ok(RpcMessage::Request { id, .. })) => Err(RefusedMessage { id: Some(id), error }),
        Some(Ok(RpcMessage::Response { id, .. })) => {
            response_frame(id.get(), Err(&error)).map_err(|_| RefusedMessage { id: None, error })
        }
        _ => Err(RefusedMessage { id: None, error }),
    }
}
