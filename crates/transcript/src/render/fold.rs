//! The fold of a transcript: one conversation for each session.

use std::collections::HashMap;
use std::fmt::Write as _;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    AgentNotification, AgentRequest, ChildSession, ClientRequest, Conversation, ConversationEntry,
    DisplayTerminal, InterSessionMessage, LoadSessionRequest, MessageKind, PromptRequest, Request as _,
    RequestPermissionRequest, SessionId, SessionUpdate, StateUpdate, v2,
};
use serde::Serialize;
use serde_json::Value;

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
    /// A `session/load`, or in version 2 a `session/resume` with `replayFrom`: the agent replays the session from its
    /// beginning.
    Restart,
    /// A prompt of the user. In version 2 the agent sends it back as an update.
    Prompt(PromptRequest),
    /// A permission request, which updates its tool call.
    Permission(Box<RequestPermissionRequest>),
    /// A session update.
    Update(Box<SessionUpdate>),
    /// The response with which a turn ends.
    TurnEnd,
}

impl ConversationEvent {
    /// Decodes the event in one of `entries`, if it has one. A `session/load` that the agent rejects
    /// is none: the session continues as it was.
    #[must_use]
    pub fn of(entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) -> Option<Self> {
        if entry.is_v2() {
            return Self::of_v2(entry, entries);
        }
        match (&entry.parsed, entry.from()) {
            (ParsedLine::Request { method, .. }, Side::Client) if method == LoadSessionRequest::METHOD => {
                Self::restart(entry, entries)
            }
            (ParsedLine::Request { method, params, .. }, Side::Client) => {
                match ClientRequest::decode(method, *params)?.ok()? {
                    ClientRequest::Prompt(request) => Some(ConversationEvent::Prompt(request)),
                    _ => None,
                }
            }
            (ParsedLine::Request { method, params, .. }, Side::Agent) => {
                match AgentRequest::decode(method, *params)?.ok()? {
                    AgentRequest::RequestPermission(request) => {
                        Some(ConversationEvent::Permission(Box::new(request)))
                    }
                    _ => None,
                }
            }
            (ParsedLine::Notification { method, params }, Side::Agent) => {
                match AgentNotification::decode(method, *params)?.ok()? {
                    AgentNotification::SessionUpdate(notification) => {
                        Some(ConversationEvent::Update(Box::new(notification.update)))
                    }
                    _ => None,
                }
            }
            (ParsedLine::Response { .. }, Side::Agent) if entry.ends_turn() => {
                Some(ConversationEvent::TurnEnd)
            }
            _ => None,
        }
    }

    fn of_v2(entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) -> Option<Self> {
        match (&entry.parsed, entry.from()) {
            (ParsedLine::Request { method, params, .. }, Side::Client) => {
                match v2::ClientRequest::decode(method, *params)?.ok()? {
                    v2::ClientRequest::ResumeSession(request) if request.replay_from.is_some() => {
                        Self::restart(entry, entries)
                    }
                    _ => None,
                }
            }
            (ParsedLine::Request { method, params, .. }, Side::Agent) => {
                match v2::AgentRequest::decode(method, *params)?.ok()? {
                    v2::AgentRequest::RequestPermission(request) => {
                        Some(ConversationEvent::Permission(Box::new(request.into())))
                    }
                    _ => None,
                }
            }
            (ParsedLine::Notification { method, params }, Side::Agent) => {
                match v2::AgentNotification::decode(method, *params)?.ok()? {
                    v2::AgentNotification::UpdateSession(notification) => {
                        Some(ConversationEvent::Update(Box::new(notification.update.into())))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn restart(entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) -> Option<Self> {
        let ParsedLine::Request { answer, .. } = &entry.parsed else { return None };
        let answer = answer.and_then(|index| entries.get(index)).map(|answer| &answer.parsed);
        let rejected =
            matches!(answer, Some(ParsedLine::Response { outcome: ResponseOutcome::Error(_), .. }));
        (!rejected).then_some(ConversationEvent::Restart)
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
            // The tool call may be only a description of the question.
            ConversationEvent::Permission(request)
                if request.question.as_ref().is_some_and(|question| question.is_stand_in) => {}
            ConversationEvent::Permission(request) => {
                return conversation.apply(&request.tool_call.clone().into());
            }
            ConversationEvent::Update(update) => {
                let changed = conversation.apply(update);
                if matches!(&**update, SessionUpdate::StateUpdate(StateUpdate::Idle(_))) {
                    conversation.end_turn();
                }
                return changed;
            }
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
            let mut session = ScriptLine::new(RenderOptions::default().text_bytes);
            let _ = writeln!(text, "{}", session.add("## session").word(folded.session.as_str()));
            write(&mut session, &folded.conversation);
            // Writing to a string does not fail.
            let _ = session.below().try_for_each(|line| writeln!(text, "{line}"));
        }
        text
    }
}

/// Writes a conversation on the lines below this one.
fn write(line: &mut ScriptLine, conversation: &Conversation) {
    conversation.entries().iter().for_each(|it| line.under(|line| entry(line, it)));
    if let Some(title) = conversation.title() {
        line.under(|line| _ = line.add("title").quoted(title));
    }
    if let Some(mode) = conversation.current_mode() {
        line.under(|line| _ = line.add("mode").word(mode.as_str()));
    }
    if let Some(usage) = conversation.usage() {
        line.under(|line| line.add("usage").value(json(usage), write_usage));
    }
    if let Some(plan) = conversation.plan() {
        line.under(|line| line.add("plan").value(json(plan), content::plan));
    }
    for plan in &conversation.state().plans {
        line.under(|line| line.add("plan").value(json(plan), content::plan_with_id));
    }
    if let Some(state) = conversation.state().foreground.as_ref().filter(|state| !is_over(state)) {
        line.under(|line| line.add("state").value(json(state), content::state));
    }
    conversation.terminals().for_each(|it| line.under(|line| terminal(line, it)));
    conversation.children().iter().for_each(|it| line.under(|line| child(line, it)));
    let commands = list("availableCommands", conversation.commands());
    if !commands.is_empty() {
        line.under(|line| line.add("commands").object(commands, content::commands));
    }
    let options = list("configOptions", conversation.config_options());
    if !options.is_empty() {
        line.under(|line| line.add("options").object(options, content::config_options));
    }
    if let Some(meta) = conversation.meta() {
        line.under(|line| line.add("_meta").value(json(meta), |_| {}));
    }
    let stats = conversation.stats();
    for (ignored, what) in
        [(stats.unknown_clears, "clears of no message"), (stats.unknown_updates, "unknown updates")]
    {
        if ignored > 0 {
            line.under(|line| _ = line.add(format_args!("ignored {ignored} {what}")));
        }
    }
}

fn entry(line: &mut ScriptLine, entry: &ConversationEntry) {
    match entry {
        ConversationEntry::Message(message) => {
            line.add(match message.kind {
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
            let mut fields = list("content", &message.content);
            if let Some(meta) = &message.meta {
                fields.put("_meta", json(meta));
            }
            line.object(fields, |it| content::blocks(it, "content"));
        }
        ConversationEntry::ToolCall(call) => line.add("tool_call").value(json(call), |it| {
            // Default values are absent on the wire.
            it.fields.put("kind", call.kind.as_str().into());
            it.fields.put("status", call.status.as_str().into());
            content::tool_call(it);
        }),
        ConversationEntry::Compaction(compaction) => {
            line.add("compaction").word(compaction.id.as_str()).word(compaction.status.as_str());
            if let Some(error) = &compaction.error {
                line.quoted(error);
            }
            line.object(list("summary", &compaction.summary), |it| content::blocks(it, "summary"));
        }
        ConversationEntry::SessionMessage(message) => session_message(line, message),
        _ => _ = line.add("something later"),
    }
}

/// Writes a message between sessions.
fn session_message(line: &mut ScriptLine, message: &InterSessionMessage) {
    line.add("session_message").word(message.id.as_str());
    for (name, session) in [("from", &message.sender), ("to", &message.recipient)] {
        if let Some(session) = session {
            line.add(name).word(session.as_str());
        }
    }
    line.object(list("content", &message.content), |it| content::blocks(it, "content"));
}

/// Writes a terminal of the agent with the end of its output.
fn terminal(line: &mut ScriptLine, terminal: &DisplayTerminal) {
    line.add("terminal").word(terminal.id.as_str());
    if let Some(status) = &terminal.exit_status {
        line.value(json(status), content::exit_status);
    }
    if let Some(command) = &terminal.command {
        line.quoted(command);
    }
    let (output, is_cut) = terminal.output();
    if is_cut {
        line.add("(its start is not kept)");
    }
    if !output.is_empty() {
        line.text(&output);
    }
}

/// Writes a child session.
fn child(line: &mut ScriptLine, child: &ChildSession) {
    line.add("subagent").word(child.id.as_str());
    if let Some(parent) = &child.parent {
        line.add("of").word(parent.as_str());
    }
    if let Some(state) = &child.state {
        line.value(json(state), content::state);
    }
    for text in [&child.title, &child.description].into_iter().flatten() {
        line.quoted(text);
    }
}

/// Returns true for the usual state at the end of a recording, which is not shown.
fn is_over(state: &StateUpdate) -> bool {
    matches!(state, StateUpdate::Idle(idle) if idle.stop.error().is_none())
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns a list under a name, or nothing if it is empty.
fn list<T: Serialize>(name: &str, list: &[T]) -> Fields {
    let mut fields = Fields::default();
    if !list.is_empty() {
        fields.put(name, json(&list));
    }
    fields
}
