//! Tests of recordings that end, are cut or have gaps, and of live sides that leave.

use super::*;

const A: &str = r#"{"id":1,"method":"a"}"#;
const ANSWER: &str = r#"{"id":1,"result":{}}"#;
const PROMPT_S: &str = r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#;
const PROMPT_T: &str = r#"{"id":3,"method":"session/prompt","params":{"sessionId":"t"}}"#;

fn is_lost(log: &str, id: u32) -> bool {
    log.contains(&format!(r#"{{"id":{id},"error":{{"code":-32603,"#))
}

/// A lost response comes where its session goes on, or before an end.
#[test]
fn a_lost_response_comes_before_the_end() {
    for end in ["> .\n< .", "> .", "< ."] {
        let mut harness = agent(&format!("> {A}\n?\n{end}"));
        harness.receive(A);
        assert!(is_lost(&harness.log(), 1), "{end}");
    }
    let update = r#"{"method":"_x","params":{"sessionId":"t"}}"#;
    let again = r#"{"id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let mut harness = agent(&format!("> {PROMPT_S}\n> {PROMPT_T}\n?\n> {again}\n< {update}\n< ."));
    harness.receive(PROMPT_T);
    let log = harness.log();
    let place = |text: &str| log.find(text).unwrap_or_else(|| panic!("{text} in {log}"));
    assert!(place(update) < place(r#"{"id":3,"error""#), "{log}");
}

/// Lost responses come in the order of their requests.
#[test]
fn lost_responses_keep_their_order() {
    let mut harness = agent(&format!("> {PROMPT_S}\n> {A}\n?\n> .\n< ."));
    for line in [PROMPT_S, A] {
        harness.player.receive(frame(line).as_bytes(), Duration::ZERO);
    }
    harness.run();
    let log = harness.log();
    assert!(log.find(r#"{"id":2,"error""#).unwrap() < log.find(r#"{"id":1,"error""#).unwrap(), "{log}");
}

/// A client that waits for a lost response on the connection gets it, even if a session has not gone on.
#[test]
fn a_lost_response_waits_for_no_other_session() {
    let mut harness = agent(&format!("> {A}\n> {PROMPT_S}\n?\n> .\n< ."));
    harness.receive(A);
    assert!(is_lost(&harness.log(), 1));
}

/// The response to a request is unknown only if the recording ends too early to contain it.
#[test]
fn a_request_without_a_response_is_lost_at_an_open_end() {
    let lost = |transcript: Transcript| {
        let mut harness = ReplayHarness::new(transcript, Side::Agent);
        harness.receive(A).end();
        harness.log()
    };
    assert!(is_lost(&lost(recording(&format!("> {A}"))), 1), "no end at all");
    let log = lost(recording(&format!("> {A}\n> .")).cut_short());
    assert!(is_lost(&log, 1), "{log}");
    assert!(!log.contains("closed"), "only its client is known to have ended: {log}");
    let log = lost(recording(&format!("> {A}\n> .")));
    assert_eq!(log.lines().last(), Some("done"), "it was never answered: {log}");
    assert!(!is_lost(&log, 1), "{log}");
}

/// The agent ends after the lines of all sessions, of both sides.
#[test]
fn the_end_is_the_last_line() {
    let mut harness = agent(&format!("> {A}\n< ."));
    assert!(!harness.log().contains("closed"));
    harness.receive(A);
    assert!(harness.log().ends_with("closed\ndone\n"));
    let script =
        format!("> {A}\n> {PROMPT_S}\n< {{\"method\":\"_x\",\"params\":{{\"sessionId\":\"s\"}}}}\n< .");
    let mut harness =
        ReplayHarness::with(Replay::new(recording(&script)).timing(Timing::Recorded), Side::Agent);
    harness.receive(A);
    harness.now = Duration::from_millis(10);
    harness.receive(PROMPT_S);
    assert!(!harness.log().contains("closed"));
    harness.wait();
    let log = harness.log();
    assert!(log.find("_x").unwrap() < log.find("closed").unwrap(), "{log}");
}

/// Lines that the recorded agent sent after its client had closed come after the end of the live client.
#[test]
fn lines_behind_the_end_of_the_client_wait_for_it() {
    let update = r#"{"method":"_x","params":{"sessionId":"s"}}"#;
    let mut harness = agent(&format!("> {PROMPT_S}\n< {{\"id\":2,\"result\":{{}}}}\n> .\n< {update}\n< ."));
    harness.receive(PROMPT_S);
    assert!(!harness.log().contains(update));
    harness.end();
    assert!(harness.log().ends_with(&format!("{update}\nclosed\ndone\n")));
}

/// Lines of a side behind its end are not expected.
#[test]
fn lines_behind_an_end_are_not_unused() {
    let mut harness = agent(&format!("> {A}\n< {ANSWER}\n> .\n> {{\"method\":\"_late\"}}\n> {PROMPT_S}"));
    harness.receive(A).end();
    assert!(!harness.log().contains("UNUSED"));
}

/// A played client closes where the recorded one did, and waits for the later requests then.
#[test]
fn a_client_closes_before_the_last_requests() {
    let request = r#"{"id":"q","method":"session/request_permission","params":{"sessionId":"s"}}"#;
    let mut harness = client(&format!("> {A}\n< {ANSWER}\n> .\n< {request}\n< ."));
    harness.receive(ANSWER).wait();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":1,"method":"a"}
            {"id":1,"result":{}}
    closed
            30s
    done
    DIFFERENCE missing: the session/request_permission in s of line 5
    "#);
}

/// An agent that ends early owes the first line of each session, but no response to a request that was not sent.
#[test]
fn an_agent_that_ends_owes_its_next_lines() {
    let mut harness = client(&format!("> {A}\n< {ANSWER}\n> {PROMPT_S}\n< {{\"id\":2,\"result\":{{}}}}"));
    harness.end();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":1,"method":"a"}
            .
    closed
    done
    DIFFERENCE missing: the answer of line 3 to the a of line 2
    DIFFERENCE not as recorded: the agent ended before 1 more recorded lines of the client
    "#);
    let request = r#"{"id":"q","method":"session/request_permission","params":{"sessionId":"s"}}"#;
    let mut harness = client(&format!("< {request}\n> {{\"id\":\"q\",\"result\":{{}}}}\n> {A}\n< {ANSWER}"));
    harness.end();
    assert_eq!(
        harness.log().lines().find(|line| line.starts_with("DIFFERENCE")),
        Some("DIFFERENCE missing: the session/request_permission in s of line 2")
    );
}

/// A session that begins with a response has nothing to send if its request never comes.
#[test]
fn a_session_whose_first_request_is_missing_is_left_out() {
    let request = r#"{"id":"q","method":"_q","params":{"sessionId":"s"}}"#;
    let mut harness = client(&format!("> {A}\n< {ANSWER}\n< {request}\n> {{\"id\":\"q\",\"result\":{{}}}}"));
    harness.receive(ANSWER).wait();
    let log = harness.log();
    assert!(log.contains("closed") && log.contains("DIFFERENCE missing: the _q in s of line 4"), "{log}");
}

/// A response without a request in the recording is not awaited.
#[test]
fn a_stray_response_blocks_nothing() {
    let stray = r#"{"id":99,"result":{}}"#;
    assert!(client(&format!("< {stray}\n> {A}")).log().starts_with(A));
    for stray in [stray, r#"{"id":null,"error":{"code":-32700,"message":"what?"}}"#] {
        let mut harness = agent(&format!("> {stray}\n> {A}\n< {ANSWER}"));
        harness.receive(A);
        assert!(harness.log().ends_with(&format!("{ANSWER}\n")), "{stray}");
    }
}

/// A response that the recording lacks is a difference only for the agent under test.
#[test]
fn a_response_that_was_not_recorded() {
    let mut harness = client(&format!("> {A}"));
    harness.receive(ANSWER);
    assert!(harness.log().contains("DIFFERENCE the a of line 2 has a response, but none in the recording"));
    let mut harness = agent(&format!("< {A}"));
    harness.receive(ANSWER);
    assert!(!harness.log().contains("DIFFERENCE"));
}
