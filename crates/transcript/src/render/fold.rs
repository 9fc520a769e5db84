//! The folded view: what a transcript's sessions came to.

use std::fmt::Write as _;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    AgentNotification, AgentRequest, ClientRequest, Conversation, ConversationEntry, MessageKind, SessionId,
    SessionUpdate,
};
use serde::Serialize;

use super::RenderOptions;
use super::content;
use super::fields::Fields;
use super::line::ScriptLine;
use super::updates::usage;
use crate::Transcript;
use crate::classify::{ParsedLine, TranscriptEntry};
use crate::format::Side;

/// A session, folded into the conversation it came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FoldedSession {
    /// Which session.
    pub session: SessionId,
    /// What was said and done in it, and how things stood at the end.
    pub conversation: Conversation,
}

impl TranscriptEntry<'_> {
    /// Takes the line into the conversation of its session: prompts and their ends, updates, and the tool
    /// calls that permission is asked for. Other lines, and those that do not fit, change nothing.
    ///
    /// A `session/load` tells a whole story again. Whoever folds line by line begins a new conversation
    /// there, as [`Transcript::conversations`] does.
    pub fn fold_into(&self, conversation: &mut Conversation) {
        match (&self.parsed, self.from()) {
            (ParsedLine::Request { method, params, .. }, Side::Client) => {
                if let Some(Ok(ClientRequest::Prompt(request))) = ClientRequest::decode(method, *params) {
                    conversation.prompt(&request.prompt);
                }
            }
            (ParsedLine::Request { method, params, .. }, Side::Agent) => {
                if let Some(Ok(AgentRequest::RequestPermission(request))) =
                    AgentRequest::decode(method, *params)
                {
                    conversation.apply(&SessionUpdate::ToolCallUpdate(Box::new(request.tool_call)));
                }
            }
            (ParsedLine::Notification { method, params }, Side::Agent) => {
                if let Some(Ok(AgentNotification::SessionUpdate(told))) =
                    AgentNotification::decode(method, *params)
                {
                    conversation.apply(&told.update);
                }
            }
            (ParsedLine::Response { method: Some(method), .. }, Side::Agent)
                if method == "session/prompt" =>
            {
                conversation.end_turn();
            }
            _ => {}
        }
    }
}

impl Transcript {
    /// The sessions, each folded into its conversation, in the order of the requests that made them.
    #[must_use]
    pub fn conversations(&self) -> Vec<FoldedSession> {
        let entries = self.entries();
        let mut sessions: Vec<FoldedSession> = Vec::new();
        for entry in &entries {
            let Some(id) = &entry.session else { continue };
            let place = sessions.iter().position(|folded| folded.session == *id).unwrap_or_else(|| {
                sessions.push(FoldedSession { session: id.clone(), conversation: Conversation::default() });
                sessions.len() - 1
            });
            let Some(FoldedSession { conversation, .. }) = sessions.get_mut(place) else { continue };
            if begins_again(entry, &entries) {
                *conversation = Conversation::default();
            }
            entry.fold_into(conversation);
        }
        sessions
    }

    /// What the sessions came to, as text: each message as it stood at the end, each tool call once, the
    /// plan, the mode and whatever else holds for a session.
    #[must_use]
    pub fn fold(&self) -> String {
        let mut text = String::new();
        for (place, folded) in self.conversations().iter().enumerate() {
            if place > 0 {
                text.push('\n');
            }
            let mut heading = ScriptLine::new(RenderOptions::default().text_bytes);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", heading.add("## session").word(folded.session.as_str()));
            for line in lines(&folded.conversation) {
                let _ = write!(text, "{line}");
            }
        }
        text
    }
}

/// Whether a session is loaded here, so that its story is told from the beginning.
fn begins_again(entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) -> bool {
    let ParsedLine::Request { method, answer, .. } = &entry.parsed else { return false };
    let answer = answer.and_then(|place| entries.get(place)).map(|answer| &answer.parsed);
    method == "session/load"
        && !matches!(answer, Some(ParsedLine::Response { outcome: ResponseOutcome::Error(_), .. }))
}

fn lines(conversation: &Conversation) -> Vec<ScriptLine> {
    let mut lines: Vec<ScriptLine> = conversation.entries().iter().map(entry).collect();
    if let Some(title) = conversation.title() {
        lines.push(new("title").quoted(title).take());
    }
    if let Some(mode) = conversation.current_mode() {
        lines.push(new("mode").word(mode.as_str()).take());
    }
    if let Some(now) = conversation.usage() {
        lines.push(whole(new("usage"), now, |line, fields, _| usage(line, fields)));
    }
    if let Some(plan) = conversation.plan() {
        lines.push(whole(new("plan"), plan, content::plan));
    }
    if !conversation.commands().is_empty() {
        let commands = [("availableCommands", conversation.commands())];
        lines.push(whole(new("commands"), &std::collections::BTreeMap::from(commands), content::commands));
    }
    if !conversation.config_options().is_empty() {
        let options = [("configOptions", conversation.config_options())];
        lines.push(whole(
            new("options"),
            &std::collections::BTreeMap::from(options),
            content::config_options,
        ));
    }
    if let Some(meta) = conversation.meta() {
        lines.push(whole(new("_meta"), meta, |_, _, _| {}));
    }
    let ignored = conversation.stats();
    if ignored.unknown_clears > 0 {
        lines
            .push(new("ignored").add(format_args!("{} clears of no message", ignored.unknown_clears)).take());
    }
    if ignored.unknown_updates > 0 {
        lines.push(new("ignored").add(format_args!("{} unknown updates", ignored.unknown_updates)).take());
    }
    lines
}

fn entry(entry: &ConversationEntry) -> ScriptLine {
    match entry {
        ConversationEntry::Message(message) => {
            let mut line = new(match message.kind {
                MessageKind::User => "user",
                MessageKind::Agent => "agent",
                MessageKind::Thought => "thought",
                _ => "message",
            });
            if let Some(id) = &message.id {
                line.word(id.as_str());
            }
            if message.is_empty() {
                line.add("(empty)");
            }
            let mut fields = fields(&message.content, "content");
            if let Some(meta) = &message.meta {
                fields.put("_meta", serde_json::to_value(meta).unwrap_or_default());
            }
            with(line, fields, |line, fields, below| content::blocks(line, fields, below, "content"))
        }
        ConversationEntry::ToolCall(call) => {
            let mut fields =
                Fields::try_from(serde_json::to_value(call).unwrap_or_default()).unwrap_or_default();
            // What is usual is left out on the wire.
            fields.put("kind", call.kind.as_str().into());
            fields.put("status", call.status.as_str().into());
            with(new("tool_call"), fields, content::tool_call)
        }
        ConversationEntry::Compaction(compaction) => {
            let mut line = new("compaction");
            line.word(compaction.id.as_str()).word(compaction.status.as_str());
            if let Some(error) = &compaction.error {
                line.quoted(error);
            }
            with(line, fields(&compaction.summary, "summary"), |line, fields, below| {
                content::blocks(line, fields, below, "summary");
            })
        }
        _ => new("something later"),
    }
}

fn new(word: &str) -> ScriptLine {
    let mut line = ScriptLine::new(RenderOptions::default().text_bytes);
    line.add(word);
    line
}

/// A list under a name.
fn fields<T: Serialize>(list: &[T], name: &str) -> Fields {
    let mut fields = Fields::default();
    if !list.is_empty() {
        fields.put(name, serde_json::to_value(list).unwrap_or_default());
    }
    fields
}

type Write = fn(&mut ScriptLine, &mut Fields, &mut Vec<ScriptLine>);

/// A line about a value of the schema.
fn whole<T: Serialize>(line: ScriptLine, value: &T, write: Write) -> ScriptLine {
    let fields = Fields::try_from(serde_json::to_value(value).unwrap_or_default()).unwrap_or_default();
    with(line, fields, write)
}

fn with(mut line: ScriptLine, mut fields: Fields, write: Write) -> ScriptLine {
    let mut below = Vec::new();
    write(&mut line, &mut fields, &mut below);
    line.rest(fields);
    below.into_iter().for_each(|it| _ = line.below(it));
    line
}
