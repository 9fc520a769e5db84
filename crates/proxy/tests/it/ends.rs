//! The end of a connection.

use std::time::Duration;

use duologue_client::{AgentProcess, Command};
use duologue_proxy::{Decision, Proxy, ProxyStage, Side, StageLink, Transport};
use duologue_test_support::{ScriptedPeer, in_time};
use serde_json::{Value, json};

use crate::setup::{Log, Place, Watching, in_every_place};

in_every_place!(
    the_end_of_each_side_reaches_the_other,
    handles_of_stages_know_the_end,
    a_message_after_a_line_without_an_end_is_a_line_of_its_own,
);

/// Sends a notification to the other side when one ends.
struct SaysGoodbye;

impl ProxyStage for SaysGoodbye {
    fn ended(&mut self, side: Side, link: &mut StageLink<'_>) {
        link.notify(side.other(), "_bye", &json!({})).unwrap();
    }
}

mod tests {
    use super::*;

    pub(super) async fn the_end_of_each_side_reaches_the_other(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Watching("", Log::default())));
        client.notify("_last", json!({})).await;
        client.close().await;
        agent.expect("_last").await;
        assert_eq!(agent.next_line().await, None);
        // The agent may go on.
        agent.notify("_later", json!({})).await;
        client.expect("_later").await;
        agent.close().await;
        assert_eq!(client.next_line().await, None);
    }

    pub(super) async fn a_message_after_a_line_without_an_end_is_a_line_of_its_own(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(SaysGoodbye));
        agent.write("no end").await;
        agent.close().await;
        assert_eq!(client.next_line().await.as_deref(), Some("no end"));
        client.expect("_bye").await;
        assert_eq!(client.next_line().await, None);
    }

    pub(super) async fn handles_of_stages_know_the_end(place: Place) {
        let (send, handle) = std::sync::mpsc::channel();
        let proxy = Proxy::new().on_client_message(move |_, link| {
            let _ = send.send(link.handle());
            Decision::Pass
        });
        let (mut client, mut agent) = place.peers(proxy);
        client.notify("_a", json!({})).await;
        agent.expect("_a").await;
        let handle = handle.recv().unwrap();
        handle.run(|link| link.notify(Side::Client, "_b", &json!({})).unwrap()).unwrap();
        handle.run(|link| link.notify(Side::Agent, "_c", &json!({})).unwrap()).unwrap();
        handle.run(|_| panic!("on purpose")).unwrap();
        client.expect("_b").await;
        agent.expect("_c").await;
        drop((client, agent));
        while handle.run(|_| {}).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The agent may finish what it owes, and is then left.
#[tokio::test(start_paused = true)]
async fn a_silent_agent_is_left_once_it_owes_nothing() {
    let ((client, near), (far, agent)) = (Transport::memory(), Transport::memory());
    let (mut client, mut agent) = (ScriptedPeer::over(client), ScriptedPeer::over(agent));
    let run = tokio::spawn(Proxy::new().stage(Watching("", Log::default())).run(near, far));
    client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "_slow"})).await;
    client.close().await;
    let request = agent.expect("_slow").await;
    assert_eq!(agent.next_line().await, None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!run.is_finished(), "it owes a response");
    agent.respond(&request, json!({})).await;
    assert_eq!(client.next_message().await["id"], 1);
    let before = tokio::time::Instant::now();
    run.await.unwrap().unwrap();
    let silence = before.elapsed();
    assert!((1..5).contains(&silence.as_secs()), "{silence:?}");
}

/// An agent that has closed its input may still speak.
#[tokio::test]
async fn an_agent_that_reads_no_more_may_write() {
    let ((client, near), (far, agent)) = (Transport::memory(), Transport::memory());
    let mut client = ScriptedPeer::over(client);
    let (reader, writer) = agent.into_split();
    drop(reader);
    let mut agent = ScriptedPeer::new(tokio::io::empty(), writer);
    let run = tokio::spawn(Proxy::new().run(near, far));
    in_time(async {
        client.notify("_nobody", json!({})).await;
        client.notify("_reads", json!({})).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        agent.notify("_still", json!({})).await;
        client.expect("_still").await;
        agent.close().await;
        run.await.unwrap().unwrap();
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_child_process_is_an_agent() {
    // It answers each line with the line, and says when its input ends.
    let script = "while read -r line; do printf '%s\\n' \"$line\"; done; echo '{\"jsonrpc\":\"2.0\",\"method\":\"_end\"}'";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]);
    let (process, pipes) = AgentProcess::start(Command::from(command)).unwrap();
    let agent = Transport::new(pipes.stdout, pipes.stdin).writes_at_once();
    let (client, near) = Transport::memory();
    let proxy = Proxy::new().on_agent_message(|message, _| match message.method() {
        Some("_twice") => message.with_params(&json!({"changed": true})),
        _ => Decision::Pass,
    });
    let run = tokio::spawn(proxy.run(near, agent));
    let mut client = ScriptedPeer::over(client);
    in_time(async {
        client.notify("_once", json!({"a": 1})).await;
        assert_eq!(client.expect("_once").await["params"], json!({"a": 1}));
        client.notify("_twice", json!({})).await;
        assert_eq!(client.expect("_twice").await["params"], json!({"changed": true}));
        client.close().await;
        client.expect("_end").await;
        assert_eq!(client.read_to_end().await, Vec::<Value>::new());
        run.await.unwrap().unwrap();
        assert!(process.end().await.unwrap().success());
    })
    .await;
}
