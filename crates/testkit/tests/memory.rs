//! The mock agent and faults in memory, in the process of a test.
#![cfg(feature = "mock")]

use std::time::Duration;

use duologue_rpc::Transport;
use duologue_testkit::{Faults, MockAgent, ScriptedPeer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Waits for a future, but not for ever.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("this hangs")
}

/// Returns the mock agent, initialized and with a session, and the id of the session.
async fn mock() -> (ScriptedPeer, String) {
    let mut client = ScriptedPeer::over(MockAgent::new().spawn().unwrap());
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    (client, session)
}

#[tokio::test]
async fn a_crash_in_memory_closes_the_connection_and_not_the_process() {
    let (mut client, session) = mock().await;
    client.prompt(&session, "crash").await;
    let rest = in_time(client.read_to_end()).await;
    assert!(rest.iter().all(|message| message["method"] == "session/update"), "{rest:?}");
    assert!(rest.iter().any(|message| message.to_string().contains("happen")), "{rest:?}");

    let (mut client, session) = mock().await;
    let envelope = json!({"v": 1, "id": "e1", "from": "c1c1", "to": "6d6f636b", "ts": 1, "kind": "query",
        "ref": null, "payload": {"question": "crash"}});
    client.send_request("_session/query", json!({"sessionId": session, "envelope": envelope})).await;
    let rest = in_time(client.read_to_end()).await;
    assert!(rest.iter().all(|message| message["method"] == "session/update"), "{rest:?}");
}

#[tokio::test]
async fn fragments_arrive_one_by_one_on_a_runtime_of_one_thread() {
    let agent = MockAgent::new().spawn().unwrap();
    let (mut reader, mut writer) = "fragment=7".parse::<Faults>().unwrap().apply(agent).unwrap().into_split();
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}});
    writer.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    let (mut line, mut largest, mut buffer) = (Vec::new(), 0, vec![0; 4096]);
    while !line.ends_with(b"\n") {
        let count = in_time(reader.read(&mut buffer)).await.unwrap();
        largest = largest.max(count);
        line.extend_from_slice(&buffer[..count]);
    }
    assert!(line.len() > 400, "{}", line.len());
    assert_eq!(largest, 7);
}

#[tokio::test]
async fn lines_of_the_agent_that_are_no_messages_are_passed_on() {
    let (agent, from_agent) = Transport::memory();
    let (_, mut to_faults) = agent.into_split();
    let (mut reader, _writer) = "slow=1ms".parse::<Faults>().unwrap().apply(from_agent).unwrap().into_split();
    let text = b"a log line\n\ncaf\xe9 in Latin-1\n42\n[]\n{\"jsonrpc\":\"2.0\",\"method\":\"_x\"}\n";
    to_faults.write_all(text).await.unwrap();
    to_faults.shutdown().await.unwrap();
    let mut received = Vec::new();
    in_time(reader.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, text, "{}", String::from_utf8_lossy(&received));
}
