//! Redaction, folds and replays take a number of steps that is linear in their input.

use std::time::Duration;

use duologue_rpc::Transport;

use super::{assert_linear, steps_of};
use crate::{Header, Record, RecordEvent, RecordedLine, Replay, Side, Transcript};

fn line(from: Side, text: String) -> Record {
    Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(from, text.into_bytes())))
}

fn new_session(number: usize) -> [Record; 2] {
    let params = format!(r#"{{"cwd":"/home/me/project-{number}","mcpServers":[]}}"#);
    let new = format!(r#"{{"jsonrpc":"2.0","id":"n{number}","method":"session/new","params":{params}}}"#);
    let made = format!(r#"{{"jsonrpc":"2.0","id":"n{number}","result":{{"sessionId":"s{number}"}}}}"#);
    [line(Side::Client, new), line(Side::Agent, made)]
}

fn turn(session: usize, number: usize) -> [Record; 3] {
    let text = format!(r#"{{"type":"text","text":"/home/me/project-{session}/{number}"}}"#);
    let params = format!(r#"{{"sessionId":"s{session}","prompt":[{text}]}}"#);
    let prompt = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"session/prompt","params":{params}}}"#);
    let update = format!(r#"{{"sessionUpdate":"agent_message_chunk","content":{text}}}"#);
    let params = format!(r#"{{"sessionId":"s{session}","update":{update}}}"#);
    let update = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
    let end = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"stopReason":"end_turn"}}}}"#);
    [line(Side::Client, prompt), line(Side::Agent, update), line(Side::Agent, end)]
}

fn transcript(records: impl Iterator<Item = Record>) -> Transcript {
    Transcript::new(Header::new("a test"), records.collect())
}

/// Sessions one after the other, with a turn each.
fn sessions(count: usize) -> Transcript {
    transcript((0..count).flat_map(|number| new_session(number).into_iter().chain(turn(number, number))))
}

/// Sessions that are all open while each has a turn.
fn open_sessions(count: usize) -> Transcript {
    let turns = (0..count).flat_map(|number| turn(number, number));
    transcript((0..count).flat_map(new_session).chain(turns))
}

/// Plays the client of a recording against its agent.
fn replay(transcript: Transcript) {
    replay_against(transcript.clone(), transcript);
}

/// Plays the client of one recording against the agent of another.
fn replay_against(agents: Transcript, clients: Transcript) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (client, agent) = Transport::memory();
    let (served, driven) = runtime.block_on(async {
        tokio::join!(Replay::new(agents).serve(agent), Replay::new(clients).drive(client))
    });
    assert!(served.expect("an agent").differences.is_empty());
    assert!(driven.expect("a client").differences.is_empty());
}

#[test]
fn redacting_sessions_is_linear() {
    assert_linear(20, |count| drop(sessions(count).redacted()));
    assert_linear(20, |count| drop(open_sessions(count).redacted()));
}

#[test]
fn redacting_stderr_beside_many_sessions_is_linear() {
    assert_linear(20, |count| {
        let log = |number| RecordEvent::Stderr(format!("in /home/me/project-{number}"));
        let stderr = (0..count).map(|number| Record::new(Duration::ZERO, log(number)));
        drop(transcript((0..count).flat_map(new_session).chain(stderr)).redacted());
    });
}

#[test]
fn redacting_messages_is_linear() {
    for kinds in [&["agent_message_chunk"][..], &["agent_message_chunk", "agent_message_clear"]] {
        assert_linear(50, |count| {
            let updates = (0..count).flat_map(|number| kinds.iter().map(move |kind| (number, kind)));
            let updates = updates.map(|(number, kind)| {
                let content = r#"{"type":"text","text":"in /tmp"}"#;
                let update =
                    format!(r#"{{"sessionUpdate":"{kind}","messageId":"m{number}","content":{content}}}"#);
                let params = format!(r#"{{"sessionId":"s0","update":{update}}}"#);
                line(
                    Side::Agent,
                    format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#),
                )
            });
            drop(transcript(new_session(0).into_iter().chain(updates)).redacted());
        });
    }
}

#[test]
fn redacting_turns_is_linear() {
    assert_linear(50, |count| {
        let turns = (0..count).flat_map(|number| turn(0, number));
        drop(transcript(new_session(0).into_iter().chain(turns)).redacted());
    });
}

/// Output of a terminal is base64, and is decoded to be joined.
#[test]
fn rendering_output_in_pieces_is_linear() {
    assert_linear(50, |count| {
        let update = r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"t","data":"bmluZwo="}"#;
        let params = format!(r#"{{"sessionId":"s0","update":{update}}}"#);
        let piece = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
        let pieces = (0..count).map(|_| line(Side::Agent, piece.clone()));
        let text = transcript(new_session(0).into_iter().chain(pieces)).render().to_string();
        assert_eq!(text.matches("ning").count(), count);
    });
}

/// Other strings may be base64 too, such as images.
#[test]
fn only_output_of_terminals_is_decoded() {
    let prompt = |data: String| {
        let image =
            format!(r#"{{"type":"image","mimeType":"image/png","data":"{data}","_meta":{{"token":""}}}}"#);
        let params = format!(r#"{{"sessionId":"s0","prompt":[{image}]}}"#);
        let prompt = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{params}}}"#);
        transcript(std::iter::once(line(Side::Client, prompt)))
    };
    assert_eq!(
        steps_of(|| drop(prompt("AAAA".repeat(1000)).redacted())),
        steps_of(|| drop(prompt(String::new()).redacted()))
    );
}

#[test]
fn folding_sessions_is_linear() {
    assert_linear(20, |count| drop(sessions(count).conversations()));
    assert_linear(20, |count| drop(open_sessions(count).fold()));
}

#[test]
fn replaying_sessions_is_linear() {
    assert_linear(20, |count| replay(sessions(count)));
    assert_linear(20, |count| replay(open_sessions(count)));
}

#[test]
fn replaying_turns_is_linear() {
    // More than the number of requests that are compared with one.
    assert_linear(300, |count| {
        replay(transcript(new_session(0).into_iter().chain((0..count).flat_map(|number| turn(0, number)))));
    });
}

/// Requests of the client that are all open at once, and their responses.
fn open_requests(numbers: impl Iterator<Item = usize> + Clone) -> Vec<Record> {
    let requests = numbers.clone().map(|number| {
        let params = r#"{"sessionId":"s0"}"#;
        let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"_x{number}","params":{params}}}"#);
        line(Side::Client, text)
    });
    let response = |number| line(Side::Agent, format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#));
    requests.chain(numbers.map(response)).collect()
}

#[test]
fn replaying_open_requests_is_linear() {
    let session = |requests| transcript(new_session(0).into_iter().chain(requests));
    assert_linear(100, |count| replay(session(open_requests(0..count))));
    // The client sends them in another order.
    assert_linear(100, |count| {
        replay_against(session(open_requests(0..count)), session(open_requests((0..count).rev())));
    });
}

#[test]
fn replaying_cancels_is_linear() {
    let cancel = || {
        let text = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s0"}}"#;
        line(Side::Client, text.into())
    };
    assert_linear(100, |count| {
        let [prompt, update, end] = turn(0, 0);
        let updates = std::iter::repeat_n(update, count);
        let recorded = std::iter::once(prompt.clone()).chain(updates).chain([cancel(), end.clone()]);
        let cancels = std::iter::repeat_with(cancel).take(count);
        let live = std::iter::once(prompt).chain(cancels).chain([end]);
        replay_against(
            transcript(new_session(0).into_iter().chain(recorded)),
            transcript(new_session(0).into_iter().chain(live)),
        );
    });
}

#[test]
fn replaying_noise_before_open_requests_is_linear() {
    assert_linear(100, |count| {
        let noise = (0..count).map(|number| line(Side::Client, format!("noise {number}")));
        let requests = open_requests(0..count);
        let first = requests.iter().take(count).cloned();
        let last = requests.iter().skip(count).cloned();
        let session = new_session(0);
        let recorded = session.iter().cloned().chain(first).chain(noise.clone()).chain(last);
        let live = session.iter().cloned().chain(noise).chain(requests.iter().cloned());
        replay_against(transcript(recorded), transcript(live));
    });
}

#[test]
fn replaying_skipped_requests_is_linear() {
    let request = |id: String| {
        let params = r#"{"sessionId":"s0"}"#;
        line(Side::Client, format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"_{id}","params":{params}}}"#))
    };
    let response =
        |id: String| line(Side::Agent, format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#));
    assert_linear(100, |count| {
        // All are open at once, and each is answered before a request that the live client sends.
        let skipped = (0..count).map(|number| request(format!("skipped{number}")));
        let sent = |number| [request(format!("sent{number}")), response(format!("sent{number}"))];
        let answers = (0..count)
            .flat_map(|number| std::iter::once(response(format!("skipped{number}"))).chain(sent(number)));
        let agents = transcript(new_session(0).into_iter().chain(skipped).chain(answers));
        // The client waits for no response between its requests.
        let sent: Vec<_> = (0..count).map(sent).collect();
        let (requests, responses) = (sent.iter().map(|[it, _]| it), sent.iter().map(|[_, it]| it));
        let clients = transcript(new_session(0).into_iter().chain(requests.chain(responses).cloned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (client, agent) = Transport::memory();
        let (served, driven) = runtime.block_on(async {
            tokio::join!(Replay::new(agents).serve(agent), Replay::new(clients).drive(client))
        });
        assert_eq!(served.expect("an agent").differences.len(), count);
        assert!(driven.expect("a client").differences.is_empty());
    });
}
