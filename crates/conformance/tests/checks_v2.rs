//! Every check of version 2 that a whole turn or a session needs can fail: for each there is an agent with one fault that
//! it finds, and that no other check takes for its own.
#![cfg(unix)]

use std::time::Duration;

use duologue_conformance::{Command, Report, Suite, Verdict};

/// An agent without a fault, unless the variable `FAULT` names one. The prompt `slow` lasts until a cancel.
const AGENT: &str = r#"
    is() { [ "$FAULT" = "$1" ]; }
    say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
    result() { say '"id":'"$id"',"result":{'"$1"'}'; }
    error() { say '"id":'"$id"',"error":{"code":'"$1"',"message":"no"}'; }
    update() { say '"method":"session/update","params":{"sessionId":"'"$session"'","update":{"sessionUpdate":'"$1"'}}'; }
    idle() { busy=; update '"state_update","state":"idle","stopReason":"'"$1"'"'; }
    text() { update '"agent_message_chunk","messageId":"m","content":{"type":"text","text":"'"$1"'"}'; }
    count=0 busy= closed= login= mode=ask
    while read -r line; do
        id=${line#*'"id":'}; id=${id%%,*}; id=${id%%\}}
        case $line in *'"sessionId":"'*) session=${line#*'"sessionId":"'}; session=${session%%'"'*} ;; esac
        case $line in
        *'"initialize"'*)
            methods='"authMethods":[{"type":"agent","methodId":"token","name":"Token"}]'
            result '"protocolVersion":2,"info":{"name":"a","version":"1"},"capabilities":{"session":{}},'"$methods" ;;
        *'"auth/login"'*)
            case $line in *'"methodId":"token"'*) login=done; result '' ;; *) error -32602 ;; esac ;;
        *'"session/new"'*)
            if is needs-login && [ -z "$login" ]; then error -32000; continue; fi
            count=$((count + 1)) closed=
            values='[{"value":"ask","name":"Ask"},{"value":"code","name":"Code"}]'
            option='{"configId":"how","name":"How","category":"mode","type":"select","currentValue":"ask","options":'$values'}'
            is no-mode && option=
            result '"sessionId":"s'$count'","configOptions":['"$option"']' ;;
        *'"session/set_config_option"'*)
            case $line in
            *'"configId":"how"'*'"type":"id"'*'"value":"code"'*) mode=code; result '"configOptions":[]' ;;
            *) error -32602 ;;
            esac ;;
        *'"session/prompt"'*)
            if is needs-mode && [ $mode = ask ]; then error -32603; continue; fi
            if [ -n "$busy" ]; then
                is silent-second && continue
                is same-id && { result '"messageId":"u'$count'"'; continue; }
                is unreported-second && { result '"messageId":"other"'; continue; }
                is accepts-second && {
                    result '"messageId":"other"'; update '"user_message","messageId":"other","content":[]'; continue
                }
                error -32600; continue
            fi
            result '"messageId":"u'$count'"'
            update '"user_message","messageId":"u'$count'","content":[]'
            busy=yes; update '"state_update","state":"running"'
            is open-call && update '"tool_call_update","toolCallId":"c","status":"in_progress"'
            text one
            case $line in *slow*) ;; *) idle end_turn ;; esac ;;
        *'"session/cancel"'*)
            [ -z "$busy" ] && continue
            is late-end && { idle end_turn; continue; }
            is odd-reason && { idle refusal; continue; }
            idle cancelled ;;
        *'"session/resume"'*)
            is forgets && { error -32002; continue; }
            is forgets-listed && { error -32002; continue; }
            case $line in
            *'"type":"start"'*) is early-state && update '"state_update","state":"idle"'
                is early-end && update '"replay_complete"'
                text one
                is early-end || is no-end || update '"replay_complete"'
                is two-ends && update '"replay_complete"' ;;
            *'"replayFrom"'*) error -32602; continue ;;
            esac
            is no-state || is early-state || update '"state_update","state":"idle"'
            result '' ;;
        *'"session/list"'*)
            is forgets-listed && { result '"sessions":[{"sessionId":"'$session'"}]'; continue; }
            result '"sessions":[]' ;;
        *'"session/close"'*)
            if [ -n "$closed" ]; then
                is second-close && { error -32603; continue; }
                is unknown-close && { error -32002; continue; }
            fi
            is refused-close && { error -32603; continue; }
            if [ -n "$busy" ] && is late-after-close; then result ''; idle cancelled; continue; fi
            [ -n "$busy" ] && idle cancelled
            closed=yes; result '' ;;
        *'"tool_call/cancel"'*) error -32602 ;;
        *'"id":'*) error -32601 ;;
        esac
    done"#;

/// A suite that waits no longer than necessary for messages that do not come, and counts each end of a turn after its
/// cancel as an end by the cancel.
fn suite(fault: &str) -> Suite {
    let script = format!("FAULT={fault}{AGENT}");
    let suite = Suite::new(move || Command::new("sh").args(["-c", &script])).protocol_v2();
    let suite = suite.waits(Duration::from_millis(10), Duration::ZERO);
    suite.prompt("go").slow_prompt("slow")
}

/// Returns the checks with a verdict, and for each the text that the report shows.
fn found(report: &Report, verdict: Verdict) -> Vec<(String, String)> {
    let results = report.results().iter().filter(|result| result.verdict() == verdict);
    results.map(|result| (result.check().name().to_owned(), result.saw().to_owned())).collect()
}

#[test]
fn an_agent_without_a_fault_passes() {
    // An agent may answer the second close with an error, and refuse or accept the second prompt.
    for fault in ["none", "unknown-close", "accepts-second"] {
        let report = suite(fault).run_blocking().unwrap();
        let skipped: Vec<_> = found(&report, Verdict::Skipped).into_iter().map(|(check, _)| check).collect();
        assert_eq!(skipped, ["permission-request"], "{fault}");
        assert!(report.passed(), "{fault}: {}", report.to_text());
        assert_eq!(found(&report, Verdict::Warn), [], "{fault}");
    }
}

/// An agent may forget a session that is closed, but not one that it lists.
#[test]
fn a_closed_session_that_is_not_listed_need_not_be_resumed() {
    let run = |fault| suite(fault).run_blocking().unwrap();
    let report = run("forgets");
    assert!(report.passed(), "{}", report.to_text());
    let skipped = found(&report, Verdict::Skipped);
    let skipped: Vec<_> =
        skipped.iter().filter(|(_, saw)| saw.contains("keeps no closed sessions")).collect();
    assert_eq!(skipped.len(), 4, "{skipped:?}");
    let faults = found(&run("forgets-listed"), Verdict::Fail);
    assert!(faults.iter().any(|(check, _)| check == "resume"), "{faults:?}");
}

#[test]
fn every_fault_is_found_by_its_check() {
    for (fault, check, saw) in [
        ("silent-second", "second-prompt", "no answer to a prompt in the turn of another one, and a cancel"),
        ("same-id", "second-prompt", "both prompts are answered with the message id \"u"),
        ("unreported-second", "second-prompt", "its message was not sent"),
        ("late-end", "cancel-ends-turn", "the turn ended with \"end_turn\" 0 s after the cancel"),
        ("odd-reason", "cancel-ends-turn", "the turn ended with \"refusal\" 0 s after the cancel"),
        ("open-call", "cancel-ends-turn", "the tool call \"c\" is open after the cancelled turn"),
        ("no-state", "resume-state", "no state came before the answer"),
        ("early-state", "resume-state", "no state came behind the replay and before the answer"),
        ("early-end", "resume-replays", "a message came behind `replay_complete`"),
        ("no-end", "resume-replays", "no `replay_complete` came before the answer"),
        ("two-ends", "resume-replays", "`replay_complete` came 2 times"),
        ("refused-close", "close-answers", "answered with error -32603"),
        ("second-close", "close-twice", "the second close is answered with error -32603"),
        ("late-after-close", "nothing-after-close", "`state_update` came after the answer"),
    ] {
        let suite = match fault {
            "silent-second" => suite(fault).timeout(Duration::from_secs(2)),
            // The wait ends with the first message that must not come.
            "late-after-close" => {
                let patient = suite(fault).waits(Duration::from_secs(30), Duration::ZERO);
                patient.only(["close-answers", check]).unwrap()
            }
            _ => suite(fault),
        };
        let report = suite.run_blocking().unwrap();
        let mut faults = found(&report, Verdict::Fail);
        faults.extend(found(&report, Verdict::Warn));
        assert_eq!(faults.len(), 1, "{fault}: {faults:?}");
        assert!(faults[0].0 == check && faults[0].1.contains(saw), "{fault}: {faults:?}");
    }
}

#[test]
fn the_mode_is_a_config_option() {
    let only = ["prompt-answered", "stop-reason"];
    let run = |suite: Suite| suite.only(only).unwrap().run_blocking().unwrap();
    assert_eq!(found(&run(suite("needs-mode").mode("code")), Verdict::Pass).len(), 2);
    let without = run(suite("needs-mode"));
    assert!(found(&without, Verdict::Pass).is_empty(), "{}", without.to_text());
    let skipped = |suite: Suite, saw: &str| {
        let skipped = found(&run(suite), Verdict::Skipped);
        assert!(skipped.len() == 2 && skipped[0].1.contains(saw), "{skipped:?}");
    };
    skipped(suite("none").mode("plan"), "the mode plan is answered with error -32602");
    skipped(suite("no-mode").mode("code"), "the agent has no config option of the category `mode`");
}

#[test]
fn the_login_is_that_of_version_2() {
    let only = ["prompt-answered", "stop-reason"];
    let run = |suite: Suite| suite.only(only).unwrap().run_blocking().unwrap();
    assert_eq!(found(&run(suite("needs-login").login("token")), Verdict::Pass).len(), 2);
    let without = found(&run(suite("needs-login")), Verdict::Skipped);
    assert!(without.len() == 2 && without[0].1.contains("set its method (token)"), "{without:?}");
    let wrong = run(suite("needs-login").login("password"));
    let wrong: Vec<_> = wrong.results().iter().map(|result| result.saw().to_owned()).collect();
    assert!(wrong[0].contains("auth/login is answered with error -32602"), "{wrong:?}");
}
