//! Recordings of the same conversation render to the same text, whatever its ids, times and chunks were
//! and however its sessions and stderr ran into each other.

use std::collections::VecDeque;
use std::time::Duration;

use duologue_transcript::{Header, Record, RecordEvent, RecordedLine, RenderOptions, Side, Transcript};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A conversation without the values that may differ.
#[derive(Clone, Debug)]
struct Conversation {
    sessions: Vec<Session>,
    stderr: Vec<String>,
    noise: Vec<String>,
}

/// A session: how it begins, its turns, and whether the last one has no end.
#[derive(Clone, Debug)]
struct Session {
    loaded: bool,
    turns: Vec<Vec<Act>>,
    open: bool,
}

/// One thing an agent does in a turn. Numbers stand for ids.
#[derive(Clone, Debug)]
enum Act {
    Say {
        kind: &'static str,
        id: Option<u8>,
        text: String,
        meta: bool,
    },
    Picture {
        id: Option<u8>,
    },
    Clear {
        kind: &'static str,
        id: Option<u8>,
    },
    Tool {
        id: u8,
        update: bool,
        text: String,
    },
    AskPermission {
        id: u8,
        end: End,
    },
    Read {
        text: String,
    },
    Usage(u16),
    Cancel,
    /// The client withdraws its prompt.
    Withdraw,
    Unknown(String),
    /// Names something that other sessions may name too, by a UUID.
    Step(u8),
}

/// The outcome of a permission request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Allowed,
    Refused,
    /// The agent withdraws it before or after the answer.
    Withdrawn,
    TooLate,
    /// There is no answer.
    Open,
}

fn text() -> impl Strategy<Value = String> {
    const PIECES: [&str; 12] = [
        "Hello ",
        "\n",
        "é世界😀",
        "{cwd}/src/main.rs",
        " in {session} ",
        "\"so\" ",
        "\u{1b}[2J",
        "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfGh ",
        "took 1.25s\n",
        "the call {tool} of {message}. ",
        "   \n\n",
        "2026-11-21T15:00:00Z ",
    ];
    vec(prop::sample::select(PIECES.as_slice()), 1..6).prop_map(|pieces| pieces.concat())
}

fn act() -> impl Strategy<Value = Act> {
    let kind = || {
        prop::sample::select(["agent_message", "agent_message", "agent_thought", "user_message"].as_slice())
    };
    let id = || prop::option::of(0..3u8);
    prop_oneof![
        6 => (kind(), id(), text(), any::<bool>())
            .prop_map(|(kind, id, text, meta)| Act::Say { kind, id, text, meta }),
        1 => id().prop_map(|id| Act::Picture { id }),
        2 => (prop::sample::select(["agent_message", "agent_thought"].as_slice()), id())
            .prop_map(|(kind, id)| Act::Clear { kind, id }),
        2 => (0..3u8, any::<bool>(), text()).prop_map(|(id, update, text)| Act::Tool { id, update, text }),
        2 => (0..3u8, end()).prop_map(|(id, end)| Act::AskPermission { id, end }),
        1 => text().prop_map(|text| Act::Read { text }),
        1 => any::<u16>().prop_map(Act::Usage),
        1 => Just(Act::Cancel),
        1 => Just(Act::Withdraw),
        1 => text().prop_map(Act::Unknown),
        1 => (0..3u8).prop_map(Act::Step),
    ]
}

fn end() -> impl Strategy<Value = End> {
    use End::{Allowed, Open, Refused, TooLate, Withdrawn};
    prop::sample::select([Allowed, Refused, Withdrawn, TooLate, Open].as_slice())
}

fn session() -> impl Strategy<Value = Session> {
    (any::<bool>(), vec(vec(act(), 0..7), 0..3), any::<bool>()).prop_map(|(loaded, turns, open)| Session {
        loaded,
        turns,
        open,
    })
}

fn conversation() -> impl Strategy<Value = Conversation> {
    (
        vec(session(), 1..4),
        vec(text().prop_map(|text| text.replace('\n', " ")), 0..4),
        vec(prop::sample::select(["npm WARN old lockfile", "[1,2]", "{\"x\":1}", "{"].as_slice()), 0..3),
    )
        .prop_map(|(sessions, stderr, noise)| Conversation {
            sessions,
            stderr,
            noise: noise.into_iter().map(str::to_owned).collect(),
        })
}

/// The source of values that may differ, drawn from random bytes. Without bytes, all values are plain.
struct Chance {
    bytes: VecDeque<u8>,
    /// Each side counts its own: the ids of one are ids of the other.
    requests: [u64; 2],
    salt: u64,
    at: Duration,
}

impl Chance {
    fn new(bytes: Vec<u8>) -> Self {
        let salt = bytes.iter().fold(7, |salt: u64, byte| salt.wrapping_mul(31).wrapping_add((*byte).into()));
        Chance { bytes: bytes.into(), requests: [salt % 7; 2], salt, at: Duration::ZERO }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.bytes.pop_front().unwrap_or(0)) % limit.max(1)
    }

    fn request(&mut self, side: Side) -> Value {
        let number = &mut self.requests[usize::from(side == Side::Agent)];
        *number += 1 + self.salt % 3;
        if self.salt.is_multiple_of(2) { json!(*number) } else { json!(format!("req-{number}")) }
    }

    fn id(&self, kind: &str, session: usize, number: u8) -> String {
        let hash = self.salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(u32::from(number) * 7 + 3);
        let hash = hash ^ ((session as u64 + 1) << 40);
        format!("{kind}_{hash:016x}{number}")
    }

    fn uuid(&self, number: u8) -> String {
        format!("{:08x}-e3c6-4303-927d-e8674b0d4af{number}", self.salt as u32)
    }

    /// The text in pieces, none of them in the middle of a character.
    fn pieces(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for char in text.chars() {
            if self.below(4) == 1 {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(char);
        }
        pieces
    }
}

type Said = (Option<Side>, String);

fn said_in(number: usize, session: &Session, chance: &mut Chance) -> VecDeque<Said> {
    let id = chance.id("ses", number, 0);
    let cwd = format!("/home/me/project-{number}");
    let mut said = VecDeque::new();
    let fill = |chance: &Chance, text: &str| {
        text.replace("{cwd}", &cwd)
            .replace("{session}", &id)
            .replace("{tool}", &chance.id("call", number, 0))
            .replace("{message}", &chance.id("msg", number, 0))
    };
    let mut say = |side, message: Value| said.push_back((Some(side), message.to_string()));
    let request = chance.request(Side::Client);
    let mut params = json!({"cwd": cwd, "mcpServers": []});
    let (method, result) = match session.loaded {
        true => {
            params["sessionId"] = id.as_str().into();
            ("session/load", json!({}))
        }
        false => ("session/new", json!({"sessionId": id})),
    };
    say(Side::Client, json!({"jsonrpc": "2.0", "id": request, "method": method, "params": params}));
    if session.loaded {
        say(
            Side::Agent,
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": id, "update":
                {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "Before"}}}}),
        );
    }
    say(Side::Agent, json!({"jsonrpc": "2.0", "id": request, "result": result}));
    // Ids in texts also appear in messages.
    let mentioned = [
        Act::Say { kind: "agent_message", id: Some(0), text: "First ".into(), meta: false },
        Act::Tool { id: 0, update: false, text: "{message}".into() },
    ];
    for (turn, acts) in session.turns.iter().enumerate() {
        let acts = mentioned.iter().filter(|_| turn == 0).chain(acts);
        let prompt = chance.request(Side::Client);
        say(
            Side::Client,
            json!({"jsonrpc": "2.0", "id": prompt, "method": "session/prompt",
                "params": {"sessionId": id, "prompt": [{"type": "text", "text": "Go on"}]}}),
        );
        for act in acts {
            let mut updates = Vec::new();
            let message = |chance: &Chance, id: &Option<u8>| id.map(|id| chance.id("msg", number, id));
            match act {
                Act::Say { kind, id, text, meta } => {
                    let text = fill(chance, text);
                    for piece in chance.pieces(&text) {
                        let mut update = json!({"sessionUpdate": format!("{kind}_chunk"),
                            "content": {"type": "text", "text": piece}});
                        if let Some(id) = message(chance, id) {
                            update["messageId"] = id.into();
                        }
                        if *meta {
                            update["_meta"] = json!({"example": 1});
                        }
                        updates.push(update);
                    }
                }
                Act::Picture { id } => {
                    let mut update = json!({"sessionUpdate": "agent_message_chunk",
                        "content": {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}});
                    if let Some(id) = message(chance, id) {
                        update["messageId"] = id.into();
                    }
                    updates.push(update);
                }
                Act::Clear { kind, id } => {
                    let mut update = json!({"sessionUpdate": format!("{kind}_clear")});
                    if let Some(id) = message(chance, id) {
                        update["messageId"] = id.into();
                    }
                    updates.push(update);
                }
                Act::Tool { id, update, text } => {
                    let kind = if *update { "tool_call_update" } else { "tool_call" };
                    updates.push(json!({"sessionUpdate": kind, "toolCallId": chance.id("call", number, *id),
                        "title": "Edit", "kind": "edit", "status": "in_progress",
                        "locations": [{"path": format!("{cwd}/a.rs"), "line": 3}],
                        "content": [
                            {"type": "content", "content": {"type": "text", "text": fill(chance, text)}},
                            {"type": "diff", "path": format!("{cwd}/a.rs"), "oldText": "a\nb\n", "newText": "a\nc\n"},
                        ]}));
                }
                Act::AskPermission { id: tool, end } => {
                    let asked = chance.request(Side::Agent);
                    say(
                        Side::Agent,
                        json!({"jsonrpc": "2.0", "id": asked, "method": "session/request_permission",
                            "params": {"sessionId": id,
                                "toolCall": {"toolCallId": chance.id("call", number, *tool)},
                                "options": [{"optionId": "yes", "name": "Allow", "kind": "allow_once"}]}}),
                    );
                    let outcome = match end {
                        End::Allowed => json!({"outcome": "selected", "optionId": "yes"}),
                        _ => json!({"outcome": "cancelled"}),
                    };
                    let withdrawn = json!({"jsonrpc": "2.0", "method": "$/cancel_request",
                        "params": {"requestId": asked}});
                    if *end == End::Withdrawn {
                        say(Side::Agent, withdrawn.clone());
                    }
                    if *end != End::Open {
                        say(
                            Side::Client,
                            json!({"jsonrpc": "2.0", "id": asked, "result": {"outcome": outcome}}),
                        );
                    }
                    if *end == End::TooLate {
                        say(Side::Agent, withdrawn);
                    }
                }
                Act::Read { text } => {
                    let asked = chance.request(Side::Agent);
                    say(
                        Side::Agent,
                        json!({"jsonrpc": "2.0", "id": asked, "method": "fs/read_text_file",
                            "params": {"sessionId": id, "path": format!("{cwd}/a.rs")}}),
                    );
                    say(
                        Side::Client,
                        json!({"jsonrpc": "2.0", "id": asked, "result": {"content": fill(chance, text)}}),
                    );
                }
                Act::Usage(used) => {
                    updates.push(json!({"sessionUpdate": "usage_update", "used": used, "size": 200_000}));
                }
                Act::Cancel => say(
                    Side::Client,
                    json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}}),
                ),
                Act::Withdraw => say(
                    Side::Client,
                    json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": prompt}}),
                ),
                Act::Unknown(text) => {
                    updates.push(json!({"sessionUpdate": "mood", "mood": fill(chance, text)}));
                }
                Act::Step(number) => {
                    updates.push(json!({"sessionUpdate": "step", "step": chance.uuid(*number)}));
                }
            }
            for update in updates {
                say(
                    Side::Agent,
                    json!({"jsonrpc": "2.0", "method": "session/update",
                        "params": {"sessionId": id, "update": update}}),
                );
            }
        }
        if !session.open || turn + 1 < session.turns.len() {
            say(Side::Agent, json!({"jsonrpc": "2.0", "id": prompt, "result": {"stopReason": "end_turn"}}));
        }
    }
    said
}

fn record(conversation: &Conversation, chance: Vec<u8>) -> Transcript {
    let mut chance = Chance::new(chance);
    let first = chance.request(Side::Client);
    let mut records = Vec::new();
    let mut write = |chance: &mut Chance, (side, text): Said| {
        chance.at += Duration::from_micros(1 + chance.salt % 1000);
        let event = match side {
            Some(side) => RecordEvent::Line(RecordedLine::new(side, text.into_bytes())),
            None => RecordEvent::Stderr(text),
        };
        records.push(Record::new(chance.at, event));
    };
    for (side, message) in [
        (
            Side::Client,
            json!({"jsonrpc": "2.0", "id": first, "method": "initialize", "params": {"protocolVersion": 1}}),
        ),
        (Side::Agent, json!({"jsonrpc": "2.0", "id": first, "result": {"protocolVersion": 1}})),
    ] {
        write(&mut chance, (Some(side), message.to_string()));
    }

    let sessions = conversation.sessions.len();
    let mut streams: Vec<VecDeque<Said>> = Vec::new();
    for (number, session) in conversation.sessions.iter().enumerate() {
        streams.push(said_in(number, session, &mut chance));
    }
    streams.push(conversation.stderr.iter().map(|text| (None, text.clone())).collect());
    streams.push(conversation.noise.iter().map(|text| (Some(Side::Agent), text.clone())).collect());
    // The number of created sessions, which are created in order.
    let mut begun = 0;
    loop {
        let ready: Vec<usize> = (0..streams.len())
            .filter(|stream| !streams[*stream].is_empty() && (*stream >= sessions || *stream <= begun))
            .collect();
        let Some(stream) = ready.get(chance.below(ready.len())) else { break };
        if let Some(said) = streams[*stream].pop_front() {
            write(&mut chance, said);
        }
        if *stream == begun {
            begun += 1;
        }
    }
    Transcript::new(Header::new("a property"), records)
}

proptest! {
    #![proptest_config(crate::random_cases(24))]

    #[test]
    fn chance_leaves_no_trace(
        conversation in conversation(),
        one in vec(any::<u8>(), 0..600),
        other in vec(any::<u8>(), 0..600),
    ) {
        let one = record(&conversation, one).redacted();
        let other = record(&conversation, other).redacted();
        prop_assert_eq!(one.render(), other.render());
        prop_assert_eq!(one.fold(), other.fold());
        prop_assert_eq!(
            serde_json::to_value(one.script()).unwrap(),
            serde_json::to_value(other.script()).unwrap()
        );
    }

    #[test]
    fn one_line_an_event_and_none_forged(conversation in conversation(), chance in vec(any::<u8>(), 0..600)) {
        let transcript = record(&conversation, chance);
        let script = RenderOptions::new().single_chunks(true).script(&transcript);
        let text = script.to_string();
        let events = text.lines().filter(|line| line.starts_with(['→', '←', '|']) ).count();
        prop_assert_eq!(events, transcript.records().len());
        prop_assert!(text.chars().all(|char| char == '\n' || !char.is_control()));
        prop_assert!(text.lines().all(|line| line.trim_end() == line), "no white space at ends: {text:?}");
    }
}
