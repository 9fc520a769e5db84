//! Texts that come in pieces: the messages of a session, the content of a tool call, the output of a task, and the
//! output of a terminal, in the `_meta` of a tool call or in updates of its own.

use std::borrow::Cow;

use duologue_schema::envelope::{Notify, OutputChunk, Payload as _};
use duologue_schema::{Notification as _, PromptRequest, Request as _, SessionNotification};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_scan::{JsonVisitor, PathStep, QuotedString, scan};
use crate::classify::id_key;
use crate::terminal_text::{OUTPUT_CHUNK, OUTPUT_UPDATE};

/// A text of a session that comes in pieces.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) enum StreamedText {
    /// A message of this kind, such as `agent_message_chunk`, with its id.
    Message { kind: String, id: Option<String> },
    /// The output of a task, by the id of the delegation.
    Output(String),
    /// The output of a terminal that the agent runs itself, by the id of the terminal.
    Terminal(String),
    /// The output of such a terminal in version 2, in base64.
    Display(String),
    /// The content of a tool call, by the id of the call.
    ToolContent(String),
}

impl StreamedText {
    /// Returns the places of a piece in its line. `None` is an item of a list, of which the last one goes on.
    fn paths(&self) -> &'static [&'static [Option<&'static str>]] {
        const PARAMS: Option<&str> = Some("params");
        const UPDATE: Option<&str> = Some("update");
        const CONTENT: Option<&str> = Some("content");
        const DATA: Option<&str> = Some("data");
        const TEXT: Option<&str> = Some("text");
        match self {
            StreamedText::Message { .. } => &[
                &[PARAMS, UPDATE, CONTENT, TEXT],
                &[PARAMS, UPDATE, CONTENT, None, TEXT],
                &[PARAMS, UPDATE, Some("summary"), None, TEXT],
            ],
            StreamedText::Output(_) => &[&[PARAMS, Some("envelope"), Some("payload"), DATA, Some("chunk")]],
            StreamedText::Terminal(_) => &[&[PARAMS, UPDATE, Some("_meta"), Some("terminal_output"), DATA]],
            StreamedText::Display(_) => &[&[PARAMS, UPDATE, DATA], &[PARAMS, UPDATE, Some("output"), DATA]],
            StreamedText::ToolContent(_) => &[&[PARAMS, UPDATE, CONTENT, CONTENT, TEXT]],
        }
    }

    /// Returns true if the pieces are base64 of the text.
    pub(super) fn is_base64(&self) -> bool {
        matches!(self, StreamedText::Display(_))
    }

    /// Returns the piece in a line.
    pub(super) fn piece<'a>(&self, line: &'a str) -> Option<QuotedString<'a>> {
        struct Find<'a>(&'static [&'static [Option<&'static str>]], Option<QuotedString<'a>>);
        impl<'a> JsonVisitor<'a> for Find<'a> {
            fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
                let is_at = |path: &[Option<&str>]| {
                    frames.len() == path.len()
                        && frames.iter().zip(path).all(|(frame, name)| frame.member.as_deref() == *name)
                };
                if self.0.iter().any(|path| is_at(path)) {
                    self.1 = Some(string);
                }
            }
        }
        let mut find = Find(self.paths(), None);
        scan(line, &mut find);
        find.1
    }
}

/// The effect of a line on the texts of its session.
#[derive(Debug, PartialEq)]
pub(super) enum PieceEvent {
    /// A text goes on. Other updates between its pieces do not end it.
    Piece(StreamedText),
    /// A text begins anew, with the piece of the line if it has one.
    Begin(StreamedText),
    /// Each message of this kind in the session begins anew.
    Clear(String),
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
        #[serde(borrow, default)]
        tool_call_id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        terminal_id: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        content: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        summary: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        output: Option<&'a RawValue>,
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
    let begins = |chunks: String, id| Some(PieceEvent::Begin(StreamedText::Message { kind: chunks, id }));
    Ok(if let Some(cleared) = kind.strip_suffix("_clear") {
        let chunks = format!("{cleared}_chunk");
        if id.is_some() { begins(chunks, id) } else { Some(PieceEvent::Clear(chunks)) }
    } else if WHOLE_MESSAGES.contains(&&*kind) {
        if replaces(update.content, '[') { begins(format!("{kind}_chunk"), id) } else { None }
    } else if kind == "compaction_update" {
        if replaces(update.summary, '[') { begins("compaction_summary_chunk".into(), id) } else { None }
    } else if kind == OUTPUT_UPDATE {
        let id = update.terminal_id.filter(|_| replaces(update.output, '{'));
        id.map(|id| PieceEvent::Begin(StreamedText::Display(id_key(id.get()))))
    } else if kind == OUTPUT_CHUNK {
        update.terminal_id.map(|id| PieceEvent::Piece(StreamedText::Display(id_key(id.get()))))
    } else if kind == "tool_call_content_chunk" {
        update.tool_call_id.map(|id| PieceEvent::Piece(StreamedText::ToolContent(id_key(id.get()))))
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

/// Updates with a whole message. Those with its pieces have the same name and `_chunk`.
const WHOLE_MESSAGES: [&str; 4] = ["user_message", "agent_message", "agent_thought", "session_message"];

/// Returns true for a member that replaces a text: `null`, or a list or an object that begins with `open`. A value of
/// another type leaves the text as it is.
fn replaces(member: Option<&RawValue>, open: char) -> bool {
    member.is_some_and(|member| member.get().starts_with([open, 'n']))
}

/// Returns a member that is there, also `null`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(method: &str, params: &Value) -> Option<PieceEvent> {
        let params = RawValue::from_string(params.to_string()).unwrap();
        PieceEvent::of(method, Some(&params))
    }

    #[test]
    fn updates_of_every_kind_have_their_text_and_id() {
        let key = |id: &str| id_key(&json!(id).to_string());
        let message = |kind: &str, id: Option<&str>| {
            Some(PieceEvent::Piece(StreamedText::Message { kind: kind.into(), id: id.map(key) }))
        };
        let begin = |kind: &str, id: &str| {
            Some(PieceEvent::Begin(StreamedText::Message { kind: kind.into(), id: Some(key(id)) }))
        };
        let terminal = || Some(PieceEvent::Piece(StreamedText::Terminal(key("t"))));
        let meta = json!({"terminal_output": {"terminal_id": "t", "data": "x"}});
        for (update, expected) in [
            (json!({"sessionUpdate": "agent_thought_chunk"}), message("agent_thought_chunk", None)),
            (
                json!({"sessionUpdate": "user_message_chunk", "messageId": "m"}),
                message("user_message_chunk", Some("m")),
            ),
            (
                json!({"sessionUpdate": "compaction_chunk", "compactionId": "c"}),
                message("compaction_chunk", Some("c")),
            ),
            (
                json!({"sessionUpdate": "agent_thought_clear"}),
                Some(PieceEvent::Clear("agent_thought_chunk".into())),
            ),
            (
                json!({"sessionUpdate": "compaction_clear", "compactionId": "c"}),
                begin("compaction_chunk", "c"),
            ),
            // A whole message replaces its pieces if it has content.
            (
                json!({"sessionUpdate": "agent_message", "messageId": "m", "content": []}),
                begin("agent_message_chunk", "m"),
            ),
            (
                json!({"sessionUpdate": "user_message", "messageId": "m", "content": null}),
                begin("user_message_chunk", "m"),
            ),
            (json!({"sessionUpdate": "agent_message", "messageId": "m", "content": 1}), None),
            (
                json!({"sessionUpdate": "compaction_update", "compactionId": "c", "summary": []}),
                begin("compaction_summary_chunk", "c"),
            ),
            (json!({"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"}), None),
            (
                json!({"sessionUpdate": "terminal_update", "terminalId": "t", "output": {"data": ""}}),
                Some(PieceEvent::Begin(StreamedText::Display(key("t")))),
            ),
            (json!({"sessionUpdate": "terminal_update", "terminalId": "t", "command": "x"}), None),
            (json!({"sessionUpdate": "agent_thought", "messageId": "m", "_meta": {}}), None),
            (json!({"sessionUpdate": "tool_call", "_meta": meta}), terminal()),
            (json!({"sessionUpdate": "tool_call_update", "_meta": meta}), terminal()),
            (json!({"sessionUpdate": "tool_call", "_meta": {}}), None),
            (json!({"sessionUpdate": "plan", "_meta": meta}), None),
        ] {
            let params = json!({"sessionId": "s", "update": update});
            assert_eq!(event("session/update", &params), expected, "{update}");
        }
    }

    #[test]
    fn only_output_of_a_task_comes_in_pieces() {
        for (topic, is_output) in [("task.output", true), ("task.progress", false)] {
            let params =
                json!({"envelope": {"ref": "e1", "payload": {"topic": topic, "data": {"chunk": "x"}}}});
            assert_eq!(event("_session/notify", &params).is_some(), is_output, "{topic}");
        }
    }

    /// A piece is the text of its update itself, not one around or within it.
    #[test]
    fn a_piece_has_its_own_place() {
        let message = StreamedText::Message { kind: "agent_message_chunk".into(), id: None };
        for (content, piece) in [
            (json!({"text": "one"}), Some("one")),
            (json!("one"), None),
            (json!({"text": {"text": "one"}}), None),
            (json!({"type": "one"}), None),
        ] {
            let line = json!({"params": {"update": {"content": content}}}).to_string();
            let found = message.piece(&line).map(|piece| piece.read().text.into_owned());
            assert_eq!(found.as_deref(), piece, "{line}");
        }
    }
}
