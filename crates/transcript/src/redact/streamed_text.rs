//! Texts that come in pieces: the messages of a session, the output of a task, and the output of a terminal in the
//! `_meta` of a tool call.

use std::borrow::Cow;

use duologue_schema::envelope::{Notify, OutputChunk, Payload as _};
use duologue_schema::{Notification as _, PromptRequest, Request as _, SessionNotification};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_scan::{JsonVisitor, PathStep, QuotedString, scan};
use crate::classify::id_key;

/// A text of a session that comes in pieces.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) enum StreamedText {
    /// A message of this kind, such as `agent_message_chunk`, with its id.
    Message { kind: String, id: Option<String> },
    /// The output of a task, by the id of the delegation.
    Output(String),
    /// The output of a terminal that the agent runs itself, by the id of the terminal.
    Terminal(String),
}

impl StreamedText {
    /// Returns the place of a piece in its line.
    pub(super) fn path(&self) -> &'static [&'static str] {
        match self {
            StreamedText::Message { .. } => &["params", "update", "content", "text"],
            StreamedText::Output(_) => &["params", "envelope", "payload", "data", "chunk"],
            StreamedText::Terminal(_) => &["params", "update", "_meta", "terminal_output", "data"],
        }
    }

    /// Returns the piece in a line.
    pub(super) fn piece<'a>(&self, line: &'a str) -> Option<QuotedString<'a>> {
        struct Find<'a>(&'static [&'static str], Option<QuotedString<'a>>);
        impl<'a> JsonVisitor<'a> for Find<'a> {
            fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
                if frames.len() == self.0.len()
                    && frames.iter().zip(self.0).all(|(frame, name)| frame.member.as_deref() == Some(*name))
                {
                    self.1 = Some(string);
                }
            }
        }
        let mut find = Find(self.path(), None);
        scan(line, &mut find);
        find.1
    }
}

/// The effect of a line on the texts of its session.
#[derive(Debug)]
pub(super) enum PieceEvent {
    /// A text goes on. Other updates between its pieces do not end it.
    Piece(StreamedText),
    /// The message with this id, or each message of the session, begins anew.
    Clear(Option<String>),
    /// Messages without an id end.
    Prompt,
}

impl PieceEvent {
    /// Returns the effect of a request or notification, if it has one.
    pub(super) fn of(method: &str, params: Option<&RawValue>) -> Option<Self> {
        match method {
            SessionNotification::METHOD => {
                let params = params?.get();
                // A member may come twice. The last one counts.
                let once = || serde_json::from_str::<Value>(params).map(|params| params.to_string());
                of_update(params).or_else(|_| of_update(&once()?)).ok().flatten()
            }
            PromptRequest::METHOD => Some(PieceEvent::Prompt),
            Notify::METHOD => of_notify(params?.get()),
            _ => None,
        }
    }
}

fn of_update(params: &str) -> serde_json::Result<Option<PieceEvent>> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        update: Update<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update<'a> {
        #[serde(borrow)]
        session_update: Cow<'a, str>,
        #[serde(borrow, default)]
        message_id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        compaction_id: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct UpdateMeta<'a> {
        #[serde(borrow)]
        terminal_output: TerminalPiece<'a>,
    }
    #[derive(Deserialize)]
    struct TerminalPiece<'a> {
        #[serde(borrow)]
        terminal_id: &'a RawValue,
    }
    let Params { update } = serde_json::from_str(params)?;
    let kind = update.session_update;
    let id = update.message_id.or(update.compaction_id).map(|raw| id_key(raw.get()));
    Ok(if kind.ends_with("_clear") {
        Some(PieceEvent::Clear(id))
    } else if kind.ends_with("_chunk") {
        Some(PieceEvent::Piece(StreamedText::Message { kind: kind.into_owned(), id }))
    } else if kind.starts_with("tool_call") {
        let meta = update.meta.and_then(|meta| serde_json::from_str::<UpdateMeta<'_>>(meta.get()).ok());
        meta.map(|meta| {
            PieceEvent::Piece(StreamedText::Terminal(id_key(meta.terminal_output.terminal_id.get())))
        })
    } else {
        None
    })
}

fn of_notify(params: &str) -> Option<PieceEvent> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        envelope: Message<'a>,
    }
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow, rename = "ref")]
        reference: &'a RawValue,
        #[serde(borrow)]
        payload: Topic<'a>,
    }
    #[derive(Deserialize)]
    struct Topic<'a> {
        #[serde(borrow)]
        topic: Cow<'a, str>,
    }
    let Params { envelope } = serde_json::from_str(params).ok()?;
    let is_output = envelope.payload.topic == OutputChunk::TOPIC;
    is_output.then(|| PieceEvent::Piece(StreamedText::Output(id_key(envelope.reference.get()))))
}
