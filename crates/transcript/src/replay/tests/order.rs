//! Tests of the time and the order of lines, also where the live side leaves something out.

use super::*;

const UPDATE: &str = r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"abcd"}}}}"#;

/// An update that has not come delays the next line of a client. A line that interrupts a request waits for the
/// recorded time too.
#[test]
fn a_line_waits_longer_for_what_it_interrupts() {
    let answer = r#"{"id":1,"result":{}}"#;
    let start = r#"> {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let settle = Duration::from_millis(500);
    let mut harness = client(&format!(
        "{start}\n< {UPDATE}\n> {{\"method\":\"session/cancel\",\"params\":{{\"sessionId\":\"s\"}}}}"
    ));
    assert_eq!(harness.run(), Some(settle + Duration::from_millis(2)));
    let mut harness = client(&format!(
        "{start}\n< {answer}\n< {UPDATE}\n> {{\"id\":2,\"method\":\"_x\",\"params\":{{\"sessionId\":\"s\"}}}}"
    ));
    harness.receive(answer);
    assert_eq!(harness.run(), Some(settle));
}

/// An agent sends no request that it had sent before its answer, once it has answered.
#[test]
fn a_client_does_not_wait_for_requests_before_an_answer() {
    let mut harness = client(
        r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"id":"q","method":"session/request_permission","params":{"sessionId":"s"}}
        > {"id":"q","result":{}}
        < {"id":1,"result":{}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
        "#,
    );
    harness.receive(r#"{"id":1,"result":{}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
            {"id":1,"result":{}}
    {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
    closed
    DIFFERENCE missing: the session/request_permission in s of line 3
    "#);
}

/// A cancel belongs to the open request with its id.
#[test]
fn a_cancel_names_the_open_request() {
    let cancelled = r#"{"id":7,"error":{"code":-32800,"message":"cancelled"}}"#;
    let end = r#"
        > {"method":"$/cancel_request","params":{"requestId":2}}
        < {"id":2,"error":{"code":-32800,"message":"cancelled"}}
        "#;
    let cancel = r#"{"method":"$/cancel_request","params":{"requestId":7}}"#;
    let (one, two) = (r#"{"id":7,"method":"_a"}"#, r#"{"id":7,"method":"_b"}"#);
    // The first request is answered, so the cancel comes too late for it.
    let mut harness = agent(&format!(
        "> {{\"id\":1,\"method\":\"_a\"}}\n< {{\"id\":1,\"result\":{{}}}}\n> {{\"id\":2,\"method\":\"_b\"}}{end}"
    ));
    harness.receive(one).receive(cancel).receive(two);
    assert!(!harness.log().contains(cancelled));
    harness.receive(cancel);
    assert!(harness.log().contains(cancelled));
    // The id is used again before the first answer.
    let mut harness = agent(&format!(
        "> {{\"id\":1,\"method\":\"_a\"}}\n> {{\"id\":2,\"method\":\"_b\"}}\n< {{\"id\":1,\"result\":{{}}}}{end}"
    ));
    harness.receive(one).receive(two);
    assert!(!harness.log().contains(cancelled));
    harness.receive(cancel);
    assert!(harness.log().contains(cancelled));
}

#[test]
fn an_agent_does_not_pause_once_its_client_has_gone() {
    let script = r#"
        > {"id":1,"method":"a"}
        < {"method":"b"}
        < {"id":1,"result":{}}
        "#;
    let mut harness =
        ReplayHarness::with(Replay::new(recording(script)).timing(Timing::Recorded), Side::Agent);
    harness.receive(r#"{"id":1,"method":"a"}"#).end();
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"a"}
            .
    {"method":"b"}
    {"id":1,"result":{}}
    done
    "#);
}

/// A process may write to stderr after the end of its output.
#[test]
fn stderr_after_the_end_of_the_output_is_played() {
    let script = "> {\"id\":1,\"method\":\"a\"}\n< .\n! bye\nx3";
    let mut harness =
        ReplayHarness::with(Replay::new(recording(script)).timing(Timing::Recorded), Side::Agent);
    harness.receive(r#"{"id":1,"method":"a"}"#).wait();
    let log = harness.log();
    assert!(log.contains("! bye\n") && log.contains("done\nEXIT Some(3)\n"), "{log}");
}

/// A client waits until an agent ends that had ended by itself, but for no longer than its patience.
#[test]
fn an_agent_that_does_not_end_by_itself_is_a_difference() {
    let script = "> {\"id\":1,\"method\":\"a\"}\n< {\"id\":1,\"result\":{}}\n< .\nx1";
    let mut harness =
        ReplayHarness::with(Replay::new(recording(script)).patience(Duration::from_secs(1)), Side::Client);
    harness.receive(r#"{"id":1,"result":{}}"#).wait();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":1,"method":"a"}
            {"id":1,"result":{}}
            1s
    closed
            1s
    done
    DIFFERENCE missing: the end of the agent, which ended by itself in the recording
    "#);
}
