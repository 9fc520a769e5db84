//! Tests of the recorded line that a live one is matched with.

use super::*;

const OTHER: &str = r#"{"method":"_x","params":{"sessionId":"s"}}"#;

fn request(id: u32, method: &str, session: &str) -> String {
    format!(r#"{{"id":{id},"method":"{method}","params":{{"sessionId":"{session}"}}}}"#)
}

fn answer(id: u32) -> String {
    format!(r#"{{"id":{id},"result":{{}}}}"#)
}

fn differences(harness: &mut ReplayHarness) -> Vec<String> {
    harness.log().lines().filter_map(|line| line.strip_prefix("DIFFERENCE ")).map(str::to_owned).collect()
}

/// The lines between a skipped request and the next one are skipped too, but not those before it.
#[test]
fn lines_of_a_skipped_request_are_skipped() {
    let (a, b, c) = (request(1, "_a", "s"), request(2, "_b", "s"), request(3, "_c", "s"));
    let mut harness = agent(&format!("> {a}\n> {OTHER}\n< {}\n> {b}\n< {}", answer(1), answer(2)));
    harness.receive(&b);
    let log = harness.log();
    assert!(log.contains(&answer(2)) && log.contains("DIFFERENCE missing: the _a in s of line 2"), "{log}");
    // The answers came in another order.
    let mut harness =
        agent(&format!("> {a}\n> {OTHER}\n> {b}\n< {}\n< {}\n> {c}\n< {}", answer(2), answer(1), answer(3)));
    harness.receive(&c);
    let log = harness.log();
    assert!(log.contains(&answer(3)), "{log}");
    let missing: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("DIFFERENCE missing: ")).collect();
    assert_eq!(missing, ["the _a in s of line 2", "the _b in s of line 4"]);
    // A line before the skipped request is still expected.
    let mut harness = agent(&format!("> {OTHER}\n> {a}\n< {}\n> {b}\n< {}", answer(1), answer(2)));
    harness.receive(&b);
    assert!(!harness.log().contains(&answer(2)));
    harness.receive(OTHER);
    assert!(harness.log().contains(&answer(2)));
}

/// A request of an agent is matched within its session, whatever its content.
#[test]
fn a_request_of_an_agent_stays_in_its_session() {
    let ask = |session: &str, text: &str| {
        format!(r#"{{"id":"{session}","method":"_q","params":{{"sessionId":"{session}","text":"{text}"}}}}"#)
    };
    let mut harness = client(&format!(
        "> {}\n> {}\n< {}\n> {{\"id\":\"s\",\"result\":\"in s\"}}\n< {}\n> {{\"id\":\"t\",\"result\":\"in t\"}}",
        request(1, "session/prompt", "s"),
        request(2, "session/prompt", "t"),
        ask("s", "one"),
        ask("t", "two")
    ));
    harness.receive(&ask("t", "one"));
    assert!(harness.log().contains(r#"{"id":"t","result":"in t"}"#));
}

/// A request in a known session is found behind any number of requests in others.
#[test]
fn other_sessions_hide_no_request() {
    let new =
        |id: u32, cwd: &str| format!(r#"{{"id":{id},"method":"session/new","params":{{"cwd":"{cwd}"}}}}"#);
    let prompts: String = (10..400).map(|id| format!("> {}\n", request(id, "session/prompt", "t"))).collect();
    let last = request(5, "session/prompt", "s");
    let mut harness = agent(&format!(
        "> {}\n< {{\"id\":1,\"result\":{{\"sessionId\":\"t\"}}}}\n> {}\n< {{\"id\":2,\"result\":{{\"sessionId\":\"s\"}}}}\n{prompts}> {last}\n< {}",
        new(1, "/t"),
        new(2, "/s"),
        answer(5)
    ));
    harness.receive(&new(1, "/t")).receive(&new(2, "/s")).receive(&last);
    assert!(harness.log().contains(&answer(5)));
}

/// A client cannot use the session that it got for another recorded one.
#[test]
fn a_session_that_was_created_is_no_other_one() {
    let new =
        |id: u32, cwd: &str| format!(r#"{{"id":{id},"method":"session/new","params":{{"cwd":"{cwd}"}}}}"#);
    let prompt = request(3, "session/prompt", "t");
    let mut harness = agent(&format!(
        "> {}\n< {{\"id\":1,\"result\":{{\"sessionId\":\"s\"}}}}\n> {prompt}\n< {}",
        new(1, "/s"),
        answer(3)
    ));
    harness.receive(&new(1, "/s")).receive(&request(3, "session/prompt", "s"));
    assert!(!harness.log().contains(&answer(3)));
}

/// The error about an unknown request names the recorded one with the fewest differences, in any session.
#[test]
fn the_nearest_request_has_the_fewest_differences() {
    let ask = |id: u32, session: &str, values: &str| {
        format!(r#"{{"id":{id},"method":"_q","params":{{"sessionId":"{session}",{values}}}}}"#)
    };
    let script = format!("> {}\n> {}", ask(1, "s", r#""a":1,"b":1"#), ask(2, "s", r#""a":2,"b":1"#));
    let mut harness = agent(&script);
    harness.receive(&ask(3, "s", r#""a":2,"b":2"#));
    let log = harness.log();
    assert!(log.contains("the nearest, the _q in s of line 3, differs at `b`"), "{log}");
    let new = r#"{"id":0,"method":"session/new","params":{"cwd":"/s"}}"#;
    let script = format!(
        "> {new}\n< {{\"id\":0,\"result\":{{\"sessionId\":\"s\"}}}}\n> {}\n> {}",
        ask(1, "s", r#""a":1,"b":1"#),
        ask(2, "t", r#""a":2,"b":2"#)
    );
    let mut harness = agent(&script);
    harness.receive(new).receive(&ask(3, "s", r#""a":2,"b":2"#));
    let log = harness.log();
    assert!(log.contains("the nearest, the _q in t of line 5, differs at `sessionId`"), "{log}");
}

/// Notifications may come in another order. One with another content takes the place of the first that is left.
#[test]
fn notifications_match_in_any_order() {
    let note = |value: u32| format!(r#"{{"method":"_n","params":{{"value":{value}}}}}"#);
    let (start, end) = (r#"{"id":1,"method":"_a"}"#, answer(1));
    let script = format!("> {start}\n> {}\n> {}\n< {end}", note(1), note(2));
    let mut harness = agent(&script);
    harness.receive(start).receive(&note(2)).receive(&note(1));
    let log = harness.log();
    assert!(log.contains(&end) && !log.contains("DIFFERENCE"), "{log}");
    let mut harness = agent(&script);
    harness.receive(start).receive(&note(3)).receive(&note(2));
    let log = harness.log();
    assert!(log.contains(&end) && log.contains("DIFFERENCE not as recorded: the _n of line 3"), "{log}");
}

/// A second cancel of a request that is still open is not a difference.
#[test]
fn a_cancel_may_be_repeated() {
    let cancel = r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#;
    let prompt = request(1, "session/prompt", "s");
    let mut harness = agent(&format!("> {prompt}\n> {cancel}\n> {OTHER}\n< {}", answer(1)));
    harness.receive(&prompt).receive(cancel).receive(cancel);
    assert_eq!(differences(&mut harness), Vec::<String>::new());
    // Whichever of two requests was cancelled first.
    let withdraw = |id: u32| format!(r#"{{"method":"$/cancel_request","params":{{"requestId":{id}}}}}"#);
    let (one, two) = (r#"{"id":1,"method":"_a"}"#, r#"{"id":2,"method":"_b"}"#);
    let mut harness = agent(&format!(
        "> {one}\n> {}\n> {two}\n> {}\n> {{\"method\":\"_x\"}}\n< {}\n< {}",
        withdraw(1),
        withdraw(2),
        answer(1),
        answer(2)
    ));
    harness.receive(one).receive(two);
    harness.receive(&withdraw(2)).receive(&withdraw(1)).receive(&withdraw(2));
    assert_eq!(differences(&mut harness), Vec::<String>::new());
}

/// A cancel of a session is that of its last open prompt.
#[test]
fn a_cancel_is_of_the_last_prompt() {
    let cancel = r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#;
    let (one, two) = (request(1, "session/prompt", "s"), request(2, "session/prompt", "s"));
    let mut harness =
        agent(&format!("> {one}\n> {cancel}\n> {two}\n> {cancel}\n< {}\n< {}", answer(1), answer(2)));
    harness.receive(&one).receive(&two).receive(cancel);
    let unused: Vec<_> = harness.player.unused();
    assert_eq!(unused, ["the session/cancel in s of line 3"]);
}

/// A line of the connection keeps its place among the lines of all sessions.
#[test]
fn a_line_of_the_connection_waits_for_each_session() {
    let (one, two) = (request(1, "session/prompt", "s"), request(2, "session/prompt", "t"));
    let note = r#"{"method":"_note"}"#;
    let mut harness = agent(&format!("> {one}\n> {two}\n< {note}\n< {}\n< {}", answer(1), answer(2)));
    harness.receive(&one);
    let log = harness.log();
    assert!(log.contains(&answer(1)) && !log.contains(note), "{log}");
    harness.receive(&two);
    assert!(harness.log().contains(note));
    // A response of the connection that is awaited behind it makes an exception, unless another line is missing there.
    let prompt = request(9, "session/prompt", "s");
    let (a, b) = (r#"{"id":3,"method":"_a"}"#, r#"{"id":4,"method":"_b"}"#);
    let script = format!("> {prompt}\n< {note}\n> {a}\n> {b}\n< {}", answer(4));
    let mut harness = agent(&script);
    harness.receive(b);
    assert!(!harness.log().contains(note));
    harness.receive(a);
    let log = harness.log();
    assert!(log.contains(note) && log.contains(&answer(4)), "{log}");
}

/// A malformed request that was recorded is answered at once, any other one with an error.
#[test]
fn malformed_requests_are_answered() {
    let malformed = |id: &str| format!(r#"{{"id":{id},"method":7}}"#);
    let no = |id: &str| format!(r#"{{"id":{id},"error":{{"code":-32600,"message":"no"}}}}"#);
    let prompt = request(5, "session/prompt", "s");
    let mut harness = agent(&format!("> {prompt}\n> {}\n< {}", malformed("1"), no("1")));
    harness.receive(&malformed("2"));
    assert!(harness.log().contains(&no("2")));
    // Its own id may be null.
    let mut harness = agent(&format!("> {}\n< {}", malformed("null"), no("null")));
    harness.receive(&malformed("2"));
    assert!(harness.log().contains(&no("2")));
    let mut harness = agent("");
    harness.receive(&malformed("2"));
    let log = harness.log();
    assert!(
        log.contains(r#"{"id":2,"error":{"code":-32600,"#) && log.contains("DIFFERENCE a line that"),
        "{log}"
    );
    // A played client answers no noise, and a client sends no request for a permission.
    let mut harness = client(&format!("! log\n< noise\n> {prompt}"));
    harness.receive("more noise").receive(&malformed("2"));
    let log = harness.log();
    assert!(!log.contains("error") && !log.contains("DIFFERENCE"), "{log}");
    let mut harness = agent("");
    harness.receive(&request(1, "session/request_permission", "s"));
    assert!(harness.log().contains(r#"{"id":1,"error":{"code":-32601,"#));
}

/// A blank line is not awaited, but one of the played side is sent.
#[test]
fn blank_lines_are_sent_and_not_awaited() {
    let start = r#"{"id":1,"method":"_a"}"#;
    let mut harness = agent(&format!("> {start}\n>\n<\n< {}", answer(1)));
    harness.receive(start);
    assert!(harness.log().ends_with(&format!("{start}\n\n{}\n", answer(1))));
}

/// The results of an agent are compared with the whole conversation, at the end.
#[test]
fn another_result_of_an_agent_is_no_difference() {
    let mut harness = client("> {\"id\":1,\"method\":\"_a\"}\n< {\"id\":1,\"result\":{\"x\":1}}");
    harness.receive(r#"{"id":1,"result":{"x":2}}"#);
    assert_eq!(differences(&mut harness), Vec::<String>::new());
}

/// An id that is still open is not used for another request. A cancel names the live id.
#[test]
fn each_open_request_has_its_own_id() {
    let withdraw = |id: &str| format!(r#"{{"method":"$/cancel_request","params":{{"requestId":{id}}}}}"#);
    let (one, two) = (r#"{"id":1,"method":"_a"}"#, r#"{"id":1,"method":"_b"}"#);
    let mut harness = client(&format!("> {one}\n> {two}\n> {}", withdraw("1")));
    let log = harness.log();
    assert!(log.contains(r#"{"id":"replay-1","method":"_b"}"#), "{log}");
    assert!(log.contains(&withdraw(r#""replay-1""#)), "{log}");
    // Any other line names a request of the live side.
    let progress = |id: u32| format!(r#"{{"method":"_progress","params":{{"requestId":{id}}}}}"#);
    let mut harness = agent(&format!("> {one}\n< {}\n< {}", progress(1), answer(1)));
    harness.receive(r#"{"id":7,"method":"_a"}"#);
    assert!(harness.log().contains(&progress(7)));
}

/// Ignored paths may differ.
#[test]
fn ignored_values_match() {
    let ask = |n: u32| format!(r#"{{"id":1,"method":"_a","params":{{"n":{n},"m":1}}}}"#);
    let script = format!("> {}\n< {}", ask(1), answer(1));
    for (path, is_equal) in [("n", true), ("m", false)] {
        let replay = Replay::new(recording(&script)).ignore(path).expect("a path");
        let mut harness = ReplayHarness::with(replay, Side::Agent);
        harness.receive(&ask(2));
        assert_eq!(harness.log().contains(&answer(1)), is_equal, "{path}");
    }
}

/// Variables with a removed value are left out of each line, but only if secrets were removed.
#[test]
fn removed_values_are_no_variables() {
    let start = r#"{"id":1,"method":"_a"}"#;
    let note = |env: &str| format!(r#"{{"method":"_n","params":{{"env":[{env}]}}}}"#);
    let variable = r#"{"name":"A","value":"[secret]"}"#;
    for (redacted, left) in
        [(Redacted::Nothing, variable), (Redacted::Secrets, ""), (Redacted::Everything, "")]
    {
        let script = format!("> {start}\n< {}\n< {}", note(variable), answer(1));
        let mut harness = ReplayHarness::new(without(redacted, recording(&script)), Side::Agent);
        harness.receive(start);
        assert!(harness.log().contains(&note(left)), "{redacted:?}");
    }
}
