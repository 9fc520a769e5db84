//! The amount of updates that an agent has sent. The measure does not depend on how a text is split into chunks.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use duologue_rpc::{Limits, RpcMessage};
use serde::Deserialize;

use crate::terminal_text::{self, OUTPUT_CHUNK};

/// The recorded and the live amounts of one lane.
#[derive(Debug, Default)]
pub(super) struct UpdateAmounts {
    /// Recorded notifications that are not counted yet, in order.
    ahead: VecDeque<usize>,
    recorded: HashMap<String, u64>,
    live: HashMap<String, u64>,
}

impl UpdateAmounts {
    /// Adds a recorded notification; in order.
    pub(super) fn expect(&mut self, at: usize) {
        self.ahead.push_back(at);
    }

    /// Counts a live notification.
    pub(super) fn count_live(&mut self, line: &[u8]) {
        if let Some((kind, amount)) = measure(line) {
            *self.live.entry(kind).or_default() += amount;
        }
    }

    /// Returns true if as much has come as was recorded before `before`, which never decreases. `line` returns a
    /// recorded line with live names.
    pub(super) fn covers(&mut self, before: usize, line: impl Fn(usize) -> Vec<u8>) -> bool {
        while let Some(at) = self.ahead.front().copied().filter(|at| *at < before) {
            self.ahead.pop_front();
            if let Some((kind, amount)) = measure(&line(at)) {
                *self.recorded.entry(kind).or_default() += amount;
            }
        }
        self.recorded.iter().all(|(kind, amount)| self.live.get(kind).is_some_and(|live| live >= amount))
    }
}

/// Returns the kind of a notification and its amount: the length of its text, or one.
fn measure(line: &[u8]) -> Option<(String, u64)> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        update: Option<Update<'a>>,
    }
    #[derive(Deserialize)]
    struct Update<'a> {
        #[serde(borrow, rename = "sessionUpdate")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        content: Option<&'a serde_json::value::RawValue>,
        #[serde(borrow)]
        data: Option<&'a serde_json::value::RawValue>,
    }
    #[derive(Deserialize)]
    struct Content<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
    }
    let RpcMessage::Notification { method, params } = RpcMessage::read(line, &Limits::default())?.ok()?
    else {
        return None;
    };
    let update = params.and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok()?.update);
    let Some(update) = update else { return Some((method.into_owned(), 1)) };
    if update.kind == OUTPUT_CHUNK {
        let data = update.data.and_then(|raw| serde_json::from_str::<Cow<'_, str>>(raw.get()).ok());
        let output = data.and_then(|data| terminal_text::decoded(&data)).unwrap_or_default();
        return Some((update.kind.into_owned(), output.len() as u64));
    }
    let text = update.content.and_then(|raw| serde_json::from_str::<Content<'_>>(raw.get()).ok());
    Some((update.kind.into_owned(), text.map_or(1, |content| content.text.len() as u64)))
}
