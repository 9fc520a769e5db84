//! Properties of every redacted transcript.
#![allow(clippy::string_slice)]

use std::time::Duration;

use duologue_transcript::{
    Header, ParsedLine, Record, RecordEvent, RecordedLine, Redaction, Secrets, Side, Transcript,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn transcript(events: Vec<RecordEvent>) -> Transcript {
    let records = events.into_iter().enumerate();
    let records = records.map(|(at, event)| Record::new(Duration::from_millis(at as u64), event)).collect();
    Transcript::new(Header::new("test"), records)
}

/// Words of which some are to be found, alone or together with the next.
fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("sk-"),
        Just("abcdefghijklmnop0123"),
        Just("ghp_abcdefghijklmnopqrst01"),
        Just("Bearer "),
        Just("token="),
        Just("password: "),
        Just("\"api_key\": \""),
        Just("\""),
        Just("\n"),
        Just("\\"),
        Just("/home/me"),
        Just("/w/one"),
        Just("/tmp/x"),
        Just("file://"),
        Just("[cwd]"),
        Just("[secret]"),
        Just("[session-1]"),
        Just("[message-2]"),
        Just("2026-11-21T10:11:12Z"),
        Just("8724c388-e3c6-4303-927d-e8674b0d4afa"),
        Just("0b7a1f2e-e3c6-4303-927d-e8674b0d4afb"),
        Just("-----BEGIN PRIVATE KEY-----"),
        Just("-----END PRIVATE KEY-----"),
        Just("https://me:"),
        Just("@host"),
        Just(" "),
        Just("é😀"),
        Just("."),
        Just("eyJhbGciOi.eyJzdWIi.x"),
        Just("AKIAABCDEFGHIJKLMNOP"),
        Just("m1"),
        Just("{\"token\":\"abc123\"}"),
        Just("Cookie: a=b"),
        Just("--token "),
        Just("\u{1}"),
    ];
    prop_oneof![4 => prop::collection::vec(word, 0..7).prop_map(|words| words.concat()), 1 => ".{0,12}"]
}

/// JSON with names that mean something.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (1e9..1e13).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let name = prop_oneof![
            Just("token".to_owned()),
            Just("env".to_owned()),
            Just("headers".to_owned()),
            Just("name".to_owned()),
            Just("value".to_owned()),
            Just("authorization".to_owned()),
            Just("sessionId".to_owned()),
            Just("messageId".to_owned()),
            Just("toolCallId".to_owned()),
            Just("requestId".to_owned()),
            Just("id".to_owned()),
            Just("createdAt".to_owned()),
            Just("durationMs".to_owned()),
            Just("mcpServers".to_owned()),
            Just("cwd".to_owned()),
            text(),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// JSON that looks like much, and in which nothing is secret: without headers, among which more is.
fn harmless() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "the token is checked",
        "token: identifier42",
        "a cookie recipe = flour",
        "password: String",
        "let password = \"changeme\";",
        "Bearer authentication",
        "basic understanding",
        "$OPENAI_API_KEY",
        "--api-key=sk-...",
        "sk-learn-contrib",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "session 8724c388-e3c6-4303-927d-e8674b0d4afa",
        "/home/me/keys/a1b2c3",
        "https://example.com:8080/@scope/pkg?key=home",
        "me@example.com",
        "BEGIN PRIVATE KEY",
        "PATH=/usr/bin",
        "PWD=/home/me1/x2y3",
        "keyboard, monkey, compass",
        "full",
        "1",
        "é😀\n",
    ]);
    let leaf = prop_oneof![
        prop::collection::vec(word, 0..4).prop_map(|words| Value::from(words.join(" "))),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "inputTokens",
        "tokens_used",
        "maxTokens",
        "nextPageToken",
        "env",
        "args",
        "content",
        "sessionId",
        "text",
        "publicKey",
        "key",
        "keys",
        "monkey",
        "compass",
        "description",
        "PATH",
        "_meta",
        "authMethods",
    ]);
    leaf.prop_recursive(3, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..4).prop_map(|members| {
                members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }),
        ]
    })
}

/// Patterns that match what stands for a secret, parts of it, and more than it.
fn pattern() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "(?i)secret",
        r"\[",
        r"\]",
        "[a-z]",
        r"\b",
        ".",
        ".+",
        "e",
        "(?<secret>.)$",
        r"\w+",
        r"[^a]",
        "pin",
        r"\s",
        "^",
        r"\\",
        "\"",
        "(?:a|b)+",
    ]);
    prop_oneof![prop::collection::vec(part, 1..4).prop_map(|parts| parts.concat()), "[a-z\\[\\].+(){}|]{1,6}",]
}

fn id() -> impl Strategy<Value = Value> {
    prop_oneof![(0..4i64).prop_map(Value::from), text().prop_map(Value::from), Just(Value::Null)]
}

fn session() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("8724c388-e3c6-4303-927d-e8674b0d4afa"), Just("s"), Just("[session-2]"), Just("")]
}

fn message() -> impl Strategy<Value = Value> {
    let method = prop_oneof![
        Just("session/new"),
        Just("session/load"),
        Just("session/fork"),
        Just("session/prompt"),
        Just("authenticate"),
        Just("initialize"),
        Just("terminal/create"),
        Just("_x/y"),
    ];
    let kind = prop_oneof![
        Just("agent_message_chunk"),
        Just("agent_thought_chunk"),
        Just("agent_message_clear"),
        Just("tool_call"),
    ];
    let message_id = prop_oneof![
        Just(Value::Null),
        Just(json!("m1")),
        Just(json!("0b7a1f2e-e3c6-4303-927d-e8674b0d4afb"))
    ];
    prop_oneof![
        2 => (id(), method, session(), text(), json()).prop_map(|(id, method, session, cwd, more)| {
            let params = match method {
                "session/new" => json!({"cwd": format!("/w/{cwd}"), "mcpServers": [], "_meta": more}),
                _ => json!({"sessionId": session, "cwd": "/w/one", "more": more}),
            };
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        }),
        1 => (id(), session(), json()).prop_map(|(id, session, more)| {
            json!({"jsonrpc": "2.0", "id": id, "result": {"sessionId": session, "more": more}})
        }),
        1 => (id(), json()).prop_map(|(id, data)| {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no", "data": data}})
        }),
        1 => id().prop_map(|id| json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}})),
        4 => (session(), kind, message_id, text()).prop_map(|(session, kind, id, text)| {
            let update = json!({"sessionUpdate": kind, "messageId": id, "toolCallId": "t", "title": "x", "content": {"type": "text", "text": text}});
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})
        }),
    ]
}

fn event() -> impl Strategy<Value = RecordEvent> {
    let side = prop_oneof![Just(Side::Client), Just(Side::Agent)];
    let line = |text: String| text.replace('\n', "\\n").into_bytes();
    prop_oneof![
        8 => (side.clone(), message()).prop_map(move |(from, json)| RecordEvent::Line(RecordedLine::new(from, line(json.to_string())))),
        1 => (side.clone(), json()).prop_map(move |(from, json)| RecordEvent::Line(RecordedLine::new(from, line(json.to_string())))),
        1 => (side.clone(), text()).prop_map(move |(from, text)| RecordEvent::Line(RecordedLine::new(from, line(text)))),
        1 => (side, prop::collection::vec(any::<u8>(), 0..30)).prop_map(|(from, bytes)| {
            RecordEvent::Line(RecordedLine::new(from, bytes.into_iter().filter(|byte| *byte != b'\n').collect::<Vec<_>>()))
        }),
        1 => text().prop_map(|text| RecordEvent::Stderr(text.replace('\n', " "))),
    ]
}

/// Returns the kind of a line without its content.
fn kind(said: &ParsedLine<'_>) -> String {
    match said {
        ParsedLine::Request { method, answer, .. } => format!("request {method} {answer:?}"),
        ParsedLine::Notification { method, .. } => format!("notification {method}"),
        ParsedLine::Response { method, request, .. } => format!("response {method:?} {request:?}"),
        ParsedLine::Noise(_) => "noise".into(),
        ParsedLine::Blank => "blank".into(),
        _ => "other".into(),
    }
}

/// Returns a match of a pattern, or of its group `secret`, that shares no byte with a placeholder of a secret.
///
/// A match that shares one is a match of the placeholder's own characters: `].` matches the end of `[secret]/`.
fn match_outside_placeholders(pattern: &str, text: &str) -> Option<String> {
    // `Secrets::pattern` refuses all others.
    let pattern = regex::Regex::new(pattern).ok().filter(|pattern| !pattern.is_match(""))?;
    let placeholders: Vec<_> =
        text.match_indices("[secret]").map(|(at, found)| at..at + found.len()).collect();
    pattern.captures_iter(text).find_map(|captures| {
        let found = captures.name("secret").or_else(|| captures.get(0)).filter(|found| !found.is_empty())?;
        let touches = |place: &std::ops::Range<usize>| found.start() < place.end && place.start < found.end();
        (!placeholders.iter().any(touches)).then(|| found.as_str().to_owned())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redacting_twice_is_redacting_once(events in prop::collection::vec(event(), 0..12)) {
        let once = transcript(events).redacted();
        prop_assert_eq!(once.redacted(), once);
    }

    #[test]
    fn every_line_stays_what_it_is(events in prop::collection::vec(event(), 0..12)) {
        let given = transcript(events);
        let redacted = given.redacted();
        let before: Vec<_> = given.entries().iter().map(|entry| kind(&entry.parsed)).collect();
        let after: Vec<_> = redacted.entries().iter().map(|entry| kind(&entry.parsed)).collect();
        prop_assert_eq!(before, after);
        for (given, redacted) in given.records().iter().zip(redacted.records()) {
            if let (Some(given), Some(redacted)) = (given.line(), redacted.line()) {
                let json = |line: &RecordedLine| serde_json::from_slice::<serde::de::IgnoredAny>(line.bytes()).is_ok();
                prop_assert_eq!(json(given), json(redacted));
            }
        }
        let mut file = Vec::new();
        redacted.write(&mut file).unwrap();
        prop_assert_eq!(Transcript::read(file.as_slice()).unwrap(), redacted);
    }

    #[test]
    fn harmless_text_is_not_touched(json in harmless()) {
        let line = json.to_string();
        let redacted = Secrets::default().redact(line.as_bytes()).into_owned();
        prop_assert_eq!(String::from_utf8(redacted).unwrap(), line);
    }

    /// Whatever is called a secret: it ends, JSON stays JSON, and of other text nothing is left that matches.
    #[test]
    fn any_pattern_of_ones_own(
        patterns in prop::collection::vec(pattern(), 1..4),
        json in json(),
        events in prop::collection::vec(event(), 0..4),
    ) {
        let secrets = patterns.iter().fold(Secrets::default(), |secrets, pattern| {
            secrets.clone().pattern(pattern).unwrap_or(secrets)
        });
        for line in [json.to_string(), text_of(&json)] {
            let redacted = secrets.redact(line.as_bytes()).into_owned();
            prop_assert!(redacted.len() <= 8 * line.len());
            let is_json = |line: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
            if is_json(line.as_bytes()) {
                prop_assert!(is_json(&redacted));
                continue;
            }
            let redacted = String::from_utf8_lossy(&redacted);
            for pattern in &patterns {
                prop_assert_eq!(match_outside_placeholders(pattern, &redacted), None, "{} in {:?}", pattern, line);
            }
        }
        let redacted = transcript(events).redact(&Redaction::default().secrets(secrets));
        let mut file = Vec::new();
        redacted.write(&mut file).unwrap();
        prop_assert_eq!(Transcript::read(file.as_slice()).unwrap(), redacted);
    }

    #[test]
    fn a_line_is_the_same_but_for_its_secrets(json in json()) {
        let line = json.to_string();
        let redacted = Secrets::default().redact(line.as_bytes()).into_owned();
        let redacted = String::from_utf8(redacted).unwrap();
        if !line.contains("[secret]") && !redacted.contains("[secret]") {
            prop_assert_eq!(&redacted, &line);
        }
        // Order and all that is neither string nor number stay.
        prop_assert_eq!(shape(&line), shape(&redacted));
        prop_assert_eq!(Secrets::default().redact(redacted.as_bytes()).into_owned(), redacted.as_bytes());
    }

    /// Redacted text does not depend on the chunks of its message.
    #[test]
    fn chunks_do_not_matter(text in text(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&ends)).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
        let said = |pieces: &[&str]| {
            let chunks = pieces.iter().map(|text| {
                let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
                let message = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}});
                RecordEvent::Line(RecordedLine::new(Side::Agent, message.to_string().into_bytes()))
            });
            let redacted = transcript(chunks.collect()).redact(&Redaction::default());
            let lines = redacted.records().iter().filter_map(Record::line);
            let json = lines.map(|line| serde_json::from_slice::<Value>(line.bytes()).unwrap());
            json.map(|json| json["params"]["update"]["content"]["text"].as_str().unwrap().to_owned()).collect::<String>()
        };
        prop_assert_eq!(said(&pieces), said(&[&text]));
    }
}

/// All strings of a message in one text.
fn text_of(json: &Value) -> String {
    match json {
        Value::String(text) => text.clone(),
        Value::Array(elements) => elements.iter().map(text_of).collect(),
        Value::Object(members) => members.values().map(text_of).collect(),
        _ => String::new(),
    }
}

/// JSON without what its strings and numbers say.
fn shape(line: &str) -> String {
    let (mut shape, mut chars) = (String::new(), line.chars().peekable());
    while let Some(char) = chars.next() {
        match char {
            '"' => {
                while let Some(char) = chars.next().filter(|char| *char != '"') {
                    if char == '\\' {
                        chars.next();
                    }
                }
                shape.push('…');
            }
            '-' | '0'..='9' => {
                while chars.next_if(|char| !matches!(char, ',' | '}' | ']')).is_some() {}
                shape.push('…');
            }
            other => shape.push(other),
        }
    }
    shape
}
