//! The fold of a transcript: one conversation for each session.

use std::collections::HashMap;
use std::fmt::Write as _;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    AgentNotification, AgentRequest, ClientRequest, Conversation, ConversationEntry, LoadSessionRequest,
    MessageKind, PromptRequest, Request as _, RequestPermissionRequest, SessionId, SessionUpdate,
};
use serde::Serialize;

use super::RenderOptions;
use super::content;
use super::describe::write_usage;
use super::fields::Fields;
use super::line::ScriptLine;
use crate::Transcript;
use crate::classify::{ParsedLine, TranscriptEntry};
use crate::format::Side;

/// A session of a transcript, folded into a conversation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FoldedSession {
    /// The session.
    pub session: SessionId,
    /// Its entries and its state at the end of the transcript.
    pub conversation: Conversation,
}

/// A line that changes the conversation of its session.
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub enum ConversationEvent {
    /// A `session/load`: the agent replays the session from its beginning.
    Restart,
    /// A prompt of the user.
    Prompt(PromptRequest),
    /// A permission request, which updates its tool call.
    Permission(Box<RequestPermissionRequest>),
    /// A session update.
    Update(Box<SessionUpdate>),
    /// The response to a prompt.
    TurnEnd,
}

impl ConversationEvent {
    /// Decodes the event in one of `entries`, if it has one. A `session/load` that the agent rejects
    /// is none: the session continues as it was.
    #[must_use]
    pub fn of(entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) -> Option<Self> {
        match (&entry.parsed, entry.from()) {
            (ParsedLine::Request { method, answer, .. }, Side::Client)
                if method == LoadSessionRequest::METHOD =>
            {
                let answer = answer.and_then(|index| entries.get(index)).map(|answer| &answer.parsed);
                let rejected =
                    matches!(answer, Some(ParsedLine::Response { outcome: ResponseOutcome::Error(_), .. }));
                (!rejected).then_some(ConversationEvent::Restart)
            }
            (ParsedLine::Request { method, params, .. }, Side::Client) => {
                match ClientRequest::decode(method, *params) {
                    Some(Ok(ClientRequest::Prompt(request))) => Some(ConversationEvent::Prompt(request)),
                    _ => None,
                }
            }
            (ParsedLine::Request { method, params, .. }, Side::Agent) => {
                match AgentRequest::decode(method, *params) {
                    Some(Ok(AgentRequest::RequestPermission(request))) => {
                        Some(ConversationEvent::Permission(Box::new(request)))
                    }
                    _ => None,
                }
            }
            (ParsedLine::Notification { method, params }, Side::Agent) => {
                match AgentNotification::decode(method, *params) {
                    Some(Ok(AgentNotification::SessionUpdate(notification))) => {
                        Some(ConversationEvent::Update(Box::new(notification.update)))
                    }
                    _ => None,
                }
            }
            (ParsedLine::Response { method: Some(method), .. }, Side::Agent)
                if method == PromptRequest::METHOD =>
            {
                Some(ConversationEvent::TurnEnd)
            }
            _ => None,
        }
    }
}

/// The conversations of a transcript, folded line by line.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct TranscriptFold {
    sessions: Vec<FoldedSession>,
    indexes: HashMap<SessionId, usize>,
}

impl TranscriptFold {
    /// Returns the index of a session, which is added if it is new.
    pub fn session(&mut self, id: &SessionId) -> usize {
        #[cfg(test)]
        crate::steps::count();
        if let Some(index) = self.indexes.get(id) {
            return *index;
        }
        let index = self.sessions.len();
        self.indexes.insert(id.clone(), index);
        self.sessions.push(FoldedSession { session: id.clone(), conversation: Conversation::default() });
        index
    }

    /// Applies an event to a session. Returns the index of the conversation's entry that an update
    /// began or changed, if any.
    pub fn apply(&mut self, session: usize, event: &ConversationEvent) -> Option<usize> {
        let conversation = &mut self.sessions.get_mut(session)?.conversation;
        match event {
            ConversationEvent::Restart => *conversation = Conversation::default(),
            ConversationEvent::Prompt(request) => conversation.prompt(&request.prompt),
            ConversationEvent::Permission(request) => {
                return conversation.apply(&request.tool_call.clone().into());
            }
            ConversationEvent::Update(update) => return conversation.apply(update),
            ConversationEvent::TurnEnd => conversation.end_turn(),
        }
        None
    }

    /// Returns the conversation of a session.
    #[must_use]
    pub fn conversation(&self, session: usize) -> Option<&Conversation> {
        self.sessions.get(session).map(|folded| &folded.conversation)
    }
}

impl Transcript {
    /// Folds each session into its conversation. The sessions are in the order in which they began.
    #[must_use]
    pub fn conversations(&self) -> Vec<FoldedSession> {
        let entries = self.entries();
        let mut fold = TranscriptFold::default();
        for entry in &entries {
            let Some(id) = &entry.session else { continue };
            let session = fold.session(id);
            if let Some(event) = ConversationEvent::of(entry, &entries) {
                fold.apply(session, &event);
            }
        }
        fold.sessions
    }

    /// Returns the folded sessions as text: each message and tool call once, as it was at the end,
    /// then the plan, the mode and the rest of the state.
    #[must_use]
    pub fn fold(&self) -> String {
        let mut text = String::new();
        for (index, folded) in self.conversations().iter().enumerate() {
            if index > 0 {
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

fn lines(conversation: &Conversation) -> Vec<ScriptLine> {
    let mut lines: Vec<ScriptLine> = conversation.entries().iter().map(entry).collect();
    if let Some(title) = conversation.title() {
        lines.push(new("title").quoted(title).take());
    }
    if let Some(mode) = conversation.current_mode() {
        lines.push(new("mode").word(mode.as_str()).take());
    }
    if let Some(now) = conversation.usage() {
        lines.push(whole(new("usage"), now, |line, fields, _| write_usage(line, fields)));
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
            // Default values are absent on the wire.
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
