//! The messages that a stage sends itself.

use duologue_rpc::raw_message::{call_line, response_line};
use duologue_schema::{CancelRequestNotification, Error as RpcError, Notification as _};
use duologue_transcript::Side;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::chain::{ChainCore, Hop};
use crate::error::{Error, Result};
use crate::jobs::StageHandle;
use crate::stage_ids::StageIds;

/// A request that a stage has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageCall(pub(crate) u64);

/// The connection of a stage to both sides, for messages of its own.
///
/// A message starts at this stage: one to the agent passes the stages behind it, one to the client those before it. The
/// messages of one call are sent before the message that the stage was called with.
#[derive(Debug)]
pub struct StageLink<'c> {
    pub(crate) core: &'c mut ChainCore,
    pub(crate) ids: &'c mut StageIds,
    pub(crate) stage: usize,
    /// True if the message counts against the limit of messages.
    pub(crate) stages: usize,
}

impl StageLink<'_> {
    /// Sends a notification to a side.
    ///
    /// # Errors
    ///
    /// [`Error::Output`], [`Error::MessagesPerLine`], [`Error::TooLong`] and [`Error::Encode`].
    pub fn notify<P: Serialize + ?Sized>(&mut self, to: Side, method: &str, params: &P) -> Result<()> {
        let line = call_line(None, method, params)?;
        self.send(to, line)
    }

    /// Sends a request to a side. Its response comes to [`ProxyStage::response`](crate::ProxyStage::response).
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify), and [`Error::OpenRequests`].
    pub fn request<P: Serialize + ?Sized>(
        &mut self,
        to: Side,
        method: &str,
        params: &P,
    ) -> Result<StageCall> {
        self.core.room_for_id()?;
        let (call, token) = self.core.next_call();
        let id = RawValue::from_string(token)?;
        self.send(to, call_line(Some(&id), method, params)?)?;
        self.ids.add_call(to, id.get().to_owned(), call);
        self.core.kept += 1;
        self.core.calls += 1;
        Ok(call)
    }

    /// Asks the receiver to cancel a request of this stage. The response still arrives. Has no effect after it.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    pub fn cancel(&mut self, call: StageCall) -> Result<()> {
        for to in [Side::Client, Side::Agent] {
            if let Some(id) = self.ids.call_id(to, call) {
                let id: &RawValue = serde_json::from_str(id)?;
                let params = std::collections::BTreeMap::from([("requestId", id)]);
                let line = call_line(None, CancelRequestNotification::METHOD, &params)?;
                self.send(to, line)?;
            }
        }
        Ok(())
    }

    /// Answers a request of the side `to` that this stage has [taken](crate::Decision::Take). `id` is
    /// [`StageMessage::id`](crate::StageMessage::id) of the request.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] and [`Error::Encode`].
    pub fn respond<R: Serialize + ?Sized>(
        &mut self,
        to: Side,
        id: &str,
        outcome: std::result::Result<&R, RpcError>,
    ) -> Result<()> {
        let result = outcome.map(serde_json::value::to_raw_value);
        let line = match &result {
            Ok(Ok(result)) => response_line(id, Ok(result))?,
            Err(error) => response_line(id, Err(error))?,
            Ok(Err(_)) => Vec::new(),
        };
        if let Ok(Err(error)) = result {
            return Err(Error::Encode(error));
        }
        if !self.ids.answer(to, id) {
            return Err(Error::NotTaken(id.to_owned()));
        }
        self.core.kept -= 1;
        self.push(to, line);
        Ok(())
    }

    /// Returns a handle for messages outside of the calls of the stage.
    #[must_use]
    pub fn handle(&self) -> StageHandle {
        StageHandle::new(self.core.jobs.clone(), self.stage)
    }

    fn send(&mut self, to: Side, line: Vec<u8>) -> Result<()> {
        self.core.room_for_message(to, line.len())?;
        self.push(to, line);
        Ok(())
    }

    pub(crate) fn push(&mut self, to: Side, line: Vec<u8>) {
        let from = to.other();
        let passed = match from {
            Side::Client => self.stage + 1,
            Side::Agent => self.stages - self.stage,
        };
        self.core.push_hop(Hop { from, passed, line });
    }
}
