//! The agent's launcher exits while the agent runs, though the client keeps its pipes open.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, set_child_subreaper, wait};

use super::trees::GUARDED;
use duologue_test_support::{ScriptedPeer, sent_away};

/// Runs an agent whose launcher exits during a turn. Returns the client, the prompt's id, and the agent's status if it ended in
/// time.
async fn launcher_leaves(flavor: &str, within: Duration) -> (ScriptedPeer, u64, Option<i32>) {
    let mut launcher = tokio::process::Command::new("bash");
    let launcher = launcher.args(["-c", r#""$@" <&0 & wait"#, "launcher", GUARDED, flavor]);
    let mut launcher =
        launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the launcher starts");
    let (stdout, stdin) = (launcher.stdout.take().expect("stdout"), launcher.stdin.take().expect("stdin"));
    let mut client = ScriptedPeer::new(stdout, stdin);
    client.initialize(serde_json::json!({})).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "say:3 cancelled").await;
    for _ in 0..3 {
        client.expect("session/update").await;
    }
    launcher.kill().await.expect("it lives");
    // The only child that is left to this process.
    let left = tokio::task::spawn_blocking(move || {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some((_, status)) = wait(WaitOptions::NOHANG).expect("a child") {
                return Some(status.exit_status().expect("not killed"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    });
    (client, prompt, left.await.expect("no panic"))
}

/// In order, with every answer. One that serves a transport is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_its_agent_along() {
    if sent_away("processes::launcher::takes_its_agent_along").await {
        return;
    }
    // The agent is left to us, and tells us how it ends.
    set_child_subreaper(Some(rustix::process::getpid())).expect("Linux");
    for flavor in ["one", "many"] {
        let (mut client, prompt, left) = launcher_leaves(flavor, Duration::from_secs(6)).await;
        assert_eq!(left, Some(0), "{flavor}");
        let rest = client.read_to_end().await;
        assert_eq!(rest.len(), 1, "{flavor}: {rest:?}");
        assert_eq!((&rest[0]["id"], &rest[0]["result"]["stopReason"]), (&prompt.into(), &"cancelled".into()));
    }
    let (mut client, _, left) = launcher_leaves("free", Duration::from_millis(2500)).await;
    assert_eq!(left, None);
    client.probe().await;
    client.close().await;
    let left = tokio::task::spawn_blocking(|| wait(WaitOptions::empty()).expect("a child")).await;
    assert_eq!(left.expect("no panic").and_then(|(_, status)| status.exit_status()), Some(0));
}
