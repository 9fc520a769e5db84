//! From the lines of a transcript to what the page shows: chunks become messages with their drafts, updates
//! become tool calls, answers find their requests.

use std::collections::HashMap;
use std::time::Duration;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    AgentNotification, AgentRequest, ClientRequest, ContentBlock, Conversation, ConversationEntry,
    EmbeddedResourceResource, MessageKind, PromptResponse, RequestPermissionOutcome,
    RequestPermissionResponse, SessionId, SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus,
};
use duologue_transcript::{ParsedLine, ProcessExit, Record, RecordEvent, Transcript, TranscriptEntry};
use serde_json::value::RawValue;
use similar::{ChangeTag, TextDiff};

use super::data::{ClearedText, ItemKind, ItemPart, Page, PageFrame, PageItem, PageSession, PrintableText};

/// The longest summary of JSON, in characters.
const SUMMARY: usize = 240;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The items, frames and sessions of a transcript.
pub(super) fn fold(transcript: &Transcript) -> Page {
    let entries = transcript.entries();
    let mut fold = Fold::default();
    fold.page.timed = transcript.records().iter().any(|record| !record.at.is_zero());
    let mut next = entries.iter().peekable();
    for (place, record) in transcript.records().iter().enumerate() {
        match next.next_if(|entry| entry.record == place) {
            Some(entry) => fold.entry(entry),
            None => fold.event(record),
        }
    }
    fold.page
}

#[derive(Default)]
struct Fold {
    page: Page,
    sessions: HashMap<SessionId, usize>,
    /// What each session has come to, by its place.
    conversations: Vec<Told>,
    /// The item of each permission request and of each request, by their entry.
    asked: HashMap<usize, usize>,
    entries: usize,
}

/// A session, and which of its entries is which item.
#[derive(Default)]
struct Told {
    conversation: Conversation,
    items: HashMap<usize, usize>,
}

impl Fold {
    fn entry(&mut self, entry: &TranscriptEntry<'_>) {
        let place = self.entries;
        self.entries += 1;
        let text = match entry.line.text() {
            Some(text) => PrintableText::from(text),
            None => PrintableText::from(entry.line.bytes().escape_ascii().to_string()),
        };
        let at = micros(entry.at);
        self.page.frames.push(PageFrame { at, from: entry.from(), text: text.clone() });
        let session = entry.session.as_ref().map(|id| self.session(id));
        let mut item = PageItem {
            at,
            until: at,
            from: Some(entry.from()),
            session,
            frames: vec![place],
            name: entry.method().unwrap_or_default().into(),
            ..PageItem::default()
        };
        match &entry.parsed {
            ParsedLine::Blank => {}
            ParsedLine::Noise(malformed) => {
                item.kind = ItemKind::Process;
                item.name = "noise".into();
                item.outcome = Some(malformed.to_string().into());
                item.text = text;
                self.page.items.push(item);
            }
            ParsedLine::Request { method, params, .. } => {
                self.asked.insert(place, self.page.items.len());
                self.request(item, method, *params);
            }
            ParsedLine::Notification { method, params, .. } => self.notification(item, method, *params),
            ParsedLine::Response { request, outcome, .. } => self.response(item, *request, outcome),
            _ => {}
        }
    }

    fn session(&mut self, id: &SessionId) -> usize {
        if let Some(place) = self.sessions.get(id) {
            return *place;
        }
        let place = self.page.sessions.len();
        self.sessions.insert(id.clone(), place);
        self.page.sessions.push(PageSession { id: id.as_str().into(), title: None });
        self.conversations.push(Told::default());
        place
    }

    fn told(&mut self, session: Option<usize>) -> Option<&mut Told> {
        self.conversations.get_mut(session?)
    }

    fn request(&mut self, mut item: PageItem, method: &str, params: Option<&RawValue>) {
        if let Some(Ok(ClientRequest::Prompt(prompt))) = ClientRequest::decode(method, params) {
            item.kind = ItemKind::User;
            item.text = content(&prompt.prompt);
            if let Some(told) = self.told(item.session) {
                told.conversation.prompt(&prompt.prompt);
            }
            self.page.items.push(item);
            return;
        }
        if method == "session/load"
            && let Some(told) = self.told(item.session)
        {
            // Its story is told again, from the beginning.
            *told = Told::default();
        }
        if let Some(Ok(AgentRequest::RequestPermission(asked))) = AgentRequest::decode(method, params) {
            item.kind = ItemKind::Permission;
            item.text = asked.tool_call.title.clone().unwrap_or_default().into();
            item.parts = asked
                .options
                .iter()
                .map(|option| ItemPart::Option { name: option.name.as_str().into(), chosen: false })
                .collect();
            let update = SessionUpdate::ToolCallUpdate(Box::new(asked.tool_call));
            self.page.items.push(item.again());
            self.update(item, &update);
            return;
        }
        item.text = summary(params);
        self.page.items.push(item);
    }

    fn notification(&mut self, mut item: PageItem, method: &str, params: Option<&RawValue>) {
        match AgentNotification::decode(method, params) {
            Some(Ok(AgentNotification::SessionUpdate(told))) => self.update(item, &told.update),
            _ => {
                item.kind = ItemKind::Update;
                item.text = summary(params);
                self.page.items.push(item);
            }
        }
    }

    fn response(&mut self, mut item: PageItem, request: Option<usize>, outcome: &ResponseOutcome<'_>) {
        let asked = request.and_then(|request| self.asked.get(&request)).copied();
        let asked = asked.and_then(|place| self.page.items.get_mut(place));
        let took = asked.as_ref().map(|asked| Duration::from_micros(item.at.saturating_sub(asked.at)));
        item.kind = ItemKind::Answer;
        item.outcome =
            took.filter(|_| self.page.timed).map(|took| format!("after {}", duration(took)).into());
        match outcome {
            ResponseOutcome::Result(result) if item.name.as_str() == "session/prompt" => {
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
        if let (Some(asked), ResponseOutcome::Result(result)) = (asked, outcome)
            && asked.kind == ItemKind::Permission
            && let Ok(response) = serde_json::from_str::<RequestPermissionResponse>(result.get())
        {
            asked.choose(&response.outcome, &self.page.frames);
            asked.until = item.at;
            asked.frames.append(&mut item.frames);
            return;
        }
        if item.name.as_str() == "session/prompt"
            && let Some(told) = self.told(item.session)
        {
            told.conversation.end_turn();
        }
        self.page.items.push(item);
    }

    /// Takes in an update, and shows it in the item of what it is about, which it may begin.
    fn update(&mut self, mut item: PageItem, update: &SessionUpdate) {
        let fresh = self.page.items.len();
        let Some(told) = item.session.and_then(|session| self.conversations.get_mut(session)) else { return };
        let entries = told.conversation.entries().len();
        let changed = told.conversation.apply(update);
        let Some(place) = changed else {
            item.kind = ItemKind::Update;
            self.state(&mut item, update);
            self.page.items.push(item);
            return;
        };
        let known = told.items.entry(place).or_insert(fresh);
        let Some(entry) = told.conversation.entries().get(place) else { return };
        if *known == fresh || place >= entries {
            *known = fresh;
            item.name = PrintableText::default();
            item.parts.clear();
            self.page.items.push(item.again());
        }
        let Some(shown) = self.page.items.get_mut(*known) else { return };
        shown.until = item.at;
        if *known != fresh {
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
            ConversationEntry::ToolCall(call) => shown.tool_call(call),
            ConversationEntry::Compaction(compaction) => {
                shown.kind = ItemKind::Update;
                shown.name = "compaction".into();
                shown.outcome = Some(compaction.status.as_str().into());
                shown.text = content(&compaction.summary);
            }
            _ => {}
        }
    }

    /// An update about the session as a whole.
    fn state(&mut self, item: &mut PageItem, update: &SessionUpdate) {
        let raw = item.frames.first().and_then(|frame| self.page.frames.get(*frame));
        let name = raw.and_then(|frame| tag(frame.text.as_str()));
        item.name = name.unwrap_or_else(|| item.name.clone());
        match update {
            SessionUpdate::Plan(plan) => {
                item.kind = ItemKind::Plan;
                item.parts = plan
                    .entries
                    .iter()
                    .map(|step| ItemPart::Step {
                        text: step.content.as_str().into(),
                        status: step.status.as_str().into(),
                    })
                    .collect();
            }
            SessionUpdate::AvailableCommandsUpdate(update) => {
                let names: Vec<_> =
                    update.available_commands.iter().map(|command| format!("/{}", command.name)).collect();
                item.text = names.join("  ").into();
            }
            SessionUpdate::CurrentModeUpdate(update) => item.text = update.current_mode_id.as_str().into(),
            SessionUpdate::UsageUpdate(usage) => {
                let cost = usage.cost.as_ref();
                let cost =
                    cost.map(|cost| format!(", {} {}", cost.amount, cost.currency)).unwrap_or_default();
                item.text = format!("{} of {} tokens{cost}", usage.used, usage.size).into();
            }
            SessionUpdate::Notice(notice) => {
                item.failed = notice.severity.as_str() == "error";
                item.text = notice.title.as_str().into();
            }
            SessionUpdate::SessionInfoUpdate(info) => {
                if let (Some(title), Some(session)) =
                    (info.title.value(), item.session.and_then(|place| self.page.sessions.get_mut(place)))
                {
                    session.title = Some(title.into());
                    item.text = title.into();
                }
            }
            SessionUpdate::Unknown(unknown) => {
                item.name = unknown.tag().into();
                item.text = summary(Some(unknown.json().as_raw()));
            }
            _ => {}
        }
    }

    /// What is no line.
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
        // Lines of stderr that follow one another are one thing.
        if let (Some(last), "stderr") = (self.page.items.last_mut(), name)
            && last.name.as_str() == "stderr"
        {
            last.text.push("\n");
            last.text.push(&text);
            last.until = at;
            return;
        }
        self.page.items.push(PageItem {
            kind: ItemKind::Process,
            at,
            until: at,
            name: name.into(),
            text: text.into(),
            failed,
            ..PageItem::default()
        });
    }
}

impl PageItem {
    /// Another item of the same frame, session and time.
    fn again(&mut self) -> PageItem {
        PageItem {
            frames: self.frames.clone(),
            name: self.name.clone(),
            parts: std::mem::take(&mut self.parts),
            text: std::mem::take(&mut self.text),
            kind: self.kind,
            at: self.at,
            until: self.until,
            from: self.from,
            session: self.session,
            ..PageItem::default()
        }
    }

    /// Takes a chunk or a clear into a message. Copies no more of it than what is new.
    fn message(&mut self, at: u64, update: &SessionUpdate, whole: impl FnOnce() -> PrintableText) {
        match update {
            SessionUpdate::AgentMessageClear(_) | SessionUpdate::AgentThoughtClear(_) => {
                self.clear(at);
            }
            SessionUpdate::AgentMessageChunk(chunk)
            | SessionUpdate::AgentThoughtChunk(chunk)
            | SessionUpdate::UserMessageChunk(chunk) => {
                self.text.push(&block(&chunk.content));
            }
            // A message that came whole.
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

    fn tool_call(&mut self, call: &ToolCall) {
        self.kind = ItemKind::Tool;
        self.name = call.kind.as_str().into();
        self.text = call.title.as_str().into();
        self.outcome = Some(call.status.as_str().into());
        self.failed = call.status == ToolCallStatus::Failed;
        let field = |name, text: String| ItemPart::Field { name, text: text.into() };
        let places: Vec<_> = call
            .locations
            .iter()
            .map(|place| match place.line {
                Some(line) => format!("{}:{line}", place.path.display()),
                None => place.path.display().to_string(),
            })
            .collect();
        self.parts = (!places.is_empty()).then(|| field("where", places.join("\n"))).into_iter().collect();
        self.parts.extend(call.raw_input.as_ref().map(|json| field("input", json.get().into())));
        self.parts.extend(call.content.iter().map(|part| match part {
            ToolCallContent::Content(part) => ItemPart::Text(block(&part.content).into()),
            ToolCallContent::Diff(diff) => ItemPart::Diff {
                path: diff.path.to_string_lossy().into(),
                lines: lines(diff.old_text.as_deref().unwrap_or_default(), &diff.new_text),
            },
            ToolCallContent::Terminal(terminal) => field("terminal", terminal.terminal_id.to_string()),
            unknown => ItemPart::Text(serde_json::to_string(unknown).unwrap_or_default().into()),
        }));
        self.parts.extend(call.raw_output.as_ref().map(|json| field("output", json.get().into())));
    }

    /// Marks the option that was chosen; the request's own frame says which id it has.
    fn choose(&mut self, outcome: &RequestPermissionOutcome, frames: &[PageFrame]) {
        #[derive(serde::Deserialize)]
        struct Asked {
            params: duologue_schema::RequestPermissionRequest,
        }
        let RequestPermissionOutcome::Selected(selected) = outcome else {
            self.outcome = Some("cancelled".into());
            return;
        };
        self.outcome = Some(selected.option_id.as_str().into());
        let asked = self.frames.first().and_then(|frame| frames.get(*frame));
        let asked = asked.and_then(|frame| serde_json::from_str::<Asked>(frame.text.as_str()).ok());
        let Some(Asked { params }) = asked else { return };
        for (option, part) in params.options.iter().zip(&mut self.parts) {
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

/// Blocks as text.
fn content(blocks: &[ContentBlock]) -> PrintableText {
    let mut text = PrintableText::default();
    for piece in blocks {
        text.push(&block(piece));
    }
    text
}

/// A block as text; of what is none, what it is.
fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            format!("[image, {}, {} bytes of base64]", image.mime_type, image.data.len())
        }
        ContentBlock::Audio(audio) => {
            format!("[audio, {}, {} bytes of base64]", audio.mime_type, audio.data.len())
        }
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(contents) => {
                format!("[{}]\n{}\n", contents.uri, contents.text)
            }
            EmbeddedResourceResource::BlobResourceContents(contents) => {
                format!("[{}, {} bytes of base64]", contents.uri, contents.blob.len())
            }
            _ => "[resource]".into(),
        },
        unknown => serde_json::to_string(unknown).unwrap_or_default(),
    }
}

/// The lines of a change, with what did not change left out.
fn lines(old: &str, new: &str) -> Vec<(char, PrintableText)> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (place, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if place > 0 {
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
    lines
}

/// Where agents that speak to each other say in words what it is about.
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

/// The beginning of some JSON, or what it says in words, without the session it is in, which stands beside it.
fn summary(json: Option<&RawValue>) -> PrintableText {
    let Some(json) = json else { return PrintableText::default() };
    let text = match serde_json::from_str(json.get()) {
        Ok(serde_json::Value::Object(mut members)) => {
            members.remove("sessionId");
            if members.is_empty() {
                return PrintableText::default();
            }
            let json = serde_json::Value::Object(members);
            match WORDS.iter().find_map(|place| json.pointer(place)?.as_str()) {
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

/// What an update calls itself.
fn tag(frame: &str) -> Option<PrintableText> {
    let frame: serde_json::Value = serde_json::from_str(frame).ok()?;
    frame.pointer("/params/update/sessionUpdate")?.as_str().map(PrintableText::from)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A duration, for people.
pub(super) fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1e-3 => format!("{} µs", time.as_micros()),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 60.0 => format!("{seconds:.1} s"),
        seconds => format!("{} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0),
    }
}
