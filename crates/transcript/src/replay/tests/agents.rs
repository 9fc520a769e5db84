//! Replays of messages between agents, where the live side has other ids and times.

use super::*;

/// The agent sends a request while it works. The live side has announced another id than the recorded one.
const WORK: &str = r#"
    > {"id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"aa"}}}}}
    < {"id":0,"result":{"protocolVersion":1,"agentCapabilities":{"_meta":{"duologue":{"agentId":"bb"}}}}}
    < {"id":0,"method":"_session/ping","params":{"envelope":{"id":"e0","from":"bb","to":"aa","ts":5,"kind":"ping"}}}
    > {"id":0,"result":{"envelope":{"id":"e1","from":"aa","to":"bb","ts":6,"kind":"pong","ref":"e0","payload":{"status":"idle","uptime_secs":1}}}}
    > {"id":1,"method":"session/new","params":{"cwd":"/p"}}
    < {"id":1,"result":{"sessionId":"s"}}
    > {"id":2,"method":"_session/delegate","params":{"sessionId":"s","envelope":{"id":"e2","from":"aa","to":"bb","ts":7,"kind":"delegate","payload":{"task":"paint"}}}}
    < {"id":2,"result":{"envelope":{"id":"e3","from":"bb","to":"aa","ts":8,"kind":"ack","ref":"e2","payload":{"accepted":true}}}}
    < {"id":3,"method":"_session/query","params":{"sessionId":"s","envelope":{"id":"e4","from":"bb","to":"aa","ts":9,"kind":"query","ref":"e2","payload":{"question":"Which colour?"}}}}
    > {"id":3,"error":{"code":-31005,"message":"no","data":{"envelope":{"id":"e5","from":"aa","to":"bb","ts":10,"kind":"error","ref":"e4","payload":{"code":"overloaded"}}}}}
    > {"method":"_session/notify","params":{"sessionId":"s","envelope":{"id":"e6","from":"aa","to":"bb","ts":11,"kind":"notify","ref":"e2","payload":{"topic":"work.colour","data":"blue"}}}}
    < {"method":"_session/error","params":{"sessionId":"s","envelope":{"id":"e7","from":"bb","to":"aa","ts":12,"kind":"error","ref":"e6","payload":{"code":"unknown_domain"}}}}
    < {"method":"_session/result","params":{"sessionId":"s","envelope":{"id":"e8","from":"bb","to":"aa","ts":13,"kind":"result","ref":"e2","payload":{"status":"completed"}}}}
    "#;

fn client_of_today(harness: &mut ReplayHarness, colour: &str) -> String {
    harness
        .receive(r#"{"id":"i","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"a77a"}}}}}"#)
        .receive(r#"{"id":0,"result":{"envelope":{"id":"x1","from":"a77a","to":"bb","ts":1795000000000,"kind":"pong","ref":"e0","payload":{"status":"idle","uptime_secs":90}}}}"#)
        .receive(r#"{"id":"n","method":"session/new","params":{"cwd":"/p"}}"#)
        .receive(r#"{"id":"d","method":"_session/delegate","params":{"sessionId":"s","envelope":{"id":"x2","from":"a77a","to":"bb","ts":1795000000001,"kind":"delegate","payload":{"task":"paint"}}}}"#)
        .receive(r#"{"id":3,"error":{"code":-31005,"message":"not now"}}"#)
        .receive(&format!(r#"{{"method":"_session/notify","params":{{"sessionId":"s","envelope":{{"id":"x6","from":"a77a","to":"bb","ts":1795000000002,"kind":"notify","ref":"x2","payload":{{"topic":"work.colour","data":"{colour}"}}}}}}}}"#));
    harness.log()
}

#[test]
fn envelopes_have_the_ids_of_today() {
    insta::assert_snapshot!(client_of_today(&mut agent(WORK), "blue"), @r#"
            {"id":"i","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"a77a"}}}}}
    {"id":"i","result":{"protocolVersion":1,"agentCapabilities":{"_meta":{"duologue":{"agentId":"bb"}}}}}
    {"id":0,"method":"_session/ping","params":{"envelope":{"id":"e0","from":"bb","to":"a77a","ts":5,"kind":"ping"}}}
            {"id":0,"result":{"envelope":{"id":"x1","from":"a77a","to":"bb","ts":1795000000000,"kind":"pong","ref":"e0","payload":{"status":"idle","uptime_secs":90}}}}
            {"id":"n","method":"session/new","params":{"cwd":"/p"}}
    {"id":"n","result":{"sessionId":"s"}}
            {"id":"d","method":"_session/delegate","params":{"sessionId":"s","envelope":{"id":"x2","from":"a77a","to":"bb","ts":1795000000001,"kind":"delegate","payload":{"task":"paint"}}}}
    {"id":"d","result":{"envelope":{"id":"e3","from":"bb","to":"a77a","ts":8,"kind":"ack","ref":"x2","payload":{"accepted":true}}}}
    {"id":3,"method":"_session/query","params":{"sessionId":"s","envelope":{"id":"e4","from":"bb","to":"a77a","ts":9,"kind":"query","ref":"x2","payload":{"question":"Which colour?"}}}}
            {"id":3,"error":{"code":-31005,"message":"not now"}}
            {"method":"_session/notify","params":{"sessionId":"s","envelope":{"id":"x6","from":"a77a","to":"bb","ts":1795000000002,"kind":"notify","ref":"x2","payload":{"topic":"work.colour","data":"blue"}}}}
    {"method":"_session/error","params":{"sessionId":"s","envelope":{"id":"e7","from":"bb","to":"a77a","ts":12,"kind":"error","ref":"x6","payload":{"code":"unknown_domain"}}}}
    {"method":"_session/result","params":{"sessionId":"s","envelope":{"id":"e8","from":"bb","to":"a77a","ts":13,"kind":"result","ref":"x2","payload":{"status":"completed"}}}}
    "#);
    let other = client_of_today(&mut agent(WORK), "green");
    insta::assert_snapshot!(differences(&other), @"DIFFERENCE not as recorded: the _session/notify in s of line 12");
}

fn differences(log: &str) -> String {
    log.lines().filter(|line| line.starts_with("DIFFERENCE")).collect::<Vec<_>>().join("\n")
}

/// A recording and its redacted form behave the same for a live client.
#[test]
fn a_redacted_recording_is_as_good() {
    let mut harness = ReplayHarness::new(recording(WORK).redacted(), Side::Agent);
    harness
        .receive(r#"{"id":"i","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"a77a"}}}}}"#)
        .receive(r#"{"id":"[request-1]","result":{"envelope":{"id":"x1","from":"a77a","to":"[agent-2]","ts":1795000000000,"kind":"pong","ref":"[envelope-1]","payload":{"status":"idle","uptime_secs":90}}}}"#)
        .receive(r#"{"id":"n","method":"session/new","params":{"cwd":"/p"}}"#)
        .receive(r#"{"id":"d","method":"_session/delegate","params":{"sessionId":"[session-1]","envelope":{"id":"x2","from":"a77a","to":"[agent-2]","ts":1795000000001,"kind":"delegate","payload":{"task":"paint"}}}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":"i","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"a77a"}}}}}
    {"id":"i","result":{"protocolVersion":1,"agentCapabilities":{"_meta":{"duologue":{"agentId":"[agent-2]"}}}}}
    {"id":"[request-1]","method":"_session/ping","params":{"envelope":{"id":"[envelope-1]","from":"[agent-2]","to":"a77a","ts":5,"kind":"ping"}}}
            {"id":"[request-1]","result":{"envelope":{"id":"x1","from":"a77a","to":"[agent-2]","ts":1795000000000,"kind":"pong","ref":"[envelope-1]","payload":{"status":"idle","uptime_secs":90}}}}
            {"id":"n","method":"session/new","params":{"cwd":"/p"}}
    {"id":"n","result":{"sessionId":"[session-1]"}}
            {"id":"d","method":"_session/delegate","params":{"sessionId":"[session-1]","envelope":{"id":"x2","from":"a77a","to":"[agent-2]","ts":1795000000001,"kind":"delegate","payload":{"task":"paint"}}}}
    {"id":"d","result":{"envelope":{"id":"[session-1.envelope-2]","from":"[agent-2]","to":"a77a","ts":8,"kind":"ack","ref":"x2","payload":{"accepted":true}}}}
    {"id":"[session-1.request-1]","method":"_session/query","params":{"sessionId":"[session-1]","envelope":{"id":"[session-1.envelope-3]","from":"[agent-2]","to":"a77a","ts":9,"kind":"query","ref":"x2","payload":{"question":"Which colour?"}}}}
    UNUSED the answer of line 11 to the _session/query in [session-1] of line 10
    UNUSED the _session/notify in [session-1] of line 12
    "#);
}

/// An error or a late answer need not name its session: envelope ids are known on the whole connection.
#[test]
fn lines_without_a_session_refer_to_the_same_envelopes() {
    let script = r#"
    > {"id":1,"method":"_session/delegate","params":{"sessionId":"s","envelope":{"id":"e1","from":"aa","to":"bb","ts":1,"kind":"delegate","payload":{"task":"paint"}}}}
    < {"id":1,"result":{"envelope":{"id":"e2","from":"bb","to":"aa","ts":2,"kind":"ack","ref":"e1","payload":{"accepted":true}}}}
    > {"id":2,"method":"_session/delegate","params":{"sessionId":"t","envelope":{"id":"e3","from":"aa","to":"bb","ts":3,"kind":"delegate","ref":"e1","payload":{"task":"dry"}}}}
    < {"method":"_session/ack","params":{"envelope":{"id":"e4","from":"bb","to":"aa","ts":4,"kind":"ack","ref":"e3","payload":{"accepted":true}}}}
    < {"method":"_session/error","params":{"envelope":{"id":"e5","from":"bb","to":"aa","ts":5,"kind":"error","ref":"e1","payload":{"code":"internal"}}}}
    > {"method":"_session/error","params":{"envelope":{"id":"e6","from":"aa","to":"bb","ts":6,"kind":"error","ref":"e4","payload":{"code":"internal"}}}}
    "#;
    let answers = |transcript| {
        let mut harness = ReplayHarness::new(transcript, Side::Agent);
        let delegate = |id: u32, session: &str, rest: &str| {
            format!(
                r#"{{"id":{id},"method":"_session/delegate","params":{{"sessionId":"{session}","envelope":{{"id":"x{id}","from":"aa","to":"bb","ts":9,"kind":"delegate",{rest}}}}}}}"#
            )
        };
        harness.receive(&delegate(1, "s", r#""payload":{"task":"paint"}"#));
        harness.receive(&delegate(3, "t", r#""ref":"x1","payload":{"task":"dry"}"#));
        let received = harness.log.lines().filter(|line| !line.starts_with(' '));
        let refs = received.filter_map(|line| line.split_once(r#""ref":""#)?.1.split_once('"'));
        refs.map(|(reference, _)| reference.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(answers(recording(script)), ["x1", "x3", "x1"]);
    assert_eq!(answers(recording(script).redacted()), ["x1", "x3", "x1"]);
}

const DIALOGUE: &str = r#"
    > {"id":1,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m1","session_id":"d1","timestamp":"2026-03-01T12:00:00Z","interaction_step":1,"message_type":"propose","content":{"parameters":{"price":16000}},"metadata":{"correlation_id":"c1"}}}}
    < {"id":1,"result":{"receipt":{"message_id":"m1","session_id":"d1"}}}
    < {"id":2,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m2","session_id":"d1","parent_message_id":"m1","timestamp":"2026-03-01T12:00:01Z","interaction_step":2,"message_type":"reject","content":{"previous_context":["m1"]},"metadata":{"correlation_id":"c1"}}}}
    > {"id":2,"result":{"receipt":{"message_id":"m2","session_id":"d1"}}}
    > {"id":3,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m3","session_id":"d1","parent_message_id":"m2","timestamp":"2026-03-01T12:00:02Z","interaction_step":3,"message_type":"accept","content":{"previous_context":["m1","m2"]}}}}
    < {"id":3,"result":{"error":{"message_id":"m4","session_id":"d1","timestamp":"2026-03-01T12:00:03Z","interaction_step":4,"message_type":"error","content":{"error_code":"EXPIRED","failed_message_id":"m3","failed_session_id":"d1"}}}}
    "#;

#[test]
fn dialogues_have_the_ids_of_today() {
    let dialogue = |id: u32, step: u32, rest: &str| {
        format!(
            r#"{{"id":{id},"method":"_session/dialogue","params":{{"sessionId":"s","message":{{"message_id":"t{step}","session_id":"u","timestamp":"2027-01-01T00:00:00Z","interaction_step":{step},{rest}}}}}}}"#
        )
    };
    let propose = r#""message_type":"propose","content":{"parameters":{"price":16000}},"metadata":{"correlation_id":"w"}"#;
    let accept = |parent: &str| {
        format!(
            r#""parent_message_id":"{parent}","message_type":"accept","content":{{"previous_context":["t1","{parent}"]}}"#
        )
    };
    let mut harness = agent(DIALOGUE);
    harness
        .receive(&dialogue(8, 1, propose))
        .receive(r#"{"id":2,"result":{"receipt":{"message_id":"m2","session_id":"u"}}}"#)
        .receive(&dialogue(9, 3, &accept("m2")));
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":8,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"t1","session_id":"u","timestamp":"2027-01-01T00:00:00Z","interaction_step":1,"message_type":"propose","content":{"parameters":{"price":16000}},"metadata":{"correlation_id":"w"}}}}
    {"id":8,"result":{"receipt":{"message_id":"t1","session_id":"u"}}}
    {"id":2,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m2","session_id":"u","parent_message_id":"t1","timestamp":"2026-03-01T12:00:01Z","interaction_step":2,"message_type":"reject","content":{"previous_context":["t1"]},"metadata":{"correlation_id":"w"}}}}
            {"id":2,"result":{"receipt":{"message_id":"m2","session_id":"u"}}}
            {"id":9,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"t3","session_id":"u","timestamp":"2027-01-01T00:00:00Z","interaction_step":3,"parent_message_id":"m2","message_type":"accept","content":{"previous_context":["t1","m2"]}}}}
    {"id":9,"result":{"error":{"message_id":"m4","session_id":"u","timestamp":"2026-03-01T12:00:03Z","interaction_step":4,"message_type":"error","content":{"error_code":"EXPIRED","failed_message_id":"t3","failed_session_id":"u"}}}}
    "#);
    // Ids of the played side do not change.
    let mut harness = agent(DIALOGUE);
    harness
        .receive(&dialogue(8, 1, propose))
        .receive(r#"{"id":2,"result":{"receipt":{"message_id":"t2","session_id":"u"}}}"#)
        .receive(&dialogue(9, 3, &accept("t1")));
    insta::assert_snapshot!(differences(&harness.log()), @r#"
    DIFFERENCE not as recorded: the answer to the _session/dialogue in s of line 4
    DIFFERENCE not in the recording: _session/dialogue; the nearest, the _session/dialogue in s of line 6, differs at `message.content.previous_context.1`
    "#);
}

/// A redacted time becomes the present, so that it can be parsed.
#[test]
fn a_redacted_time_becomes_the_present() {
    let mut harness = ReplayHarness::new(recording(DIALOGUE).redacted(), Side::Client);
    let log = harness.log();
    let time = log.split_once(r#""timestamp":""#).unwrap().1.split_once('"').unwrap().0;
    assert!(humantime::parse_rfc3339(time).is_ok(), "{log}");
}
