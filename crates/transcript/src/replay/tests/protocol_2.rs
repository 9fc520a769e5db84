//! Turns of protocol version 2, which end with the state `idle`.

use std::time::Duration;

use super::{agent, client};

const TURN: &str = r#"
    > {"id":0,"method":"initialize","params":{"protocolVersion":2}}
    < {"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}
    > {"id":1,"method":"session/new","params":{"cwd":"/p"}}
    < {"id":1,"result":{"sessionId":"s"}}
    > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
    < {"id":2,"result":{"messageId":"u1"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
    > {"method":"session/cancel","params":{"sessionId":"s"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}
    > {"id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"2"}]}}
    < {"id":3,"result":{"messageId":"u2"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}
    > .
"#;

#[test]
fn a_played_agent_waits_for_the_cancel_of_a_turn() {
    let mut harness = agent(TURN);
    harness
        .receive(r#"{"id":0,"method":"initialize","params":{"protocolVersion":2}}"#)
        .receive(r#"{"id":1,"method":"session/new","params":{"cwd":"/p"}}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#)
        .receive(r#"{"id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"2"}]}}"#)
        .end();
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":0,"method":"initialize","params":{"protocolVersion":2}}
    {"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}
            {"id":1,"method":"session/new","params":{"cwd":"/p"}}
    {"id":1,"result":{"sessionId":"s"}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
    {"id":2,"result":{"messageId":"u1"}}
    {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
            {"id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"2"}]}}
    {"id":3,"result":{"messageId":"u2"}}
    {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}
            .
    done
    "#);
}

/// A cancel that comes after the end of a turn is not a difference.
#[test]
fn a_cancel_after_the_end_of_a_turn_is_late() {
    let script = r#"
        > {"id":0,"method":"initialize","params":{"protocolVersion":2}}
        < {"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
        < {"id":2,"result":{"messageId":"u1"}}
        < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}
    "#;
    let mut harness = agent(script);
    harness
        .receive(r#"{"id":0,"method":"initialize","params":{"protocolVersion":2}}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#)
        .receive(r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#);
    let log = harness.log();
    assert!(log.contains("end_turn") && !log.contains("DIFFERENCE"), "{log}");
}

/// A prompt that the agent rejects begins no turn.
#[test]
fn a_rejected_prompt_has_no_end() {
    let idle = r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}"#;
    let rejected = r#"{"id":2,"error":{"code":-32000,"message":"Log in first"}}"#;
    let accepted = r#"{"id":3,"result":{"messageId":"u1"}}"#;
    let started = r#"{"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}"#;
    let mut harness = client(&format!(
        r#"
        > {{"id":0,"method":"initialize","params":{{"protocolVersion":2}}}}
        < {started}
        > {{"id":2,"method":"session/prompt","params":{{"sessionId":"s","prompt":[]}}}}
        < {rejected}
        > {{"id":9,"method":"_login","params":{{"sessionId":"s"}}}}
        < {{"id":9,"result":{{}}}}
        > {{"id":3,"method":"session/prompt","params":{{"sessionId":"s","prompt":[]}}}}
        < {accepted}
        < {idle}
        > {{"method":"_after","params":{{"sessionId":"s"}}}}
        "#
    ));
    // The state of the session before the next prompt does not end it.
    harness
        .receive(started)
        .receive(rejected)
        .receive(idle)
        .receive(r#"{"id":9,"result":{}}"#)
        .receive(accepted);
    assert!(!harness.log().contains("_after"));
    harness.receive(idle);
    assert!(harness.log().contains("_after"));
}

/// A cancel that interrupts a turn waits for the recorded time, and for the updates before it.
#[test]
fn a_cancel_waits_for_the_work_that_it_interrupts() {
    let chunk = r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"abcd"}}}}"#;
    let script = TURN.replace(
        "    > {\"method\":\"session/cancel\"",
        &format!("    < {chunk}\n    > {{\"method\":\"session/cancel\""),
    );
    let mut harness = client(&script);
    harness
        .receive(r#"{"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}"#)
        .receive(r#"{"id":1,"result":{"sessionId":"s"}}"#)
        .receive(r#"{"id":2,"result":{"messageId":"u1"}}"#)
        .receive(r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}"#);
    assert_eq!(harness.run(), Some(Duration::from_millis(503)));
}

#[test]
fn a_played_client_sends_its_next_prompt_after_the_idle_state() {
    let mut harness = client(TURN);
    harness
        .receive(r#"{"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}"#)
        .receive(r#"{"id":1,"result":{"sessionId":"live"}}"#)
        .receive(r#"{"method":"session/update","params":{"sessionId":"live","update":{"sessionUpdate":"state_update","state":"idle"}}}"#)
        .receive(r#"{"id":2,"result":{"messageId":"live-1"}}"#)
        .receive(r#"{"method":"session/update","params":{"sessionId":"live","update":{"sessionUpdate":"state_update","state":"running"}}}"#)
        .receive(r#"{"method":"session/update","params":{"sessionId":"live","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}"#)
        .receive(r#"{"id":3,"error":{"code":-32000,"message":"Log in first"}}"#)
        .end();
    insta::assert_snapshot!(harness.log(), @r#"
    {"id":0,"method":"initialize","params":{"protocolVersion":2}}
            {"id":0,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}
    {"id":1,"method":"session/new","params":{"cwd":"/p"}}
            {"id":1,"result":{"sessionId":"live"}}
    {"id":2,"method":"session/prompt","params":{"sessionId":"live","prompt":[]}}
            {"method":"session/update","params":{"sessionId":"live","update":{"sessionUpdate":"state_update","state":"idle"}}}
            {"id":2,"result":{"messageId":"live-1"}}
    {"method":"session/cancel","params":{"sessionId":"live"}}
            {"method":"session/update","params":{"sessionId":"live","update":{"sessionUpdate":"state_update","state":"running"}}}
            {"method":"session/update","params":{"sessionId":"live","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}
    {"id":3,"method":"session/prompt","params":{"sessionId":"live","prompt":[{"type":"text","text":"2"}]}}
            {"id":3,"error":{"code":-32000,"message":"Log in first"}}
    closed
            .
    done
    DIFFERENCE not as recorded: the answer to the session/prompt in s of line 11
        --- recorded
        +++ live
        @@ -1,5 +1,5 @@
         {
        -  "result": {
        -    "messageId": "u2"
        +  "error": {
        +    "code": -32000
           }
         }
    "#);
}
