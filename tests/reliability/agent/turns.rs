//! Turns that are cancelled, panic, print or run side by side: each ends with one answer, and nothing else is on the wire.

use std::time::Duration;

use duologue_tests::raw_client::{PATIENCE, RawClient, RawOutput};
use duologue_tests::{Failed, Result};
use serde_json::{Value, json};

use super::fails;
use crate::harness::{self, Measured, play};

/// One way in which a turn is cancelled, and how it has to end.
type Case = (&'static str, fn(&mut RawClient, &str) -> Result<()>);

const CANCELS: &[Case] = &[
    ("while it runs", |client, session| {
        let id = client.begin(session, "hang")?;
        cancel(client, session)?;
        ends(client, id, "cancelled")
    }),
    ("with its prompt in one write", |client, session| {
        let (mut lines, id) = client.prompt(session, "hang");
        let params = json!({"sessionId": session});
        lines.extend(
            format!("{}\n", json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params})).bytes(),
        );
        client.write(&lines, PATIENCE)?;
        ends(client, id, "cancelled")
    }),
    ("twice", |client, session| {
        let id = client.begin(session, "hang")?;
        cancel(client, session)?;
        cancel(client, session)?;
        ends(client, id, "cancelled")?;
        // The one too many has nothing to do with the next turn.
        ends_at_once(client, session)
    }),
    ("with a permission open", |client, session| {
        let id = client.begin(session, "ask")?;
        let question = question(client)?;
        cancel(client, session)?;
        client.respond(&question, &json!({"outcome": {"outcome": "cancelled"}}))?;
        ends(client, id, "cancelled")
    }),
    ("after its end", |client, session| {
        ends_at_once(client, session)?;
        cancel(client, session)?;
        ends_at_once(client, session)
    }),
    ("before any turn", |client, _| {
        let session = client.new_session()?;
        cancel(client, &session)?;
        ends_at_once(client, &session)
    }),
    ("by $/cancel_request", |client, session| {
        let id = client.begin(session, "hang")?;
        client.notify("$/cancel_request", &json!({"requestId": id}))?;
        let answer = client.answer(id, PATIENCE)?;
        let well = answer["error"]["code"] == -32800 || answer["result"]["stopReason"] == "cancelled";
        if well { Ok(()) } else { fails(&answer) }
    }),
    ("by both", |client, session| {
        let id = client.begin(session, "hang")?;
        client.notify("$/cancel_request", &json!({"requestId": id}))?;
        cancel(client, session)?;
        client.answer(id, PATIENCE)?;
        ends_at_once(client, session)
    }),
];

/// Ways that take their time: each is tried a few times only.
const SLOW_CANCELS: &[Case] = &[("with a permission that nobody answers", |client, session| {
    let id = client.begin(session, "ask")?;
    question(client)?;
    cancel(client, session)?;
    ends(client, id, "cancelled")?;
    ends_at_once(client, session)
})];

fn cancel(client: &mut RawClient, session: &str) -> Result<()> {
    client.notify("session/cancel", &json!({"sessionId": session}))
}

/// The id of the permission that the agent asks for.
fn question(client: &mut RawClient) -> Result<Value> {
    loop {
        let message = client.message(PATIENCE)?;
        if message["method"] == "session/request_permission" {
            return Ok(message["id"].clone());
        }
    }
}

fn ends(client: &mut RawClient, id: u64, reason: &str) -> Result<()> {
    let answer = client.answer(id, PATIENCE)?;
    if answer["result"]["stopReason"] == reason { Ok(()) } else { fails(&answer) }
}

fn ends_at_once(client: &mut RawClient, session: &str) -> Result<()> {
    let id = client.begin(session, "echo hello")?;
    ends(client, id, "end_turn")
}

#[test]
fn r14_agent() {
    play(cancels);
}

fn cancels() -> Result<Measured> {
    let rounds = harness::size(20, 1_000);
    let (mut well, mut faults) = (0, Vec::new());
    let fast = CANCELS.iter().map(|case| (case, rounds));
    let slow = SLOW_CANCELS.iter().map(|case| (case, 3));
    let mut all = 0;
    for ((name, play), rounds) in fast.chain(slow) {
        all += rounds;
        let outcome: Result<()> = (|| {
            let mut client = RawClient::greeted(&mut harness::agent())?;
            let session = client.new_session()?;
            for _ in 0..rounds {
                play(&mut client, &session)?;
                well += 1;
            }
            // Had one been answered twice, its second answer would be here.
            client.probe()?;
            Ok(())
        })();
        faults.extend(Failed::of(outcome)?.err().map(|error| format!("{name}: {error}")));
    }
    let text = format!("{well} of {} as they should{}", all, joined_behind(&faults));
    Ok(Measured::new(faults.is_empty(), text))
}

fn joined_behind(faults: &[String]) -> String {
    if faults.is_empty() { String::new() } else { format!("; {}", faults.join("; ")) }
}

#[test]
fn r17_agent() {
    play(panics);
}

/// Handlers that panic, and tasks that they leave to their connection; another session's turn after each.
fn panics() -> Result<Measured> {
    let rounds = harness::size(100, 1_000);
    let mut texts = Vec::new();
    let mut met = true;
    for word in ["panic", "panic in session/new", "panic-task"] {
        let mut client = RawClient::greeted(&mut harness::agent())?;
        let (session, other) = (client.new_session()?, client.new_session()?);
        let mut answered = 0;
        let outcome = (0..rounds).try_for_each(|_| {
            let answer = match word {
                "panic in session/new" => {
                    client.ask("session/new", &json!({"cwd": "/panic", "mcpServers": []}))?
                }
                _ => client.turn(&session, word)?,
            };
            // The turn whose task it was has ended well.
            let well = match word {
                "panic-task" => answer["result"]["stopReason"] == "end_turn",
                _ => answer["error"]["code"] == -32603,
            };
            if !well {
                fails(&answer)?;
            }
            answered += 1;
            ends_at_once(&mut client, &other)
        });
        let outcome = Failed::of(outcome)?;
        met &= outcome.is_ok();
        let why = outcome.err().map(|error| format!(", {error}")).unwrap_or_default();
        texts.push(format!("{word}: {answered} of {rounds} answered{why}"));
    }
    Ok(Measured::new(met, texts.join("; ")))
}

#[test]
fn r8_agent() {
    play(asking_back);
}

/// Handlers that ask back and wait for the answer, all at once; the answers come in the other order.
fn asking_back() -> Result<Measured> {
    let count = harness::size(100, 1_000);
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let ids = (0..count).map(|_| client.new_session()).collect::<Result<Vec<_>>>()?;
    for id in &ids {
        client.begin(id, "read /tmp/file")?;
    }
    let (mut questions, mut ended) = (Vec::new(), 0);
    while questions.len() < count {
        let message = client.message(PATIENCE)?;
        if message["method"] == "fs/read_text_file" {
            questions.push(message["id"].clone());
        }
    }
    for question in questions.iter().rev() {
        client.respond(question, &json!({"content": "x".repeat(1000)}))?;
    }
    while ended < count {
        let message = client.message(PATIENCE)?;
        ended += usize::from(message["result"]["stopReason"] == "end_turn");
        if message.get("error").is_some() {
            fails(&message)?;
        }
    }
    Ok(Measured::met(format!("{ended} of {count} turns sent a request, got a response and ended")))
}

#[test]
fn r18_agent() {
    play(side_by_side);
}

/// Many sessions that stream at once through the smallest pipe.
fn side_by_side() -> Result<Measured> {
    let (sessions, frames, longest) = (64, harness::size(50, 1_000), harness::size(13, 18));
    let mut client = RawClient::greeted(&mut harness::agent())?;
    client.narrow()?;
    let ids = (0..sessions).map(|_| client.new_session()).collect::<Result<Vec<_>>>()?;
    let mut turns = Vec::new();
    for (index, session) in ids.iter().enumerate() {
        let size = 1usize << (index % (longest + 1));
        turns.push((client.begin(session, &format!("flood {frames} {size}"))?, frames, 0usize));
    }
    let (mut torn, mut disordered, mut bytes, mut open) = (0, 0, 0usize, sessions);
    while open > 0 {
        let line = match client.hear(PATIENCE)? {
            RawOutput::Line(line) => line,
            RawOutput::End => return Ok(Measured::short(client.end())),
            RawOutput::Silence => return Ok(Measured::short(format!("silence with {open} turns open"))),
        };
        bytes += line.len();
        let Ok(message) = serde_json::from_slice::<Value>(&line) else {
            torn += 1;
            continue;
        };
        if let Some(turn) = turns.iter().find(|turn| message["id"] == turn.0) {
            open -= 1;
            disordered += usize::from(turn.2 != turn.1);
        } else if let Some(index) = ids.iter().position(|id| message["params"]["sessionId"] == id.as_str()) {
            let text = message["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
            let number = text.split(' ').next().and_then(|number| number.parse().ok());
            disordered += usize::from(number != Some(turns[index].2));
            turns[index].2 += 1;
        }
    }
    let updates: usize = turns.iter().map(|turn| turn.2).sum();
    let text = format!(
        "{updates} updates of {sessions} sessions, {} MB: {torn} torn, {disordered} out of order",
        bytes / 1_000_000
    );
    Ok(Measured::new(torn == 0 && disordered == 0, text))
}

#[test]
fn r19_agent() {
    play(foreign_bytes);
}

/// An agent that prints, and whose children do.
fn foreign_bytes() -> Result<Measured> {
    let rounds = harness::size(10, 30);
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let session = client.new_session()?;
    let (mut foreign, mut answered) = (0, 0);
    for _ in 0..rounds {
        let id = client.begin(&session, "print")?;
        loop {
            match client.hear(Duration::from_secs(1))? {
                RawOutput::Line(line) => match serde_json::from_slice::<Value>(&line) {
                    Ok(message) if message["id"] == id => {
                        answered += 1;
                        break;
                    }
                    Ok(message) if message["jsonrpc"] == "2.0" => {}
                    // An answer behind half a line is lost with it.
                    _ => foreign += line.len(),
                },
                RawOutput::End => return Ok(Measured::short(client.end())),
                RawOutput::Silence => break,
            }
        }
    }
    let text = format!("{foreign} foreign bytes, {answered} of {rounds} answers readable");
    Ok(Measured::new(foreign == 0 && answered == rounds, text))
}
