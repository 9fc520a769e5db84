//! Rule 9, and rules 2, 3 and 7 once more, with an agent that is a process of its own.

use std::process::Stdio;
use std::time::Duration;

use duologue_client::{Client, Command, Connection, Error, StopReason};
use serde_json::json;

use duologue_test_support::{ScriptedPeer, in_time, texts};

const AGENT: &str = env!("CARGO_BIN_EXE_rules-agent");

async fn agent() -> Connection {
    Client::new(()).spawn(Command::new(AGENT)).await.expect("an agent")
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_9_what_an_agent_and_its_children_print_is_not_on_the_wire() {
    in_time(async {
        let agent = agent().await;
        let turns = (0..6).map(|_| {
            let agent = agent.clone();
            tokio::spawn(async move {
                let session = agent.new_session("/tmp").await.expect("a session");
                for _ in 0..2 {
                    let mut turn = session.prompt("print").await.expect("a turn");
                    let mut expected: Vec<String> = (0..50).map(|round| format!("{round} ")).collect();
                    expected.extend(["child true ".into(), "eaten 0 ".into()]);
                    assert_eq!(texts(&mut turn).await, expected);
                    assert!(turn.outcome().await.is_ok());
                }
            })
        });
        for turn in futures::future::join_all(turns).await {
            turn.expect("a whole turn");
        }
        // Only the banner was printed before the conversation began.
        assert_eq!(agent.peer().recent_noise(), ["a banner before the conversation"]);
        let status = agent.close().await.expect("a status");
        assert!(status.success(), "{status}");
        for printed in ["and half of another", "debugging output 49", "from a child", "half a line", "eaten"]
        {
            // The pipe may be read a little later than the process ends.
            while !agent.stderr().contains(printed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_2_and_3_hold_for_a_process() {
    in_time(async {
        let agent = agent().await;
        let turns = (0..16).map(|_| {
            let agent = agent.clone();
            tokio::spawn(async move {
                let session = agent.new_session("/tmp").await.expect("a session");
                let mut turn = session.prompt("count 625").await.expect("a turn");
                let expected: Vec<String> = (0..625).map(|number| format!("{number} ")).collect();
                assert_eq!(texts(&mut turn).await, expected);
                assert_eq!(turn.outcome().await.expect("an answer").stop_reason, StopReason::EndTurn);
            })
        });
        for turn in futures::future::join_all(turns).await {
            turn.expect("every turn in order");
        }
        agent.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_7_holds_for_a_process() {
    in_time(async {
        let agent = agent().await;
        let session = agent.new_session("/tmp").await.expect("a session");
        for _ in 0..20 {
            for (text, code) in [("panic", -32603), ("fail", -32602), ("count many", -32603)] {
                let outcome = session.prompt(text).await.expect("a turn").outcome().await;
                let Err(Error::Response(error)) = outcome else { panic!("{text}: {outcome:?}") };
                assert_eq!(error.code.0, code, "{text}");
            }
        }
        let mut hanging = session.prompt("hang").await.expect("a turn");
        hanging.cancel();
        assert_eq!(hanging.outcome().await.expect("an answer").stop_reason, StopReason::Cancelled);
        // The process dies with a turn running: the waiting caller gets an error with its last stderr lines.
        let mut waiting = session.prompt("hang").await.expect("a turn");
        agent.kill();
        let outcome = waiting.outcome().await;
        assert!(
            matches!(&outcome, Err(Error::AgentExited(exited)) if exited.stderr.contains("as I was told"))
        );
        assert!(matches!(session.prompt("more").await, Err(Error::AgentExited(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_7_a_process_answers_what_is_open_and_ends_with_its_input() {
    in_time(async {
        let mut child = tokio::process::Command::new(AGENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("an agent");
        let mut client =
            ScriptedPeer::new(child.stdout.take().expect("stdout"), child.stdin.take().expect("stdin"));
        assert_eq!(client.next_line().await.as_deref(), Some("a banner before the conversation"));
        client.initialize(json!({})).await;
        let session = client.new_session().await;
        let hanging = client.prompt(&session, "hang").await;
        // A last line without its end is a line.
        client.write(r#"{"jsonrpc":"2.0","id":"last","method":"_nobody"}"#).await;
        client.close().await;
        let rest = client.read_to_end().await;
        assert_eq!(rest.len(), 2, "{rest:?}");
        assert!(rest.iter().any(|answer| answer["id"] == "last" && answer["error"]["code"] == -32601));
        assert!(
            rest.iter()
                .any(|answer| answer["id"] == hanging && answer["result"]["stopReason"] == "cancelled")
        );
        let status = tokio::time::timeout(Duration::from_secs(5), child.wait()).await.expect("it ends");
        assert!(status.expect("a status").success());
    })
    .await;
}
