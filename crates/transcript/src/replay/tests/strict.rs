//! Inputs that a replay must not confuse: values out of range, ids, brackets, folders with similar names, gaps.

use super::*;

#[test]
fn values_out_of_range_are_equal_only_to_themselves() {
    let script = r#"
        > {"id":1,"method":"_x","params":{}}
        < {"id":1,"result":1}
        > {"id":2,"method":"_y","params":{"n":1e400}}
        < {"id":2,"result":2}
        > {"id":3,"method":"_z","params":{"text":"\ud83d"}}
        < {"id":3,"result":3}
        "#;
    let mut harness = agent(script);
    harness
        .receive(r#"{"id":1,"method":"_x","params":{"text":"delete \ud83d all"}}"#)
        .receive(r#"{"id":2,"method":"_x","params":{"n":1e400}}"#)
        .receive(r#"{"id":3,"method":"_y","params":{}}"#)
        .receive(r#"{"id":4,"method":"_x"}"#)
        .receive(r#"{"id":5,"method":"_y","params":{"n":1e400}}"#)
        .receive(r#"{"id":6,"method":"_z","params":{"text":"\ud83d"}}"#);
    let log = harness.log();
    assert_eq!(log.matches("\"error\"").count(), 3, "{log}");
    for answer in [r#"{"id":4,"result":1}"#, r#"{"id":5,"result":2}"#, r#"{"id":6,"result":3}"#] {
        assert!(log.contains(answer), "{log}");
    }
}

#[test]
fn brackets_that_redaction_did_not_write_are_text() {
    let script = r#"
        > {"id":1,"method":"_x","params":{"text":"fix a[i] with [secret] now"}}
        < {"id":1,"result":1}
        "#;
    let answers = |redacted, text: &str| {
        let mut harness = ReplayHarness::new(without(redacted, recording(script)), Side::Agent);
        harness.receive(&format!(r#"{{"id":1,"method":"_x","params":{{"text":"{text}"}}}}"#));
        harness.log().contains(r#"{"id":1,"result":1}"#)
    };
    for redacted in [Redacted::Secrets, Redacted::Everything] {
        assert!(answers(redacted, "fix a[i] with sk-1 now"));
        assert!(!answers(redacted, "fix a completely different thing with sk-1 now"));
    }
    assert!(!answers(Redacted::Nothing, "fix a[i] with sk-1 now"));
}

#[test]
fn responses_have_the_live_id_or_are_left_out() {
    let script = r#"
        < {"id":1,"result":"before"}
        > {"id":"a\/b","method":"_x","params":{}}
        < {"id":"a/b","result":2}
        < {"id":null,"error":{"code":-32700,"message":"what?"}}
        "#;
    let mut harness = agent(script);
    harness.receive(r#"{"id":1,"method":"_x","params":{}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"_x","params":{}}
    {"id":1,"result":2}
    {"id":null,"error":{"code":-32700,"message":"what?"}}
    DIFFERENCE the answer of line 2 has no request in the recording and is left out
    "#);
    let mut harness = agent(script);
    harness.receive(r#"{"id":"\u0061","method":"_x"}"#);
    assert!(harness.log().contains(r#"{"id":"\u0061","result":2}"#), "as it was spelled");
    let mut harness = client(script);
    harness.receive(r#"{"id":"a/b","result":2}"#);
    assert!(!harness.log().contains("nothing that is open"));
}

#[test]
fn a_request_that_cannot_be_read_has_its_recorded_answer() {
    let script = r#"
        > {"id":1,"method":7}
        < {"id":1,"error":{"code":-32600,"message":"no"}}
        "#;
    let mut harness = agent(script);
    harness.receive(r#"{"id":"z","method":7}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":"z","method":7}
    {"id":"z","error":{"code":-32600,"message":"no"}}
    "#);
}

#[test]
fn lost_responses_are_errors_and_differences() {
    let script = r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"method":"session/update","params":{"sessionId":"s","n":1}}
        ?
        > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"id":2,"result":{}}
        > .
        < .
        "#;
    let mut harness = agent(script);
    harness
        .receive(r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#)
        .end();
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s","n":1}}
    {"id":1,"error":{"code":-32603,"message":"the recording ends or has a gap before the answer to the session/prompt in s of line 2"}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
    {"id":2,"result":{}}
            .
    closed
    done
    DIFFERENCE the recording ends or has a gap before the answer to the session/prompt in s of line 2
    "#);
}

#[test]
fn the_end_of_a_recording_that_was_cut_is_the_end_of_its_agent() {
    let script = r#"
        > {"id":1,"method":"_x"}
        < {"id":1,"result":1}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
        < {"method":"session/update","params":{"sessionId":"s","n":1}}
        "#;
    let mut harness = ReplayHarness::new(recording(script).cut_short(), Side::Agent);
    harness
        .receive(r#"{"id":1,"method":"_x"}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    insta::assert_snapshot!(harness.log(), @r#"
            {"id":1,"method":"_x"}
    {"id":1,"result":1}
            {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
    {"method":"session/update","params":{"sessionId":"s","n":1}}
    {"id":2,"error":{"code":-32603,"message":"the recording ends or has a gap before the answer to the session/prompt in s of line 4"}}
    closed
    done
    DIFFERENCE the recording ends or has a gap before the answer to the session/prompt in s of line 4
    "#);
}

#[test]
fn folders_with_similar_names_are_different() {
    let new = |id: u8, cwd: &str, text: &str| {
        format!(r#"{{"id":{id},"method":"session/new","params":{{"cwd":"{cwd}","_at":"{text}"}}}}"#)
    };
    let answers = |recorded: [(&str, &str); 2], live: [(&str, &str); 2]| {
        let [(a, at), (b, bt)] = recorded;
        let script = format!(
            "> {}\n< {{\"id\":1,\"result\":{{\"sessionId\":\"s\"}}}}\n> {}\n< {{\"id\":2,\"result\":{{\"sessionId\":\"t\"}}}}",
            new(1, a, at),
            new(2, b, bt)
        );
        let mut harness = agent(&script);
        let [(a, at), (b, bt)] = live;
        harness.receive(&new(1, a, at)).receive(&new(2, b, bt));
        let log = harness.log();
        log.contains(r#"{"id":1,"result""#) && log.contains(r#"{"id":2,"result""#)
    };
    let twice = |folder, text| [(folder, text), (folder, text)];
    for (recorded, live) in [
        (("/tmp", "/tmp/srv"), ("/tmp/q", "/tmp/q/srv")),
        (("/a", "/a/srv /apps"), ("/b", "/b/srv /apps")),
        (("/a", "x"), ("/a/a", "x")),
        (("", "a /b"), ("/b", "a /b")),
        (("/", "/b c"), ("/x", "/b c")),
        (("/x y", "file:///x%20y/a"), ("/z", "file:///z/a")),
        (("/x", "file:///x/a in /x."), ("/y z", "file:///y%20z/a in /y z.")),
        (("/x/", "/x/a"), ("/", "/a")),
        (("C:\\\\p", "C:\\\\p\\\\a file://C:/p/a"), ("D:\\\\q", "D:\\\\q\\\\a file://D:/q/a")),
    ] {
        assert!(answers(twice(recorded.0, recorded.1), twice(live.0, live.1)), "{recorded:?} {live:?}");
    }
    assert!(answers([("/a", "/a/1"), ("/a", "/a/2")], [("/x", "/x/1"), ("/y", "/y/2")]));
    assert!(!answers(twice("/a", "/apps"), twice("/b", "/bpps")));
}

#[test]
fn requests_of_a_redacted_agent_name_real_folders() {
    let script = r#"
        > {"id":"[session-1.request-1]","method":"session/prompt","params":{"sessionId":"[session-1]"}}
        < {"id":"[session-1.request-1]","method":"terminal/create","params":{"sessionId":"[session-1]","command":"[home]/bin/x","cwd":"[tmp]/w","env":[{"name":"A","value":"[secret]"},{"name":"B","value":"1"},{"name":"C","value":"[secret]"},{"value":"[secret]","name":"D"}]}}
        > {"id":"[session-1.request-1]","result":{"terminalId":"[terminal-1]"}}
        < {"id":"[session-1.request-1]","result":{}}
        "#;
    let mut harness = ReplayHarness::new(redacted(recording(script)), Side::Agent);
    harness.receive(r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    let home = std::env::home_dir().unwrap_or_default().join("bin/x");
    let tmp = std::env::temp_dir().join("w");
    let request = format!(
        r#""params":{{"sessionId":"s","command":{:?},"cwd":{:?},"env":[{{"name":"B","value":"1"}}]}}}}"#,
        home, tmp
    );
    let log = harness.log();
    assert!(log.contains(&request), "{log}");
}

#[test]
fn no_limit_is_no_panic() {
    for replay in [
        Replay::new(recording(TURN)).patience(Duration::MAX),
        Replay::new(recording(TURN)).timing(Timing::Scaled(1e300)),
        Replay::new(recording(TURN)).timing(Timing::Scaled(f64::NAN)),
    ] {
        let mut harness = ReplayHarness::with(replay, Side::Client);
        harness.receive(r#"{"id":0,"result":{"protocolVersion":1}}"#).end();
        assert!(harness.log().contains("done"));
    }
    let mut replay = Replay::new(recording(TURN));
    replay.settings.settle = Duration::MAX;
    ReplayHarness::with(replay, Side::Client).end();
}

#[test]
fn much_noise_takes_no_time() {
    let noise = "! a line\n< noise\n".repeat(50_000);
    let script = format!(
        "> {{\"id\":1,\"method\":\"a\"}}\n> {{\"id\":2,\"method\":\"session/prompt\",\"params\":{{\"sessionId\":\"s\"}}}}\n{noise}< {{\"id\":1,\"result\":{{}}}}"
    );
    let mut harness = agent(&script);
    let started = std::time::Instant::now();
    harness
        .receive(r#"{"id":1,"method":"a"}"#)
        .receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    assert!(harness.log().contains(r#"{"id":1,"result":{}}"#));
    // It took minutes when each line searched all later ones.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}
