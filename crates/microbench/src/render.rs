//! A transcript as a script.

use std::hint::black_box;
use std::time::Duration;

use duologue_transcript::{Header, Record, RecordEvent, RecordedLine, Side, Transcript};

use crate::played::SESSION;
use crate::{Path, Work};

/// Lines of the transcript: turns of ten chunks, a tool call and what becomes of it.
const LINES: u64 = 14 * 50;

pub(crate) const PATHS: &[Path] = &[Path::new("render/script", LINES, script)];

fn script() -> Work {
    let mut records = Vec::new();
    for turn in 0..50 {
        let mut say = |from, line: String| {
            records.push(Record::new(
                Duration::ZERO,
                RecordEvent::Line(RecordedLine::new(from, line.as_bytes())),
            ));
        };
        say(
            Side::Client,
            format!(
                r#"{{"jsonrpc":"2.0","id":{turn},"method":"session/prompt","params":{{"sessionId":"{SESSION}","prompt":[{{"type":"text","text":"What is wrong here?"}}]}}}}"#
            ),
        );
        let call = format!(r#""toolCallId":"call_{turn}""#);
        let updates = std::iter::repeat_n(
            r#""sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"and so it is forty bytes, neither more n"}"#.to_owned(),
            10,
        );
        let updates = updates.chain([
            format!(r#""sessionUpdate":"tool_call",{call},"title":"Read src/main.rs","kind":"read","status":"pending""#),
            format!(r#""sessionUpdate":"tool_call_update",{call},"status":"completed""#),
        ]);
        for update in updates {
            say(
                Side::Agent,
                format!(
                    r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{{update}}}}}}}"#
                ),
            );
        }
        say(Side::Agent, format!(r#"{{"jsonrpc":"2.0","id":{turn},"result":{{"stopReason":"end_turn"}}}}"#));
    }
    assert_eq!(records.len() as u64, LINES);
    let transcript = Transcript::new(Header::new("duologue"), records);
    Box::new(move || drop(black_box(transcript.render())))
}
