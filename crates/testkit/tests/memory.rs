//! The mock agent and faults in memory, in the process of a test.
#![cfg(feature = "mock")]

use std::time::Duration;

use duologue_rpc::Transport;
use duologue_testkit::{Faults, MockAgent, ScriptedPeer};
use serde_json::{Value, json};
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
async fn an_agent_that_is_spawned_again_has_its_sessions() {
    let agent = MockAgent::new();
    let mut first = ScriptedPeer::over(agent.spawn().unwrap());
    first.initialize(json!({})).await;
    let session = first.new_session().await;
    turn(&mut first, &session, "hello").await;
    drop(first);

    let mut second = ScriptedPeer::over(agent.spawn().unwrap());
    second.initialize(json!({})).await;
    assert_ne!(second.new_session().await, session);
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let id = second.send_request("session/load", params).await;
    let mut texts = Vec::new();
    loop {
        let message = in_time(second.next_message()).await;
        if message["id"] == id {
            assert!(message["result"].is_object(), "{message}");
            break;
        }
        texts.extend(message["params"]["update"]["content"]["text"].as_str().map(str::to_owned));
    }
    assert!(texts.contains(&"hello".to_owned()), "{texts:?}");
}

#[test]
fn an_empty_list_has_no_faults() {
    for spec in ["", " "] {
        assert_eq!(spec.parse::<Faults>().unwrap().to_string(), "");
    }
    assert!("noise,".parse::<Faults>().is_err());
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

/// Returns the updates of a turn, and the result of its prompt.
async fn turn(client: &mut ScriptedPeer, session: &str, text: &str) -> (Vec<Value>, Value) {
    let id = client.prompt(session, text).await;
    let mut updates = Vec::new();
    loop {
        let mut message = in_time(client.next_message()).await;
        match message["method"].as_str() {
            Some("session/update") => updates.push(message["params"]["update"].take()),
            // Some clients answer no request that they do not know.
            Some(_) => {}
            None => {
                assert_eq!(message["id"], id, "{message}");
                return (updates, message["result"].take());
            }
        }
    }
}

/// Returns the joined texts of the chunks of a kind.
fn text(updates: &[Value], kind: &str) -> String {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == kind);
    chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
}

#[tokio::test]
async fn a_thought_stays_a_thought_for_a_client_that_cannot_clear() {
    let (mut client, session) = mock().await;
    let (updates, _) = turn(&mut client, &session, "clear").await;
    assert!(text(&updates, "agent_thought_chunk").ends_with("A better thought."), "{updates:?}");
    assert!(!text(&updates, "agent_message_chunk").contains("thought"), "{updates:?}");
}

/// Clients prefer the option and hide the modes.
#[tokio::test]
async fn modes_and_the_option_for_them_have_the_same_value() {
    let mut client = ScriptedPeer::over(MockAgent::new().spawn().unwrap());
    let initialized = client.initialize(json!({})).await["result"].take();
    assert_eq!(initialized["agentInfo"]["name"], "duologue-mock", "{initialized}");
    let setup =
        client.request("session/new", json!({"cwd": "/work", "mcpServers": []})).await["result"].take();
    let option = |options: &Value| {
        let options = options.as_array().expect("options");
        options.iter().find(|option| option["category"] == "mode").expect("an option for the mode").clone()
    };
    assert_eq!(option(&setup["configOptions"])["currentValue"], setup["modes"]["currentModeId"]);
    let ids = |list: &Value, id: &str| -> Vec<Value> {
        list.as_array().expect("a list").iter().map(|item| item[id].clone()).collect()
    };
    let values = ids(&option(&setup["configOptions"])["options"], "value");
    assert_eq!(values, ids(&setup["modes"]["availableModes"], "id"));

    let session = setup["sessionId"].as_str().expect("an id").to_owned();
    assert_eq!(client.next_message().await["params"]["update"]["sessionUpdate"], "available_commands_update");
    client.send_request("session/set_mode", json!({"sessionId": session, "modeId": "code"})).await;
    let update = client.expect("session/update").await["params"]["update"].take();
    assert_eq!(update["sessionUpdate"], "config_option_update");
    assert_eq!(option(&update["configOptions"])["currentValue"], "code");
    assert_eq!(client.next_message().await["result"], json!({}));

    let params = json!({"sessionId": session, "configId": "mode", "value": "plan"});
    client.send_request("session/set_config_option", params).await;
    let update = client.expect("session/update").await["params"]["update"].take();
    assert_eq!(update, json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"}));
    let answer = client.next_message().await;
    assert_eq!(option(&answer["result"]["configOptions"])["currentValue"], "plan");
    let params = json!({"sessionId": session, "configId": "mode", "value": "chaos"});
    assert_eq!(client.request("session/set_config_option", params).await["error"]["code"], -32602);

    let (updates, _) = turn(&mut client, &session, "modes").await;
    let modes = updates.iter().filter_map(|update| update["currentModeId"].as_str());
    let options = updates.iter().filter(|update| update["sessionUpdate"] == "config_option_update");
    let options = options.map(|update| option(&update["configOptions"])["currentValue"].clone());
    assert_eq!(modes.collect::<Vec<_>>(), options.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_answers_does_not_stop_the_mock() {
    let (mut client, session) = mock().await;
    let (updates, result) = turn(&mut client, &session, "extension").await;
    assert_eq!(result["stopReason"], "end_turn");
    assert!(text(&updates, "agent_message_chunk").contains("You did not answer within 5 s"), "{updates:?}");
}

#[tokio::test]
async fn a_prompt_that_a_client_wraps_in_tags_plays_its_scenario() {
    let (mut client, session) = mock().await;
    let prompt = "<previous_user_message>hello</previous_user_message>\n<user_query>\nplan\n</user_query>";
    let (updates, _) = turn(&mut client, &session, prompt).await;
    assert!(updates.iter().any(|update| update["sessionUpdate"] == "plan"), "{updates:?}");
}

/// The updates of the mode reach clients that show modes and those that show options, in one step.
#[tokio::test]
async fn the_mode_and_its_option_stay_in_step() {
    let mut client = ScriptedPeer::over(MockAgent::new().spawn().unwrap());
    client.initialize(json!({"session": {"configOptions": {"boolean": {}}}})).await;
    let setup = client.request("session/new", json!({"cwd": "/", "mcpServers": []})).await["result"].clone();
    assert_eq!(setup["modes"]["currentModeId"], "ask", "{setup}");
    let current = |options: &Value| {
        let options = options.as_array().cloned().unwrap_or_default();
        options.iter().find(|option| option["id"] == "mode").map(|option| option["currentValue"].clone())
    };
    assert_eq!(current(&setup["configOptions"]), Some(json!("ask")), "{setup}");
    let params = json!({"sessionId": setup["sessionId"], "configId": "mode", "value": "code"});
    let id = client.send_request("session/set_config_option", params).await;
    let mut modes = Vec::new();
    let answer = loop {
        let message = in_time(client.next_message()).await;
        if message["id"] == id {
            break message;
        }
        modes.extend(message["params"]["update"]["currentModeId"].as_str().map(str::to_owned));
    };
    assert_eq!(modes, ["code"]);
    assert_eq!(current(&answer["result"]["configOptions"]), Some(json!("code")), "{answer}");
}

#[tokio::test]
async fn the_task_stream_sends_its_output_in_chunks() {
    let mut client = ScriptedPeer::over(MockAgent::new().spawn().unwrap());
    client.initialize(json!({"_meta": {"duologue": {"agentId": "c1c1", "envelope": {"v": [1]}}}})).await;
    let session = client.new_session().await;
    let envelope = json!({"v": 1, "id": "t1", "from": "c1c1", "to": "6d6f636b", "ts": 1, "kind": "delegate",
        "ref": null, "payload": {"task": "stream"}});
    let params = json!({"sessionId": session, "envelope": envelope});
    client.send_request("_session/delegate", params).await;
    let mut chunks = Vec::new();
    loop {
        let message = in_time(client.next_message()).await;
        let payload = &message["params"]["envelope"]["payload"];
        match message["method"].as_str() {
            Some("_session/result") => break,
            Some("_session/notify") if payload["topic"] == "task.output" => {
                chunks.push(payload["data"].clone())
            }
            _ => assert!(message.get("error").is_none(), "{message}"),
        }
    }
    let expected = [
        json!({"position": 0, "complete": false, "chunk": "The kitchen "}),
        json!({"position": 1, "complete": false, "chunk": "is painted "}),
        json!({"position": 2, "complete": true, "chunk": "now."}),
    ];
    assert_eq!(chunks, expected);
}
