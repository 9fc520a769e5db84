//! Builds the view of a transcript: one item for each message, tool call, request and process event.

use std::collections::HashMap;
use std::time::Duration;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    ContentBlock, ConversationEntry, MessageKind, Patch, PermissionOption, PromptRequest, PromptResponse,
    Request as _, RequestPermissionOutcome, RequestPermissionResponse, SessionId, SessionUpdate,
};
use serde_json::value::RawValue;
use similar::{ChangeTag, TextDiff};

use super::data::{
    ClearedText, ItemKind, ItemPart, PrintableText, TranscriptView, ViewFrame, ViewItem, ViewSession,
};
use crate::classify::{ParsedLine, TranscriptEntry};
use crate::format::{ProcessExit, Record, RecordEvent};
use crate::render::describe::{self, DescribedPart, Description, Stage};
use crate::render::{ConversationEvent, TranscriptFold};
use crate::transcript::Transcript;

/// Limit on a summary of JSON, in characters.
const SUMMARY: usize = 240;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Returns the items, sessions and, if wanted, frames of a transcript.
pub(super) fn build(transcript: &Transcript, with_frames: bool) -> TranscriptView {
    let entries = transcript.entries();
    let mut builder = ViewBuilder { with_frames, ..ViewBuilder::default() };
    builder.view.timed = transcript.records().iter().any(|record| !record.at.is_zero());
    let mut next = entries.iter().peekable();
    for (index, record) in transcript.records().iter().enumerate() {
        match next.next_if(|entry| entry.record == index) {
            Some(entry) => builder.entry(entry, &entries),
            None => builder.event(record),
        }
    }
    for session in 0..builder.sessions.len() {
        builder.finish_items(session);
    }
    builder.view
}

#[derive(Default)]
struct ViewBuilder {
    view: TranscriptView,
    with_frames: bool,
    /// The number of lines so far.
    lines: usize,
    fold: TranscriptFold,
    /// For each session, the items of its conversation's entries.
    sessions: Vec<HashMap<usize, usize>>,
    /// The item of each request, by the index of its frame.
    requests: HashMap<usize, usize>,
    /// The options of each request for permission, by the index of its item.
    options: HashMap<usize, Vec<PermissionOption>>,
}

impl ViewBuilder {
    fn entry(&mut self, entry: &TranscriptEntry<'_>, entries: &[TranscriptEntry<'_>]) {
        let frame = self.lines;
        self.lines += 1;
        let text = match entry.line.text() {
            Some(text) => PrintableText::from(text),
            None => PrintableText::from(entry.line.bytes().escape_ascii().to_string()),
        };
        let at = micros(entry.at);
        if self.with_frames {
            self.view.frames.push(ViewFrame { at, from: entry.from(), text: text.clone() });
        }
        let session = entry.session.as_ref().map(|id| self.session(id));
        let item = ViewItem {
            at,
            until: at,
            from: Some(entry.from()),
            session,
            frames: vec![frame],
            name: entry.method().unwrap_or_default().into(),
            ..ViewItem::default()
        };
        let event = ConversationEvent::of(entry, entries);
        if let (Some(session), Some(ConversationEvent::Restart)) = (session, &event) {
            self.finish_items(session);
        }
        let changed =
            session.zip(event.as_ref()).and_then(|(session, event)| self.fold.apply(session, event));
        match &entry.parsed {
            ParsedLine::Blank => {}
            ParsedLine::Noise(malformed) => self.view.items.push(ViewItem {
                kind: ItemKind::Process,
                name: "noise".into(),
                outcome: Some(malformed.to_string().into()),
                text,
                ..item
            }),
            ParsedLine::Request { params, .. } => {
                self.requests.insert(frame, self.view.items.len());
                self.request(item, *params, event, changed);
            }
            ParsedLine::Notification { params, .. } => match event {
                Some(ConversationEvent::Update(update)) => {
                    let name = update.tag().into();
                    self.update(ViewItem { name, ..item }, &update, changed);
                }
                _ => {
                    let (kind, text) = (ItemKind::Update, summary(*params));
                    self.view.items.push(ViewItem { kind, text, ..item });
                }
            },
            ParsedLine::Response { request, outcome, .. } => self.response(item, *request, outcome),
        }
    }

    fn session(&mut self, id: &SessionId) -> usize {
        let session = self.fold.session(id);
        if session == self.sessions.len() {
            self.view.sessions.push(ViewSession { id: id.as_str().into(), title: None });
            self.sessions.push(HashMap::new());
        }
        session
    }

    fn request(
        &mut self,
        mut item: ViewItem,
        params: Option<&RawValue>,
        event: Option<ConversationEvent>,
        changed: Option<usize>,
    ) {
        match event {
            Some(ConversationEvent::Prompt(prompt)) => {
                item.kind = ItemKind::User;
                item.text = content(&prompt.prompt);
                self.view.items.push(item);
            }
            Some(ConversationEvent::Permission(request)) => {
                item.kind = ItemKind::Permission;
                item.text = request.tool_call.title.clone().unwrap_or_default().into();
                let option = |name: &str| ItemPart::Option { name: name.into(), chosen: false };
                item.parts = request.options.iter().map(|offered| option(&offered.name)).collect();
                self.options.insert(self.view.items.len(), request.options);
                self.view.items.push(item.split());
                self.update(item, &request.tool_call.into(), changed);
            }
            _ => {
                item.text = summary(params);
                self.view.items.push(item);
            }
        }
    }

    fn response(&mut self, mut item: ViewItem, request: Option<usize>, outcome: &ResponseOutcome<'_>) {
        let request = request.and_then(|request| self.requests.get(&request)).copied();
        let options = request.and_then(|index| self.options.get(&index));
        let request = request.and_then(|index| self.view.items.get_mut(index));
        let took = request.as_ref().map(|request| Duration::from_micros(item.at.saturating_sub(request.at)));
        item.kind = ItemKind::Answer;
        item.outcome =
            took.filter(|_| self.view.timed).map(|took| format!("after {}", duration(took)).into());
        match outcome {
            ResponseOutcome::Result(result) if item.name.as_str() == PromptRequest::METHOD => {
                let answer = serde_json::from_str::<PromptResponse>(result.get());
                item.text = answer.map_or(summary(Some(result)), |answer| answer.stop_reason.as_str().into());
            }
            ResponseOutcome::Result(result) => item.text = summary(Some(result)),
            ResponseOutcome::Error(error) => {
                item.text = error.to_string().into();
                item.failed = true;
            }
            _ => {
                item.text = "cannot be read".into();
                item.failed = true;
            }
        }
        if let (Some(request), Some(options), ResponseOutcome::Result(result)) = (request, options, outcome)
            && let Ok(response) = serde_json::from_str::<RequestPermissionResponse>(result.get())
        {
            request.choose(&response.outcome, options);
            request.until = item.at;
            request.frames.append(&mut item.frames);
            return;
        }
        self.view.items.push(item);
    }

    /// Shows an update in the item of the entry that it changed. A new entry gets a new item.
    fn update(&mut self, mut item: ViewItem, update: &SessionUpdate, changed: Option<usize>) {
        let Some(session) = item.session else { return };
        let Some(index) = changed else {
            item.kind = ItemKind::Update;
            self.session_update(&mut item, update);
            self.view.items.push(item);
            return;
        };
        let new = self.view.items.len();
        let Some(items) = self.sessions.get_mut(session) else { return };
        let known = *items.entry(index).or_insert(new);
        let conversation = self.fold.conversation(session);
        let Some(entry) = conversation.and_then(|conversation| conversation.entries().get(index)) else {
            return;
        };
        if known == new {
            item.name = PrintableText::default();
            item.parts.clear();
            self.view.items.push(item.split());
        }
        let Some(shown) = self.view.items.get_mut(known) else { return };
        shown.until = item.at;
        if known != new {
            shown.frames.append(&mut item.frames);
        }
        match entry {
            ConversationEntry::Message(message) => {
                shown.kind = match message.kind {
                    MessageKind::User => ItemKind::User,
                    MessageKind::Thought => ItemKind::Thought,
                    _ => ItemKind::Agent,
                };
                shown.message(item.at, update, || content(&message.content));
            }
            ConversationEntry::ToolCall(_) => shown.kind = ItemKind::Tool,
            _ => shown.kind = ItemKind::Update,
        }
    }

    /// Describes the tool calls and compactions of a session as they are now. Once for each, not
    /// after every update: a call may have a long diff and many updates.
    fn finish_items(&mut self, session: usize) {
        let items = self.sessions.get_mut(session).map(std::mem::take).unwrap_or_default();
        let Some(conversation) = self.fold.conversation(session) else { return };
        for (index, item) in items {
            let Some(item) = self.view.items.get_mut(item) else { continue };
            match conversation.entries().get(index) {
                Some(ConversationEntry::ToolCall(call)) => item.describe(describe::tool_call(call)),
                Some(ConversationEntry::SessionMessage(message)) => {
                    item.text = content(&message.content);
                    item.parts.clear();
                }
                Some(ConversationEntry::Compaction(compaction)) => {
                    item.describe(describe::compaction(compaction));
                    item.text = content(&compaction.summary);
                    item.parts.clear();
                }
                _ => {}
            }
        }
    }

    /// Shows an update of the session as a whole.
    fn session_update(&mut self, item: &mut ViewItem, update: &SessionUpdate) {
        let name = item.name.clone();
        if let Some(description) = describe::update(update) {
            item.describe(description);
        }
        item.name = name;
        match update {
            SessionUpdate::Plan(_) | SessionUpdate::PlanUpdate(_) => item.kind = ItemKind::Plan,
            SessionUpdate::SessionInfoUpdate(info) => {
                if let (Some(title), Some(session)) =
                    (info.title.value(), item.session.and_then(|index| self.view.sessions.get_mut(index)))
                {
                    session.title = Some(title.into());
                }
            }
            SessionUpdate::Unknown(unknown) => {
                item.text = summary(Some(unknown.json().as_raw()));
            }
            SessionUpdate::Notice(_) => item.outcome = None,
            _ => {}
        }
    }

    /// Adds a record that is not a line.
    fn event(&mut self, record: &Record) {
        let (name, text, failed) = match &record.event {
            RecordEvent::Stderr(text) => ("stderr", text.clone(), false),
            RecordEvent::Eof(side) => ("end", format!("the {} writes nothing more", side.name()), false),
            RecordEvent::Exit(ProcessExit { code, signal, .. }) => {
                let how = match (code, signal) {
                    (Some(code), _) => format!("exit code {code}"),
                    (None, Some(signal)) => format!("ended by signal {signal}"),
                    (None, None) => "ended".into(),
                };
                ("exit", how, *code != Some(0))
            }
            RecordEvent::Dropped { lines, bytes } => {
                ("gap", format!("{lines} lines of {bytes} bytes were not recorded"), true)
            }
            RecordEvent::Unknown(json) => ("unknown", json.get().into(), false),
            _ => return,
        };
        let at = micros(record.at);
        // Adjacent lines of stderr are one item.
        if let (Some(last), "stderr") = (self.view.items.last_mut(), name)
            && last.name.as_str() == "stderr"
        {
            last.text.push("\n");
            last.text.push(&text);
            last.until = at;
            return;
        }
        self.view.items.push(ViewItem {
            kind: ItemKind::Process,
            at,
            until: at,
            name: name.into(),
            text: text.into(),
            failed,
            ..ViewItem::default()
        });
    }
}

impl ViewItem {
    /// Moves the text and parts into a new item of the same frame, session and time.
    fn split(&mut self) -> ViewItem {
        ViewItem {
            frames: self.frames.clone(),
            name: self.name.clone(),
            parts: std::mem::take(&mut self.parts),
            text: std::mem::take(&mut self.text),
            kind: self.kind,
            at: self.at,
            until: self.until,
            from: self.from,
            session: self.session,
            ..ViewItem::default()
        }
    }

    /// Applies a chunk or a clear to a message. Copies only the new text.
    fn message(&mut self, at: u64, update: &SessionUpdate, whole: impl FnOnce() -> PrintableText) {
        match update {
            SessionUpdate::AgentMessageClear(_) | SessionUpdate::AgentThoughtClear(_) => {
                self.clear(at);
            }
            SessionUpdate::AgentMessageChunk(chunk)
            | SessionUpdate::AgentThoughtChunk(chunk)
            | SessionUpdate::UserMessageChunk(chunk) => {
                self.text.push(&describe::content(&chunk.content));
            }
            // The text stays. Looking at it would cost its length for each such update.
            SessionUpdate::UserMessage(update)
            | SessionUpdate::AgentMessage(update)
            | SessionUpdate::AgentThought(update)
                if update.content == Patch::Keep => {}
            // A whole message, which replaces the text.
            _ => {
                let whole = whole();
                if !whole.as_str().starts_with(self.text.as_str()) {
                    self.clear(at);
                }
                self.text = whole;
            }
        }
    }

    fn clear(&mut self, at: u64) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.drafts.push(ClearedText { at, text });
        }
    }

    fn describe(&mut self, description: Description<'_>) {
        let Description { label, text, status, parts } = description;
        (self.name, self.text) = (label.into(), text.into());
        self.outcome = status.map(|status| status.word.into());
        self.failed = status.is_some_and(|status| status.stage == Stage::Failed);
        let mut locations = Vec::new();
        let mut shown = Vec::new();
        for part in parts {
            shown.push(match part {
                DescribedPart::Location(location) => {
                    locations.push(describe::location(location));
                    continue;
                }
                DescribedPart::Text(text) => ItemPart::Text(text.into()),
                DescribedPart::Diff(diff) => ItemPart::Diff {
                    path: diff.path.to_string_lossy().into(),
                    lines: lines(diff.old_text.as_deref().unwrap_or_default(), &diff.new_text),
                },
                DescribedPart::Field { name, text, .. } => {
                    ItemPart::Field { name: name.into(), text: text.into() }
                }
                DescribedPart::Step { text, status, .. } => {
                    ItemPart::Step { text: text.into(), status: status.word.into() }
                }
            });
        }
        let all = (!locations.is_empty())
            .then(|| ItemPart::Field { name: "where".into(), text: locations.join("\n").into() });
        self.parts = all.into_iter().chain(shown).collect();
    }

    /// Marks the chosen one of these options.
    fn choose(&mut self, outcome: &RequestPermissionOutcome, options: &[PermissionOption]) {
        let RequestPermissionOutcome::Selected(selected) = outcome else {
            self.outcome = Some("cancelled".into());
            return;
        };
        self.outcome = Some(selected.option_id.as_str().into());
        for (option, part) in options.iter().zip(&mut self.parts) {
            if let ItemPart::Option { name, chosen } = part
                && option.option_id == selected.option_id
            {
                *chosen = true;
                self.outcome = Some(name.clone());
                self.failed = option.kind.as_str().starts_with("reject");
            }
        }
    }
}

/// Returns content blocks as one text.
fn content(blocks: &[ContentBlock]) -> PrintableText {
    let mut text = PrintableText::default();
    for block in blocks {
        text.push(&describe::content(block));
    }
    text
}

/// Returns the lines of a change with the unchanged lines around them, or all lines of texts that take too long to
/// compare.
fn lines(old: &str, new: &str) -> Vec<(char, PrintableText)> {
    if !describe::diff_is_cheap(old, new) {
        let all = |mark, text: &str| text.lines().map(|line| (mark, line.into())).collect::<Vec<_>>();
        return [all('-', old), all('+', new)].concat();
    }
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            lines.push(('@', PrintableText::from("⋯")));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            lines.push((mark, change.value().trim_end_matches(['\n', '\r']).into()));
        }
    }
    #[cfg(test)]
    tests::DIFFED_LINES.set(tests::DIFFED_LINES.get() + lines.len());
    lines
}

/// Members of the messages between agents that describe them in words.
const WORDS: [&str; 11] = [
    "/envelope/payload/question",
    "/envelope/payload/summary",
    "/envelope/payload/task",
    "/envelope/payload/outcome",
    "/envelope/payload/topic",
    "/envelope/payload/message",
    "/message/content/natural_language",
    "/message/message_type",
    "/receipt/status",
    "/input/task/action",
    "/output/summary",
];

/// Returns the words in some JSON, or its beginning, without the session id that is shown beside it.
fn summary(json: Option<&RawValue>) -> PrintableText {
    let Some(json) = json else { return PrintableText::default() };
    let text = match serde_json::from_str(json.get()) {
        Ok(serde_json::Value::Object(mut members)) => {
            members.remove("sessionId");
            if members.is_empty() {
                return PrintableText::default();
            }
            let json = serde_json::Value::Object(members);
            match WORDS.iter().find_map(|pointer| json.pointer(pointer)?.as_str()) {
                Some(words) => words.to_owned(),
                None => json.to_string(),
            }
        }
        _ => json.get().to_owned(),
    };
    match text.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Formats a duration for a reader.
#[must_use]
pub fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1e-3 => format!("{} µs", time.as_micros()),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 60.0 => format!("{seconds:.1} s"),
        seconds => format!("{} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Header, RecordedLine, Side};

    thread_local! {
        /// The lines of diffs that were computed.
        pub(super) static DIFFED_LINES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn line(from: Side, json: &str) -> Record {
        Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(from, json.as_bytes())))
    }

    fn chunk(text: &str) -> Record {
        let update = format!(
            r#"{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}"#
        );
        update_line(&update)
    }

    fn update_line(update: &str) -> Record {
        let params = format!(r#"{{"sessionId":"s","update":{update}}}"#);
        line(Side::Agent, &format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#))
    }

    fn load(answer: &str) -> Vec<Record> {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p","mcpServers":[]}}"#;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#);
        vec![chunk("Before. "), line(Side::Client, request), chunk("After."), line(Side::Agent, &answer)]
    }

    fn texts(transcript: &Transcript) -> Vec<String> {
        let view = build(transcript, true);
        let messages = view.items.iter().filter(|item| item.kind == ItemKind::Agent);
        messages.map(|item| item.text.as_str().to_owned()).collect()
    }

    /// The page and the folded text agree on it.
    #[test]
    fn a_rejected_load_does_not_restart_the_session() {
        let rejected =
            Transcript::new(Header::new("a test"), load(r#""error":{"code":-32603,"message":"no"}"#));
        assert_eq!(texts(&rejected), ["Before. After."]);
        assert!(rejected.fold().contains("Before. After."), "{}", rejected.fold());

        let loaded = Transcript::new(Header::new("a test"), load(r#""result":{}"#));
        assert_eq!(texts(&loaded), ["Before. ", "After."]);
        assert!(!loaded.fold().contains("Before."), "{}", loaded.fold());
    }

    #[test]
    fn an_update_of_the_client_changes_no_message() {
        let update = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"No. "}}"#;
        let params = format!(r#"{{"sessionId":"s","update":{update}}}"#);
        let forged = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
        let records = vec![chunk("Yes. "), line(Side::Client, &forged), chunk("Yes.")];
        let transcript = Transcript::new(Header::new("a test"), records);
        assert_eq!(texts(&transcript), ["Yes. Yes."]);
        assert!(transcript.fold().contains("Yes. Yes."), "{}", transcript.fold());
    }

    /// A call is described once, however many updates it gets.
    #[test]
    fn a_page_is_linear_in_the_updates_of_a_call() {
        let lines = |updates: usize| {
            let text = "line\\n".repeat(updates);
            let begun = format!(
                r#"{{"sessionUpdate":"tool_call","toolCallId":"c","title":"Edit","content":[{{"type":"diff","path":"/a","newText":"{text}"}}]}}"#
            );
            let running = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress"}"#;
            let records = [update_line(&begun)].into_iter();
            let records = records.chain((0..updates).map(|_| update_line(running))).collect();
            let view = build(&Transcript::new(Header::new("a test"), records), false);
            assert_eq!((view.items.len(), view.frames.len()), (1, 0));
            DIFFED_LINES.replace(0)
        };
        assert_eq!((lines(100), lines(200)), (100, 200));
    }

    #[test]
    fn texts_that_take_too_long_to_compare_are_shown_as_they_are() {
        let text = |word: &str| format!("{word}\nthe same\n");
        let marks = |old: &str, new: &str| lines(old, new).iter().map(|(mark, _)| *mark).collect::<String>();
        assert_eq!(marks(&text("old"), &text("new")), "-+ ");
        assert_eq!(marks(&text(&"old".repeat(100_000)), &text("new")), "--++");
    }
}
