//! Tests of the time at which a line is sent or given up.

use super::*;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The limit for updates that may be missing from a shorter text.
const SETTLE: Duration = ms(500);

fn chunk(session: &str, text: &str) -> String {
    let update =
        format!(r#"{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}"#);
    format!(r#"{{"method":"session/update","params":{{"sessionId":"{session}","update":{update}}}}}"#)
}

fn recorded_pace(script: &str) -> ReplayHarness {
    ReplayHarness::with(Replay::new(recording(script)).timing(Timing::Recorded), Side::Agent)
}

impl ReplayHarness {
    /// Returns the time until the player acts again.
    fn pause(&mut self) -> Duration {
        self.run().expect("a limit").saturating_sub(self.now)
    }

    fn at(&mut self, now: Duration) -> &mut Self {
        self.now = now;
        self
    }
}

/// Lines that come in another order than the recorded one lengthen no pause.
#[test]
fn the_pause_counts_from_the_latest_recorded_line() {
    let requests = [
        r#"{"id":2,"method":"_b","params":{"sessionId":"s"}}"#,
        r#"{"id":1,"method":"_a","params":{"sessionId":"s"}}"#,
    ];
    let [b, a] = requests;
    let mut harness = recorded_pace(&format!(
        "> {a}\n> {b}\n< {{\"id\":1,\"result\":{{}}}}\n< {{\"id\":2,\"result\":{{}}}}"
    ));
    harness.receive(b).receive(a);
    assert_eq!(harness.pause(), ms(1));
    // A session without any line before counts from the latest line of all.
    let mut harness = recorded_pace(&format!("> {a}\n> {b}\n< {}\n> .", chunk("t", "x")));
    harness.receive(b).receive(a);
    assert_eq!(harness.pause(), ms(1));
}

#[test]
fn each_session_has_its_own_pace() {
    let mut harness = recorded_pace(
        r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"t"}}
        < {"id":1,"result":{}}
        < {"id":2,"result":{}}
        "#,
    );
    harness.receive(r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    harness.at(ms(10)).receive(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"t"}}"#);
    let log = harness.log();
    assert!(log.contains(r#"{"id":1,"result":{}}"#) && !log.contains(r#"{"id":2,"result":{}}"#), "{log}");
    assert_eq!(harness.pause(), ms(2));
}

/// A factor that is not a number, or is negative, causes no pause.
#[test]
fn an_impossible_factor_is_no_pause() {
    for factor in [f64::NAN, -1.0] {
        let script = "> {\"id\":1,\"method\":\"a\"}\n< {\"id\":1,\"result\":{}}";
        let replay = Replay::new(recording(script)).timing(Timing::Scaled(factor));
        let mut harness = ReplayHarness::with(replay, Side::Agent);
        harness.receive(r#"{"id":1,"method":"a"}"#);
        assert!(harness.log().contains(r#"{"id":1,"result":{}}"#), "{factor}");
    }
}

const CANCELLED: &str = r#"> {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
const CANCEL: &str = r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#;

/// Each further update starts the wait for the rest anew.
#[test]
fn an_update_prolongs_the_wait_for_more() {
    let mut harness = client(&format!("{CANCELLED}\n< {}\n> {CANCEL}", chunk("s", "abcd")));
    assert_eq!(harness.pause(), SETTLE + ms(2));
    harness.at(ms(300)).receive(&chunk("s", "a"));
    assert_eq!(harness.pause(), SETTLE + ms(2));
}

/// A longer pause of the recording counts.
#[test]
fn a_line_waits_for_its_pace_and_for_updates() {
    let script = format!("{CANCELLED}\n< {}\n> {CANCEL}", chunk("s", "abcd"));
    let replay = Replay::new(recording(&script)).timing(Timing::Scaled(1000.0));
    let mut harness = ReplayHarness::with(replay, Side::Client);
    assert_eq!(harness.pause(), secs(2));
}

/// The wait for updates starts when nothing else blocks the line any more.
#[test]
fn the_wait_for_updates_starts_behind_other_gates() {
    let mut harness = client(&format!(
        r#"
        {CANCELLED}
        < {first}
        > {{"method":"_x","params":{{"sessionId":"s"}}}}
        > {{"id":2,"method":"_a"}}
        < {{"id":2,"result":{{}}}}
        < {second}
        > {CANCEL}
        "#,
        first = chunk("s", "ab"),
        second = chunk("s", "cd"),
    ));
    let first = harness.pause();
    assert_eq!(first, SETTLE + ms(2));
    harness.at(first).run();
    harness.at(secs(5)).receive(r#"{"id":2,"result":{}}"#);
    assert_eq!(harness.pause(), SETTLE + ms(4));
}

/// The text of an update is as long as it is with the folders of today.
#[test]
fn the_length_of_a_text_counts_with_live_names() {
    let script = format!(
        r#"
        > {{"id":0,"method":"session/new","params":{{"cwd":"/home/me/p"}}}}
        < {{"id":0,"result":{{"sessionId":"s"}}}}
        {CANCELLED}
        < {}
        > {CANCEL}
        "#,
        chunk("s", "/home/me/p/a")
    );
    let mut harness = ReplayHarness::with(Replay::new(recording(&script)).cwd("/x"), Side::Client);
    harness.receive(r#"{"id":0,"result":{"sessionId":"s"}}"#).receive(&chunk("s", "/x/a"));
    assert!(harness.log().contains(CANCEL), "nothing is awaited");
}

/// An agent that sends updates while it owes a response is not silent.
#[test]
fn any_line_of_its_session_renews_the_patience() {
    let mut harness = client(&format!("{CANCELLED}\n< {{\"id\":1,\"result\":{{}}}}"));
    assert_eq!(harness.pause(), secs(30));
    harness.at(secs(20)).receive(&chunk("s", "a"));
    assert_eq!(harness.pause(), secs(30));
    // So does a response that was not recorded.
    let mut harness = client(&format!(
        "> {}\n{CANCELLED}\n< {{\"id\":1,\"result\":{{}}}}",
        r#"{"id":7,"method":"_x","params":{"sessionId":"s"}}"#
    ));
    harness.at(secs(20)).receive(r#"{"id":7,"result":{}}"#);
    assert_eq!(harness.pause(), secs(30));
    // So does a response in another session.
    let script = r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"t"}}
        < {"id":1,"result":{}}
        < {"id":2,"result":{}}
        "#;
    let mut harness = client(&format!("> {{\"id\":0,\"method\":\"a\"}}\n{script}"));
    harness.at(secs(20)).receive(r#"{"id":2,"result":{}}"#);
    assert_eq!(harness.pause(), secs(30));
}

/// The first limit of any session counts, whatever the order of the sessions.
#[test]
fn the_earliest_limit_comes_first() {
    let script = r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"t"}}
        < {"id":1,"result":{}}
        < {"id":2,"result":{}}
        > {"method":"_s","params":{"sessionId":"s"}}
        > {"method":"_t","params":{"sessionId":"t"}}
        "#;
    for (late, early) in [("s", "_t"), ("t", "_s")] {
        let mut harness = client(script);
        harness.at(secs(20)).receive(&chunk(late, "a"));
        assert_eq!(harness.pause(), secs(10), "{late}");
        harness.at(secs(30)).run();
        assert!(harness.log().contains(&format!(r#""method":"{early}""#)), "{early}");
        assert_eq!(harness.pause(), secs(30), "{late}");
    }
}

/// The last updates of all sessions are awaited before the client closes.
#[test]
fn updates_at_the_end_are_awaited() {
    let script = format!(
        r#"
        > {{"id":1,"method":"session/prompt","params":{{"sessionId":"s"}}}}
        > {{"id":2,"method":"session/prompt","params":{{"sessionId":"t"}}}}
        < {{"id":1,"result":{{}}}}
        < {{"id":2,"result":{{}}}}
        < {}
        < {}
        "#,
        chunk("s", "ab"),
        chunk("t", "ab")
    );
    for transcript in [recording(&script), recording(&script).cut_short()] {
        for session in ["s", "t"] {
            let mut harness = ReplayHarness::new(transcript.clone(), Side::Client);
            harness.receive(r#"{"id":1,"result":{}}"#).receive(r#"{"id":2,"result":{}}"#);
            assert_eq!(harness.pause(), SETTLE);
            harness.at(ms(300)).receive(&chunk(session, "a"));
            assert_eq!(harness.pause(), SETTLE, "the rest of {session}");
            harness.receive(&chunk("s", "ab")).receive(&chunk("t", "ab"));
            assert!(harness.log().ends_with("closed\n"));
        }
    }
}

/// Updates that the agent sent after its client had closed are not awaited before.
#[test]
fn updates_behind_the_close_are_not_awaited() {
    let script = format!(
        "> {{\"id\":1,\"method\":\"a\"}}\n< {{\"id\":1,\"result\":{{}}}}\n> .\n< {}",
        chunk("s", "a")
    );
    let mut harness = client(&script);
    harness.receive(r#"{"id":1,"result":{}}"#);
    assert!(harness.log().ends_with("closed\n"));
}

/// Each update counts: output of terminals by its bytes, and others one by one.
#[test]
fn as_many_updates_are_awaited_as_were_recorded() {
    let update = |update: &str| {
        format!(r#"{{"method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
    };
    let output = |data: &str| {
        update(&format!(r#"{{"sessionUpdate":"terminal_output_chunk","terminalId":"t","data":"{data}"}}"#))
    };
    let plan = || update(r#"{"sessionUpdate":"plan","entries":[]}"#);
    let other = || r#"{"method":"_n","params":{"sessionId":"s"}}"#.to_owned();
    for (recorded, live) in [
        (vec![output("YWJjZA==")], [output("YWI="), output("Y2Q=")]),
        (vec![plan(), plan()], [plan(), plan()]),
        (vec![other(), other()], [other(), other()]),
    ] {
        let updates: String = recorded.iter().map(|line| format!("< {line}\n")).collect();
        let mut harness = client(&format!("{CANCELLED}\n{updates}> {CANCEL}"));
        let [first, second] = live;
        harness.receive(&first);
        assert!(!harness.log().contains(CANCEL), "{first}");
        harness.receive(&second);
        assert!(harness.log().contains(CANCEL), "{second}");
    }
}

/// An agent that still sends lines after its client has closed gets the time for the next one.
#[test]
fn the_last_lines_of_an_agent_are_received() {
    let mut harness = client("> {\"id\":1,\"method\":\"a\"}\n< {\"id\":1,\"result\":{}}");
    harness.at(secs(7)).receive(r#"{"id":1,"result":{}}"#);
    assert_eq!(harness.pause(), secs(2));
    harness.at(ms(8500)).receive(&chunk("s", "a"));
    assert_eq!(harness.pause(), secs(2));
    let script = "> {\"id\":1,\"method\":\"a\"}\n< {\"id\":1,\"result\":{}}\n< .\nx1";
    let mut harness = client(script);
    harness.at(secs(7)).receive(r#"{"id":1,"result":{}}"#);
    assert_eq!(harness.pause(), secs(30), "it ended by itself");
    let replay = Replay::new(recording(script)).patience(secs(1));
    let mut harness = ReplayHarness::with(replay, Side::Client);
    harness.at(secs(7)).receive(r#"{"id":1,"result":{}}"#);
    assert_eq!(harness.pause(), secs(1));
    harness.at(secs(8)).run();
    assert_eq!(harness.pause(), secs(1), "no longer than the patience");
}

/// A session of a client goes on while another one waits for its agent.
#[test]
fn sessions_of_a_client_are_independent() {
    let mut harness = client(
        r#"
        > {"id":0,"method":"_a"}
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":2,"method":"session/prompt","params":{"sessionId":"t"}}
        < {"id":2,"result":{}}
        < {"id":1,"result":{}}
        > {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":4,"method":"session/list"}
        "#,
    );
    harness.receive(r#"{"id":1,"result":{}}"#);
    let log = harness.log();
    assert!(log.contains(r#"{"id":3,"#) && !log.contains(r#"{"id":4,"#), "{log}");
    // A line of the connection may concern each of them.
    harness.receive(r#"{"id":2,"result":{}}"#);
    assert!(harness.log().contains(r#"{"id":4,"#));
}

/// A line of a session waits for the earlier responses of the connection.
#[test]
fn a_session_waits_for_the_connection() {
    let mut harness = client(
        r#"
        > {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
        > {"id":2,"method":"_a"}
        < {"id":2,"result":{}}
        > {"method":"_x","params":{"sessionId":"s"}}
        < {"id":1,"result":{}}
        "#,
    );
    assert!(!harness.log().contains("_x"));
    harness.receive(r#"{"id":2,"result":{}}"#);
    assert!(harness.log().contains("_x"));
}
