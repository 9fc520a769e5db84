//! Tests of the player, with live lines and the time given by hand.

mod agents;
mod ends;
mod matching;
mod order;
mod pace;
mod protocol_2;
mod strict;
mod wire;

use std::fmt::Write as _;
use std::time::Duration;

use super::player::{Player, PlayerAction};
use super::{Replay, Timing};
use crate::format::{Header, ProcessExit, Record, RecordEvent, RecordedLine, Redacted, Side};
use crate::transcript::Transcript;

/// Parses a recording in short form: `> line` of the client, `< line` of the agent, `!` stderr, `>.` and `<.` the
/// ends of their output, `x3` an exit code, `?` dropped lines. Events are a millisecond apart. A line that begins
/// with `{` gets its `jsonrpc`.
fn recording(script: &str) -> Transcript {
    let records =
        script.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate().map(|(at, line)| {
            let (sign, rest) = line.split_at(1);
            let side = if sign == ">" { Side::Client } else { Side::Agent };
            let event = match (sign, rest.trim()) {
                ("x", code) => RecordEvent::Exit(ProcessExit { code: code.parse().ok(), signal: None }),
                ("!", text) => RecordEvent::Stderr(text.into()),
                ("?", _) => RecordEvent::Dropped { lines: 1, bytes: 9 },
                (_, ".") => RecordEvent::Eof(side),
                (_, text) => RecordEvent::Line(RecordedLine::new(side, frame(text).into_bytes())),
            };
            Record::new(Duration::from_millis(at as u64), event)
        });
    Transcript::new(Header::new("by hand"), records.collect())
}

fn frame(text: &str) -> String {
    match text.strip_prefix('{') {
        Some(rest) => format!(r#"{{"jsonrpc":"2.0",{rest}"#),
        None => text.into(),
    }
}

fn redacted(transcript: Transcript) -> Transcript {
    without(Redacted::Everything, transcript)
}

fn without(redacted: Redacted, transcript: Transcript) -> Transcript {
    let mut header = transcript.header().clone();
    header.redacted = redacted;
    Transcript::new(header, transcript.records().to_vec())
}

/// A player and the log of its actions.
struct ReplayHarness {
    player: Player,
    now: Duration,
    log: String,
}

impl ReplayHarness {
    fn new(transcript: Transcript, plays: Side) -> Self {
        Self::with(Replay::new(transcript), plays)
    }

    fn with(replay: Replay, plays: Side) -> Self {
        let player = Player::new(replay.transcript, replay.settings, plays);
        let mut harness = ReplayHarness { player, now: Duration::ZERO, log: String::new() };
        harness.run();
        harness
    }

    /// Runs until the player waits; returns the end of the wait.
    fn run(&mut self) -> Option<Duration> {
        loop {
            let step = self.player.next(self.now);
            let log = &mut self.log;
            match step {
                PlayerAction::Send(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let _ = writeln!(log, "{}", text.trim_end().replace(r#""jsonrpc":"2.0","#, ""));
                }
                PlayerAction::Stderr(text) => {
                    let _ = writeln!(log, "! {text}");
                }
                PlayerAction::Close if log.ends_with("closed\n") => {}
                PlayerAction::Close => log.push_str("closed\n"),
                PlayerAction::Wait(until) => return until,
                PlayerAction::Done => {
                    log.push_str("done\n");
                    return None;
                }
            }
        }
    }

    /// Delivers a live line, and logs the actions that follow.
    fn receive(&mut self, line: &str) -> &mut Self {
        let _ = writeln!(self.log, "        {line}");
        let line = RecordedLine::new(self.player.plays.other(), frame(line).into_bytes());
        self.player.receive(line.readable(), self.now);
        self.run();
        self
    }

    fn end(&mut self) -> &mut Self {
        self.log.push_str("        .\n");
        self.player.end();
        self.run();
        self
    }

    /// Lets time pass until nothing is awaited.
    fn wait(&mut self) -> &mut Self {
        for _ in 0..100 {
            let Some(until) = self.run() else { return self };
            let _ = writeln!(self.log, "        {:?}", until.saturating_sub(self.now));
            self.now = until;
        }
        panic!("time passes and nothing happens:\n{}", self.log);
    }

    fn log(&mut self) -> String {
        let mut log = std::mem::take(&mut self.log);
        for difference in self.player.differences() {
            let _ = writeln!(log, "DIFFERENCE {difference}");
        }
        for unused in self.player.unused() {
            let _ = writeln!(log, "UNUSED {unused}");
        }
        if let Some(exit) = self.player.exit() {
            let _ = writeln!(log, "EXIT {:?}", exit.code);
        }
        log
    }
}

fn agent(script: &str) -> ReplayHarness {
    ReplayHarness::new(recording(script), Side::Agent)
}

fn client(script: &str) -> ReplayHarness {
    ReplayHarness::new(recording(script), Side::Client)
}

const TURN: &str = r#"
    ! loading
    < npm WARN
    > {"id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"a"}}}
    < {"id":0,"result":{"protocolVersion":1}}
    > {"id":1,"method":"session/new","params":{"cwd":"/home/me/p","mcpServers":[]}}
    < {"id":1,"result":{"sessionId":"s"}}
    > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"n":1}}}
    < {"id":"q","method":"session/request_permission","params":{"sessionId":"s","path":"/home/me/p/a"}}
    > {"id":"q","result":{"outcome":{"outcome":"selected","optionId":"yes"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"n":2}}}
    < {"id":2,"result":{"stopReason":"end_turn"}}
    > .
    < .
    x0
"#;

#[test]
fn a_turn_comes_as_recorded() {
    let mut harness = agent(TURN);
    harness
        .receive(r#"{"id":10,"method":"initialize","params":{"protocolVersion":1}}"#)
        .receive(r#"{"id":11,"method":"session/new","params":{"cwd":"/x"}}"#)
        .receive(r#"{"id":12,"method":"session/prompt","params":{"prompt":[{"text":"hello","type":"text"}],"sessionId":"s"}}"#)
        .receive(r#"{"id":"q","result":{"outcome":{"outcome":"selected","optionId":"yes"}}}"#)
        .end();
    insta::assert_snapshot!(harness.log(), @r#"
    ! loading
    npm WARN
            {"id":10,"method":"initialize","params":{"protocolVersion":1}}
    {"id":10,"result":{"protocolVersion":1}}
            {"id":11,"method":"session/new","params":{"cwd":"/x"}}
    {"id":11,"result":{"sessionId":"s"}}
            {"id":12,"method":"session/prompt","params":{"prompt":[{"text":"hello","type":"text"}],"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s","update":{"n":1}}}
    {"id":"q","method":"session/request_permission","params":{"sessionId":"s","path":"/x/a"}}
            {"id":"q","result":{"outcome":{"outcome":"selected","optionId":"yes"}}}
    {"method":"session/update","params":{"sessionId":"s","update":{"n":2}}}
    {"id":12,"result":{"stopReason":"end_turn"}}
            .
    closed
    done
    "#);
}

#[test]
fn another_prompt_and_another_answer_are_shown() {
    let mut harness = agent(TURN);
    harness
        .receive(r#"{"id":10,"method":"initialize","params":{"protocolVersion":1}}"#)
        .receive(r#"{"id":11,"method":"session/new","params":{"cwd":"/x"}}"#)
        .receive(r#"{"id":12,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"bye"}]}}"#)
        .receive(r#"{"id":13,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}"#)
        .receive(r#"{"id":"q","result":{"outcome":{"outcome":"selected","optionId":"no"}}}"#)
        .receive(r#"{"id":14,"method":"session/set_mode","params":{"sessionId":"s"}}"#)
        .end();
    insta::assert_snapshot!(harness.log(), @r#"
    ! loading
    npm WARN
            {"id":10,"method":"initialize","params":{"protocolVersion":1}}
    {"id":10,"result":{"protocolVersion":1}}
            {"id":11,"method":"session/new","params":{"cwd":"/x"}}
    {"id":11,"result":{"sessionId":"s"}}
            {"id":12,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"bye"}]}}
    {"id":12,"error":{"code":-32602,"message":"not in the recording: session/prompt; the nearest, the session/prompt in s of line 8, differs at `prompt.0.text`","data":{"difference":"--- recorded\n+++ live\n@@ -2,5 +2,5 @@\n   \"prompt\": [\n     {\n-      \"text\": \"hello\",\n+      \"text\": \"bye\",\n       \"type\": \"text\"\n     }\n"}}}
            {"id":13,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}
    {"method":"session/update","params":{"sessionId":"s","update":{"n":1}}}
    {"id":"q","method":"session/request_permission","params":{"sessionId":"s","path":"/x/a"}}
            {"id":"q","result":{"outcome":{"outcome":"selected","optionId":"no"}}}
    {"method":"session/update","params":{"sessionId":"s","update":{"n":2}}}
    {"id":13,"result":{"stopReason":"end_turn"}}
            {"id":14,"method":"session/set_mode","params":{"sessionId":"s"}}
    {"id":14,"error":{"code":-32601,"message":"not in the recording: session/set_mode"}}
            .
    closed
    done
    DIFFERENCE not in the recording: session/prompt; the nearest, the session/prompt in s of line 8, differs at `prompt.0.text`
        --- recorded
        +++ live
        @@ -2,5 +2,5 @@
           "prompt": [
             {
        -      "text": "hello",
        +      "text": "bye",
               "type": "text"
             }
    DIFFERENCE not as recorded: the answer to the session/request_permission in s of line 10
        --- recorded
        +++ live
        @@ -2,5 +2,5 @@
           "result": {
             "outcome": {
        -      "optionId": "yes",
        +      "optionId": "no",
               "outcome": "selected"
             }
    DIFFERENCE not in the recording: session/set_mode
    "#);
}

#[test]
fn unused_lines_of_a_client_that_leaves_early_are_reported() {
    let mut harness = agent(TURN);
    harness.receive(r#"{"id":10,"method":"initialize","params":{"protocolVersion":1}}"#).end();
    insta::assert_snapshot!(harness.log(), @r#"
    ! loading
    npm WARN
            {"id":10,"method":"initialize","params":{"protocolVersion":1}}
    {"id":10,"result":{"protocolVersion":1}}
            .
    done
    UNUSED the session/new in s of line 6
    UNUSED the session/prompt in s of line 8
    "#);
}

#[test]
fn skipped_requests_are_missing() {
    let mut harness = agent(
        r#"
        > {"id":1,"method":"session/new","params":{"cwd":"/a"}}
        < {"id":1,"result":{"sessionId":"s"}}
        > {"id":2,"method":"session/set_mode","params":{"sessionId":"s","modeId":"m"}}
        < {"method":"session/update","params":{"sessionId":"s","mode":"m"}}
        < {"id":2,"result":{}}
        > {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"id":3,"result":{}}
        "#,
    );
    harness
        .receive(r#"{"id":1,"method":"session/new","params":{"cwd":"/a"}}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"session/new","params":{"cwd":"/a"}}
    {"id":1,"result":{"sessionId":"s"}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
    {"id":2,"result":{}}
    DIFFERENCE missing: the session/set_mode in s of line 4
    "#);
}

#[test]
fn cancels_may_come_late_or_twice_but_not_out_of_nowhere() {
    let script = r#"
        > {"id":1,"method":"session/new","params":{"cwd":"/a"}}
        < {"id":1,"result":{"sessionId":"s"}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"method":"session/update","params":{"sessionId":"s","n":1}}
        > {"method":"session/cancel","params":{"sessionId":"s"}}
        < {"id":2,"result":{"stopReason":"cancelled"}}
        > {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"method":"$/cancel_request","params":{"requestId":3}}
        < {"id":3,"error":{"code":-32800,"message":"cancelled"}}
        > {"method":"$/cancel_request","params":{"requestId":3}}
        > {"id":4,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"id":4,"result":{}}
        "#;
    let mut harness = agent(script);
    harness
        .receive(r#"{"id":"a","method":"session/new","params":{"cwd":"/a"}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#)
        .receive(r#"{"id":"b","method":"session/prompt","params":{"sessionId":"s"}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#)
        .receive(r#"{"id":"c","method":"session/prompt","params":{"sessionId":"s"}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#)
        .receive(r#"{"method":"$/cancel_request","params":{"requestId":"c"}}"#)
        .receive(r#"{"method":"$/cancel_request","params":{"requestId":"c"}}"#)
        .receive(r#"{"id":"d","method":"session/prompt","params":{"sessionId":"s"}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":"a","method":"session/new","params":{"cwd":"/a"}}
    {"id":"a","result":{"sessionId":"s"}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
            {"id":"b","method":"session/prompt","params":{"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s","n":1}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
    {"id":"b","result":{"stopReason":"cancelled"}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
            {"id":"c","method":"session/prompt","params":{"sessionId":"s"}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
            {"method":"$/cancel_request","params":{"requestId":"c"}}
    {"id":"c","error":{"code":-32800,"message":"cancelled"}}
            {"method":"$/cancel_request","params":{"requestId":"c"}}
            {"id":"d","method":"session/prompt","params":{"sessionId":"s"}}
    {"id":"d","result":{}}
    DIFFERENCE not in the recording: session/cancel
    "#);
}

#[test]
fn sessions_run_beside_each_other_in_any_order() {
    let script = r#"
        > {"id":1,"method":"session/new","params":{"cwd":"/a"}}
        > {"id":2,"method":"session/new","params":{"cwd":"/b"}}
        < {"id":2,"result":{"sessionId":"t"}}
        < {"id":1,"result":{"sessionId":"s"}}
        > {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":4,"method":"session/prompt","params":{"sessionId":"t"}}
        < {"method":"session/update","params":{"sessionId":"s","path":"/a/1"}}
        < {"method":"session/update","params":{"sessionId":"t","path":"/b/1"}}
        < {"id":3,"result":{}}
        < {"id":4,"result":{}}
        > {"id":5,"method":"session/list","params":{}}
        < {"id":5,"result":{}}
        "#;
    let mut harness = agent(script);
    harness
        .receive(r#"{"id":1,"method":"session/new","params":{"cwd":"/b"}}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"t"}}"#)
        .receive(r#"{"id":3,"method":"session/list","params":{}}"#)
        .receive(r#"{"id":4,"method":"session/new","params":{"cwd":"/z"}}"#)
        .receive(r#"{"id":5,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"session/new","params":{"cwd":"/b"}}
    {"id":1,"result":{"sessionId":"t"}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"t"}}
    {"method":"session/update","params":{"sessionId":"t","path":"/b/1"}}
    {"id":2,"result":{}}
            {"id":3,"method":"session/list","params":{}}
    {"id":3,"result":{}}
            {"id":4,"method":"session/new","params":{"cwd":"/z"}}
    {"id":4,"result":{"sessionId":"s"}}
            {"id":5,"method":"session/prompt","params":{"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s","path":"/z/1"}}
    {"id":5,"result":{}}
    "#);
}

#[test]
fn a_redacted_recording_has_live_names() {
    let script = r#"
        > {"id":"[request-1]","method":"session/load","params":{"sessionId":"[session-1]","cwd":"[cwd]"}}
        < {"id":"[request-1]","result":{}}
        > {"id":"[request-2]","method":"session/prompt","params":{"sessionId":"[session-1]","prompt":[{"text":"at [time] in [cwd]/a"}]}}
        < {"id":"[request-1]","method":"terminal/create","params":{"sessionId":"[session-1]","cwd":"[cwd]"}}
        > {"id":"[request-1]","result":{"terminalId":"[terminal-1]"}}
        < {"id":"[request-2]","method":"terminal/output","params":{"sessionId":"[session-1]","terminalId":"[terminal-1]"}}
        > {"id":"[request-2]","result":{"output":"[cwd]/a"}}
        < {"id":"[request-2]","result":{}}
        "#;
    let mut harness = ReplayHarness::new(redacted(recording(script)), Side::Agent);
    harness
        .receive(r#"{"id":1,"method":"session/load","params":{"sessionId":"old","cwd":"/x"}}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"old","prompt":[{"text":"at 12:30 in /x/a"}]}}"#)
        .receive(r#"{"id":"[request-1]","result":{"terminalId":"pty-7"}}"#)
        .receive(r#"{"id":"[request-2]","result":{"output":"/x/a"}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"session/load","params":{"sessionId":"old","cwd":"/x"}}
    {"id":1,"result":{}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"old","prompt":[{"text":"at 12:30 in /x/a"}]}}
    {"id":"[request-1]","method":"terminal/create","params":{"sessionId":"old","cwd":"/x"}}
            {"id":"[request-1]","result":{"terminalId":"pty-7"}}
    {"id":"[request-2]","method":"terminal/output","params":{"sessionId":"old","terminalId":"pty-7"}}
            {"id":"[request-2]","result":{"output":"/x/a"}}
    {"id":2,"result":{}}
    "#);
}

#[test]
fn an_agent_that_died_dies_again() {
    let mut harness = agent(
        r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"method":"session/update","params":{"sessionId":"s"}}
        ! panicked
        < .
        x101
        "#,
    );
    harness.receive(r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s"}}
    ! panicked
    closed
    done
    EXIT Some(101)
    "#);
}

#[test]
fn pauses_are_recorded_or_scaled() {
    let script = r#"
        > {"id":1,"method":"a"}
        < {"method":"b"}
        < {"method":"c"}
        < {"id":1,"result":{}}
        "#;
    let replay = Replay::new(recording(script)).timing(Timing::Scaled(2.0));
    let mut harness = ReplayHarness::with(replay, Side::Agent);
    harness.receive(r#"{"id":1,"method":"a"}"#);
    for _ in 0..3 {
        let until = harness.run().unwrap();
        assert_eq!(until.checked_sub(harness.now).unwrap(), Duration::from_millis(2));
        harness.now = until;
        harness.run();
    }
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"a"}
    {"method":"b"}
    {"method":"c"}
    {"id":1,"result":{}}
    "#);
}

#[test]
fn noise_keeps_its_place_and_blocks_no_request() {
    let script = r#"
        > {"id":1,"method":"a"}
        < {"id":1,"result":{}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
        < noise
        < {"id":2,"result":{}}
        > {"id":3,"method":"b"}
        < {"id":3,"result":{}}
        "#;
    let mut harness = agent(script);
    harness
        .receive(r#"{"id":1,"method":"a"}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#)
        .receive(r#"{"id":3,"method":"b"}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"a"}
    {"id":1,"result":{}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
    noise
    {"id":2,"result":{}}
            {"id":3,"method":"b"}
    {"id":3,"result":{}}
    "#);
    let mut harness = agent(script);
    harness.receive(r#"{"id":1,"method":"a"}"#).receive(r#"{"id":3,"method":"b"}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"a"}
    {"id":1,"result":{}}
            {"id":3,"method":"b"}
    noise
    {"id":3,"result":{}}
    UNUSED the session/prompt in s of line 4
    "#);
}

#[test]
fn a_client_sends_its_lines_once_the_agent_has_answered() {
    let mut harness = client(TURN);
    harness
        .receive(r#"{"id":0,"result":{"protocolVersion":1}}"#)
        .receive(r#"{"id":1,"result":{"sessionId":"live"}}"#)
        .receive(r#"{"method":"session/update","params":{"sessionId":"live","update":{"n":1}}}"#)
        .receive(r#"{"id":7,"method":"session/request_permission","params":{"sessionId":"live"}}"#)
        .receive(r#"{"method":"session/update","params":{"sessionId":"live","update":{"n":2}}}"#)
        .receive(r#"{"id":2,"result":{"stopReason":"end_turn"}}"#)
        .end();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"a"}}}
            {"id":0,"result":{"protocolVersion":1}}
    {"id":1,"method":"session/new","params":{"cwd":"/home/me/p","mcpServers":[]}}
            {"id":1,"result":{"sessionId":"live"}}
    {"id":2,"method":"session/prompt","params":{"sessionId":"live","prompt":[{"type":"text","text":"hello"}]}}
            {"method":"session/update","params":{"sessionId":"live","update":{"n":1}}}
            {"id":7,"method":"session/request_permission","params":{"sessionId":"live"}}
    {"id":7,"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}
            {"method":"session/update","params":{"sessionId":"live","update":{"n":2}}}
            {"id":2,"result":{"stopReason":"end_turn"}}
    closed
            .
    done
    "#);
}

#[test]
fn missing_and_additional_requests_of_an_agent_are_reported() {
    let mut harness = client(TURN);
    harness
        .receive(r#"{"id":0,"result":{"protocolVersion":1}}"#)
        .receive(r#"{"id":1,"error":{"code":-32000,"message":"log in first"}}"#)
        .receive(r#"{"id":5,"method":"session/request_permission","params":{"sessionId":"other"}}"#)
        .receive(r#"{"id":6,"method":"fs/read_text_file","params":{"sessionId":"s"}}"#)
        .wait();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"a"}}}
            {"id":0,"result":{"protocolVersion":1}}
    {"id":1,"method":"session/new","params":{"cwd":"/home/me/p","mcpServers":[]}}
            {"id":1,"error":{"code":-32000,"message":"log in first"}}
    {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}
            {"id":5,"method":"session/request_permission","params":{"sessionId":"other"}}
    {"id":5,"result":{"outcome":{"outcome":"cancelled"}}}
            {"id":6,"method":"fs/read_text_file","params":{"sessionId":"s"}}
    {"id":6,"error":{"code":-32601,"message":"not in the recording: fs/read_text_file"}}
            30s
    closed
            2s
    done
    DIFFERENCE not as recorded: the answer to the session/new in s of line 6
        --- recorded
        +++ live
        @@ -1,5 +1,5 @@
         {
        -  "result": {
        -    "sessionId": "s"
        +  "error": {
        +    "code": -32000
           }
         }
    DIFFERENCE not in the recording: session/request_permission once more
    DIFFERENCE not in the recording: fs/read_text_file
    DIFFERENCE missing: the session/request_permission in s of line 10
    DIFFERENCE missing: the answer of line 13 to the session/prompt in s of line 8
    "#);
}

#[test]
fn a_cancel_waits_for_what_it_interrupts() {
    let update = |text: &str| {
        format!(
            r#"{{"method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        )
    };
    let script = format!(
        r#"
        > {{"id":1,"method":"session/prompt","params":{{"sessionId":"s"}}}}
        < {}
        > {{"method":"session/cancel","params":{{"sessionId":"s"}}}}
        < {{"id":1,"result":{{"stopReason":"cancelled"}}}}
        "#,
        update("abcd")
    );
    let mut harness = client(&script);
    harness.receive(&update("a")).receive(&update("bc")).receive(&update("d"));
    harness.receive(r#"{"id":1,"result":{"stopReason":"cancelled"}}"#).wait();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
            {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}}}
            {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"bc"}}}}
            {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"d"}}}}
    {"method":"session/cancel","params":{"sessionId":"s"}}
            {"id":1,"result":{"stopReason":"cancelled"}}
    closed
            2s
    done
    "#);
}

#[test]
fn an_agent_that_ends_early_owes_something() {
    let mut harness = client(TURN);
    harness.receive(r#"{"id":0,"result":{"protocolVersion":1}}"#).end();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"a"}}}
            {"id":0,"result":{"protocolVersion":1}}
    {"id":1,"method":"session/new","params":{"cwd":"/home/me/p","mcpServers":[]}}
            .
    closed
    done
    DIFFERENCE missing: the answer of line 7 to the session/new in s of line 6
    DIFFERENCE not as recorded: the agent ended before 2 more recorded lines of the client
    UNUSED the session/request_permission in s of line 10
    "#);
}
