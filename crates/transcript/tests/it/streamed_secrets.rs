//! Secrets in texts that come in pieces: what a recorder leaves of them, and what redaction of its file leaves.

use std::io::Cursor;

use duologue_transcript::{Recorder, Redaction, Secrets, Side, Transcript, forward};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::planted::{shapes, spell_escaped};

/// A text that comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Answer,
    Thought,
    Task,
    Terminal,
}

const KINDS: [Kind; 4] = [Kind::Answer, Kind::Thought, Kind::Task, Kind::Terminal];

/// Returns the line with a piece, as it is spelled between quotes.
fn piece(kind: Kind, session: usize, id: Option<usize>, spelled: &str) -> String {
    let mut line = match kind {
        Kind::Answer | Kind::Thought => {
            let name = if kind == Kind::Answer { "agent_message_chunk" } else { "agent_thought_chunk" };
            let mut update = json!({"sessionUpdate": name, "content": {"type": "text", "text": "@"}});
            if let Some(id) = id {
                update["messageId"] = json!(format!("m{id}"));
            }
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": format!("s{session}"), "update": update}})
        }
        Kind::Task => {
            json!({"jsonrpc": "2.0", "method": "_session/notify", "params": {"sessionId": format!("s{session}"), "envelope": {
                "v": 1, "id": "e", "from": "a", "to": "b", "ts": 1, "kind": "notify", "ref": format!("r{}", id.unwrap_or(0)),
                "payload": {"topic": "task.output", "data": {"chunk": "@", "position": 0, "complete": false}}}}})
        }
        Kind::Terminal => {
            let meta = json!({"terminal_output": {"terminal_id": format!("t{}", id.unwrap_or(0)), "data": "@"}});
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": format!("s{session}"),
                "update": {"sessionUpdate": "tool_call_update", "toolCallId": "t", "_meta": meta}}})
        }
    }
    .to_string();
    line = line.replace('@', spelled);
    line
}

/// Returns the text of a piece.
fn text_of(line: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(line).ok()?;
    let params = &json["params"];
    [
        &params["update"]["content"]["text"],
        &params["envelope"]["payload"]["data"]["chunk"],
        &params["update"]["_meta"]["terminal_output"]["data"],
    ]
    .into_iter()
    .find_map(Value::as_str)
    .map(str::to_owned)
}

/// Records lines of the agent.
fn record(secrets: Secrets, lines: &[String]) -> Transcript {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let recorder = Recorder::builder().secrets(secrets).in_memory().expect("memory");
        let bytes = lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        forward(Side::Agent, Cursor::new(bytes), tokio::io::sink(), &recorder).await.expect("forwards");
        recorder.transcript().await.expect("a transcript")
    })
}

fn texts(transcript: &Transcript) -> Vec<String> {
    let lines = transcript.records().iter().filter_map(|record| record.line());
    lines.filter_map(|line| text_of(line.bytes())).collect()
}

/// Returns the longest part of a secret in a text.
fn longest_left<'a>(secret: &'a str, text: &str) -> &'a str {
    let ends: Vec<usize> = secret.char_indices().map(|(at, _)| at).chain([secret.len()]).collect();
    let mut longest = "";
    let mut end = 0;
    for (from, start) in ends.iter().enumerate() {
        end = end.max(from);
        while let Some(next) = ends.get(end + 1)
            && secret.get(*start..*next).is_some_and(|part| text.contains(part))
        {
            end += 1;
        }
        let part = ends.get(end).and_then(|end| secret.get(*start..*end)).unwrap_or_default();
        if part.len() > longest.len() {
            longest = part;
        }
    }
    longest
}

/// The parts of a secret that identify nothing: the prefix of its kind.
fn prefix_length(secret: &str) -> usize {
    let prefixes = [
        "sk-ant-api03-",
        "sk-or-v1-",
        "sk-proj-",
        "sk-",
        "sk_live_",
        "rk_live_",
        "whsec_",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "xoxb-1234567890-",
        "xoxp-1234567890-",
        "AIza",
        "ya29.",
        "GOCSPX-",
        "hf_",
        "npm_",
        "gsk_",
        "xai-",
        "pypi-",
        "SG.",
        "hvs.",
        "eyJ",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n",
        "AKIA",
        "dop_v1_",
        "cio",
        "AGE-SECRET-KEY-1",
        "1234567890:AA",
        "shpat_",
    ];
    prefixes.iter().find(|prefix| secret.starts_with(*prefix)).map_or(0, |prefix| prefix.len())
}

/// Without its prefix, no more than so many bytes in a row of a secret are left, which may be there by chance.
const CHANCE: usize = 3;

fn check_left(secret: &str, left: &str, context: &dyn std::fmt::Debug) -> Result<(), TestCaseError> {
    // A secret may contain a part of the placeholder.
    let left = &left.replace("[secret]", "\n");
    for line in secret.split('\n').filter(|line| !line.starts_with("-----END")) {
        let part = line.get(prefix_length(line)..).filter(|_| !line.starts_with("-----")).unwrap_or_default();
        let longest = longest_left(part, left);
        prop_assert!(longest.len() <= CHANCE, "{longest} of {secret} is left in {left:?}\n{context:?}");
    }
    Ok(())
}

#[test]
fn a_placeholder_is_no_part_of_a_secret() {
    let check = |left| check_left("sk-ant-api03-Y4YwecreAA", left, &"a test");
    check("key [secret] and on").unwrap();
    check("key [secret]ecre and on").unwrap_err();
    check("key wecr[secret] and on").unwrap_err();
}

/// A recording of each secret, cut at each place, is redacted as if it had come in one piece.
#[test]
fn redaction_removes_the_start_that_a_recorder_leaves() {
    let mut seed = 11;
    for (number, (text, secret)) in shapes(&mut seed).into_iter().enumerate() {
        let text = format!("é {text}\nand on");
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let mut lines = Vec::new();
        let mut sessions = 0;
        let mut add = |pieces: &[String]| {
            for one in pieces {
                lines.push(piece(Kind::Answer, sessions, Some(0), &spell(one)));
            }
            sessions += 1;
            pieces.len()
        };
        let mut lengths = vec![add(&chars)];
        for cut in (1..chars.len()).step_by(3) {
            let (one, two) = chars.split_at(cut);
            lengths.push(add(&[one.concat(), two.concat()]));
        }
        let recorded = record(Secrets::default(), &lines);
        let redacted = recorded.redact(&Redaction::secrets_only());
        let mut left = texts(&redacted).into_iter();
        for length in lengths {
            let left: String = left.by_ref().take(length).collect();
            assert!(left.starts_with("é ") && left.ends_with("\nand on"), "{number}: {left}");
            check_left(&secret, &left, &length).expect("nothing is left");
        }
    }
}

/// Tool calls and thoughts between the pieces of an answer without an id do not end it.
#[test]
fn updates_between_pieces_do_not_matter() {
    let key = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    let chars: Vec<char> = key.chars().collect();
    let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s0", "update":
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"}}});
    let mut lines = Vec::new();
    for four in chars.chunks(4) {
        lines.push(piece(Kind::Answer, 0, None, &four.iter().collect::<String>()));
        lines.push(update.to_string());
        lines.push(piece(Kind::Thought, 0, None, " "));
    }
    let recorded = record(Secrets::default(), &lines);
    let text = texts(&recorded).concat().replace(' ', "");
    assert!(text.starts_with("ghp_") && !text.contains("M3n4"), "{text}");
    let redacted = recorded.redact(&Redaction::secrets_only());
    assert_eq!(texts(&redacted).concat().trim(), "[secret]");
}

fn spell(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).expect("quotes").to_owned()
}

#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    session: usize,
    id: Option<usize>,
    shape: prop::sample::Index,
    cuts: Vec<prop::sample::Index>,
    single: bool,
    escaped: bool,
    coloured: bool,
    before: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop::sample::select(KINDS.to_vec()),
        0..3usize,
        prop::option::of(0..3usize),
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        any::<bool>(),
        prop::bool::weighted(0.3),
        any::<bool>(),
        prop::sample::select(vec![0usize, 1, 10, 250, 600]),
    )
        .prop_map(|(kind, session, id, shape, cuts, single, escaped, coloured, before)| Plan {
            kind,
            session,
            id,
            shape,
            cuts,
            single,
            escaped,
            coloured,
            before,
        })
}

proptest! {
    #![proptest_config(crate::random_cases(12))]

    /// Texts of several kinds and sessions interleave.
    #[test]
    fn nothing_is_left_of_interleaved_secrets(
        plans in prop::collection::vec(plan(), 1..5),
        seed: u64,
        order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        clears in prop::collection::vec(any::<prop::sample::Index>(), 0..2),
    ) {
        let mut seed = seed | 1;
        let mut queues: Vec<std::collections::VecDeque<String>> = Vec::new();
        let mut secrets = Vec::new();
        let mut taken: Vec<(Kind, usize, Option<usize>)> = Vec::new();
        for plan in &plans {
            // Each text is on its own.
            let id = if matches!(plan.kind, Kind::Answer | Kind::Thought) { plan.id } else { Some(plan.id.unwrap_or(0)) };
            if taken.contains(&(plan.kind, plan.session, id)) {
                continue;
            }
            taken.push((plan.kind, plan.session, id));
            let all = shapes(&mut seed);
            let (text, secret) = plan.shape.get(&all).clone();
            let text = if plan.coloured { format!("\x1b[1;32m{text}\x1b[0m") } else { text };
            let text = format!("{} {text} and on", "x y ".repeat(plan.before / 4));
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<usize> = if plan.single { (0..=chars.len()).collect() } else {
                plan.cuts.iter().map(|cut| cut.index(chars.len() + 1)).chain([0, chars.len()]).collect()
            };
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| chars[cut[0]..cut[1]].iter().collect::<String>());
            let lines = pieces.map(|text| {
                let spelled = if plan.escaped { spell_escaped(&text) } else { spell(&text) };
                piece(plan.kind, plan.session, id, &spelled)
            });
            queues.push(lines.collect());
            secrets.push(secret);
        }
        let mut lines = Vec::new();
        let mut turns = order.iter().cycle();
        while !queues.is_empty() {
            let at = turns.next().map_or(0, |turn| turn.index(queues.len()));
            match queues[at].pop_front() {
                Some(line) => lines.push(line),
                None => _ = queues.remove(at),
            }
        }
        for clear in clears {
            // Of a message that has no pieces here.
            let line = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "agent_message_clear", "messageId": "m9"}}});
            lines.insert(clear.index(lines.len() + 1), line.to_string());
            // A tool works while the message goes on.
            let line = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"}}});
            lines.insert(clear.index(lines.len() + 1), line.to_string());
        }
        let recorded = record(Secrets::default(), &lines);
        let redacted = recorded.redact(&Redaction::secrets_only());
        // The texts are looked at one by one, so that parts are not joined by chance.
        let mut left: std::collections::HashMap<String, String> = std::collections::HashMap::new();
        for (line, record) in lines.iter().zip(redacted.records()) {
            let json: Value = serde_json::from_str(line).expect("JSON");
            let update = &json["params"]["update"];
            let key = format!("{} {} {} {} {}", json["params"]["sessionId"], update["sessionUpdate"], update["messageId"],
                json["params"]["envelope"]["ref"], update["_meta"]["terminal_output"]["terminal_id"]);
            if let Some(text) = record.line().and_then(|line| text_of(line.bytes())) {
                left.entry(key).or_default().push_str(&text);
            }
        }
        for secret in &secrets {
            for text in left.values() {
                check_left(secret, text, &plans)?;
            }
        }
        let again = redacted.redact(&Redaction::secrets_only());
        prop_assert_eq!(texts(&again), texts(&redacted));
    }
}
