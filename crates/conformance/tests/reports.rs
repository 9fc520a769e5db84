//! The suite as an agent author uses it, and its three reports.

use std::time::Duration;

use duologue_conformance::{Command, Error, Meta, Suite, Verdict, checks};
use duologue_test_support::in_time;

/// An agent that answers every request with an error, in a shell.
fn refusing_agent() -> Command {
    let script = r#"while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"<no> & \\u001b[0m\"}}"
    done"#;
    Command::new("sh").args(["-c", script])
}

#[cfg(unix)]
#[test]
fn a_failure_is_in_every_report() {
    let suite = Suite::new(refusing_agent).only(["initialize-answers", "unknown-method", "lines"]).unwrap();
    let report = suite.run_blocking().unwrap();
    assert!(!report.passed());
    assert_eq!(report.results()[0].verdict(), Verdict::Fail);
    assert_eq!(report.summary().fail, 1);

    assert!(report.results()[0].records().iter().any(|record| record.line().is_some()));

    let text = report.to_text();
    assert!(text.contains("✗ initialize-answers") && text.contains("1 failed"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");

    let rows: Vec<serde_json::Value> =
        report.to_json_lines().lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows[0]["check"], "initialize-answers");
    assert_eq!(rows.last().unwrap()["summary"]["fail"], 1);

    let xml = report.to_junit();
    assert!(xml.contains("<testsuite name=\"handshake\" tests=\"1\" failures=\"1\""), "{xml}");
    assert!(xml.contains("<testcase name=\"initialize-answers\" classname=\"handshake\""), "{xml}");
    assert!(xml.contains("&lt;no&gt; &amp; "), "{xml}");
    assert!(xml.contains("<skipped message=\"because initialize-answers failed"), "{xml}");
    assert!(!xml.contains('\u{1b}'), "{xml}");
}

#[cfg(unix)]
#[test]
#[should_panic(expected = "the agent does not conform")]
fn a_failure_fails_the_test() {
    let suite = Suite::new(refusing_agent).only(["initialize-answers"]).unwrap();
    suite.run_blocking().unwrap().assert_passed();
}

#[test]
fn an_agent_that_cannot_be_started_is_an_error() {
    let error = Suite::new(|| Command::new("/no/such/agent")).run_blocking().unwrap_err();
    assert!(matches!(error, Error::Start(_)), "{error}");
}

#[test]
fn an_unknown_check_is_an_error() {
    let error = Suite::new(refusing_agent).only(["no-such-check"]).err().unwrap();
    assert!(matches!(&error, Error::UnknownCheck(name) if name == "no-such-check"), "{error}");
}

#[test]
fn names_of_checks_are_unique_and_groups_are_contiguous() {
    let mut names: Vec<_> = checks().map(|check| check.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let mut groups: Vec<_> = checks().map(|check| check.group()).collect();
    groups.dedup();
    let listed = groups.len();
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups.len(), listed);
}

/// An agent that answers one request, and then that request again and again, with this id.
#[cfg(unix)]
fn repeating_agent(id: &str) -> Suite {
    let script = format!(
        r#"read -r line; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        yes '{{"jsonrpc":"2.0","id":{id},"result":{{}}}}' | head -n 30000; cat > /dev/null"#
    );
    let suite = Suite::new(move || Command::new("sh").args(["-c", &script]));
    suite.timeout(Duration::from_secs(1))
}

#[cfg(unix)]
#[tokio::test]
async fn repeated_responses_are_examined_once() {
    for (id, checks, verdict) in
        [("1", &["one-answer"][..], Verdict::Fail), ("null", &["one-answer", "answer-id"], Verdict::Skipped)]
    {
        let report = in_time(repeating_agent(id).only(checks).unwrap().run()).await.unwrap();
        let result = report.results().iter().find(|result| result.check().name() == "one-answer").unwrap();
        assert_eq!(result.verdict(), verdict, "{}", report.to_text());
    }
}

/// An agent that answers `initialize` with this result, and all other requests with an error of this code.
#[cfg(unix)]
fn failing_agent(initialize: &str, code: i32) -> Suite {
    let script = format!(
        r#"while read -r line; do
            id=${{line#*\"id\":}}; id=${{id%%,*}}
            case $line in *'"initialize"'*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,"'{initialize}}}';;
            *) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{{\"code\":{code},\"message\":\"no\"}}}}";;
            esac
        done"#
    );
    Suite::new(move || Command::new("sh").args(["-c", &script]))
}

#[cfg(unix)]
#[test]
fn a_dead_agent_does_not_pass_even_if_all_checks_are_skipped() {
    let dead = failing_agent(r#""error":{"code":-32603,"message":"dead"}"#, -32601);
    let report = dead.only(["cancel"]).unwrap().run_blocking().unwrap();
    assert_eq!(report.summary().fail, 0);
    assert!(!report.passed());
}

#[cfg(unix)]
#[test]
#[should_panic(expected = "`Suite::login`")]
fn an_agent_that_requires_a_login_is_not_tested_without_one() {
    let locked =
        failing_agent(r#""result":{"protocolVersion":1,"authMethods":[{"id":"key","name":"Key"}]}"#, -32000);
    let report = locked.only(["session-new", "cancel"]).unwrap().run_blocking().unwrap();
    assert_eq!(report.summary().fail, 0, "{}", report.to_text());
    assert!(!report.passed() && report.untested().is_some());
    report.assert_passed();
}

/// The prompt of the check is sent again, and this agent accepts it once in its life.
#[cfg(unix)]
#[test]
fn a_permission_prompt_that_fails_is_not_one_without_a_permission() {
    let script = r#"while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case $line in
        *'"initialize"'*) answer='"result":{"protocolVersion":1}';;
        *'"session/new"'*) answer='"result":{"sessionId":"s"}';;
        *'"clean up"'*) answer='"error":{"code":-32603,"message":"nothing is left to clean up"}';;
        *) answer='"result":{"stopReason":"end_turn"}';;
        esac
        echo "{\"jsonrpc\":\"2.0\",\"id\":$id,$answer}"
    done"#;
    let suite = Suite::new(move || Command::new("sh").args(["-c", script]));
    let suite = suite.only(["permission-cancelled"]).unwrap().permission_prompt("clean up");
    let report = suite.run_blocking().unwrap();
    let saw = report.results()[0].saw();
    assert!(
        saw.contains("failed before it asked for permission: error -32603 (nothing is left to clean up)"),
        "{saw}"
    );
}

/// An agent that logs in with the key `right` in the `_meta` of the request.
#[cfg(unix)]
fn locked_agent() -> Suite {
    let script = r#"while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case $line in
        *'"initialize"'*) answer='"result":{"protocolVersion":1,"authMethods":[{"id":"key","name":"Key"}]}';;
        *'"authenticate"'*'"right"'*) open=1; answer='"result":{}';;
        *'"authenticate"'*) answer='"error":{"code":-32603,"message":"Internal error","data":{"detail":"the key is missing"}}';;
        *) if [ "$open" ]; then answer='"result":{"sessionId":"s"}'; else answer='"error":{"code":-32000,"message":"log in"}'; fi;;
        esac
        echo "{\"jsonrpc\":\"2.0\",\"id\":$id,$answer}"
    done"#;
    Suite::new(move || Command::new("sh").args(["-c", script])).only(["session-new"]).unwrap()
}

#[cfg(unix)]
#[test]
fn a_check_that_fails_because_of_its_login_names_the_cause() {
    let report = locked_agent().login("key").run_blocking().unwrap();
    let saw = report.results()[0].saw();
    assert!(
        saw.contains("authenticate is answered with error -32603") && saw.contains("the key is missing"),
        "{saw}"
    );
    let meta = Meta::from_iter([("key", "right")]);
    locked_agent().login("key").login_meta(meta).run_blocking().unwrap().assert_passed();
}

#[cfg(unix)]
#[test]
fn checks_without_sessions_need_no_login() {
    let locked = failing_agent(r#""result":{"protocolVersion":1}"#, -32000);
    locked.only(["initialize-answers"]).unwrap().run_blocking().unwrap().assert_passed();
}

#[cfg(unix)]
#[test]
fn a_later_process_that_does_not_answer_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    // Each process of the agent adds a line. Only the first one answers.
    let script = format!(
        r#"echo >> '{0}'; read -r line
        if [ $(wc -l < '{0}') = 1 ]; then result='"result":{{"protocolVersion":1}}'
        else result='"error":{{"code":-32603,"message":"no seats left"}}'; fi
        echo "{{\"jsonrpc\":\"2.0\",\"id\":1,$result}}"; cat > /dev/null"#,
        count.display()
    );
    let suite = Suite::new(move || Command::new("sh").args(["-c", &script]));
    let report = suite.only(["handshake", "cancel"]).unwrap().run_blocking().unwrap();
    assert_eq!(report.results()[0].verdict(), Verdict::Pass, "{}", report.to_text());
    assert_eq!(report.summary().fail, 1, "{}", report.to_text());
    let failed = report.results().iter().find(|result| result.verdict() == Verdict::Fail).unwrap();
    assert!(
        failed.saw().contains("a later process") && failed.saw().contains("no seats left"),
        "{}",
        failed.saw()
    );
}
