//! Messages between agents that pass through the hub.

use std::path::Path;

use duologue_client::Command;
use duologue_hub::{Abilities, Hub, HubSettings, OwnerInput, OwnerSettings};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::hub::{RawClient, settings, traced};
use crate::scenarios::{Fixture, able, key};

/// A client that handles everything.
fn speaking() -> Abilities {
    let mut abilities = able();
    (abilities.envelopes, abilities.dialogues, abilities.work) = (true, true, true);
    abilities
}

fn envelope(id: &str, kind: &str, reference: Option<&str>, payload: &Value) -> Value {
    let envelope = json!({
        "v": 1, "id": id, "from": "aa", "to": "", "ts": 7, "kind": kind, "ref": reference, "payload": payload,
    });
    json!({"sessionId": "s", "envelope": envelope})
}

fn request(id: u64, kind: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": format!("_session/{kind}"), "params": params})
}

fn notification(kind: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("_session/{kind}"), "params": params})
}

/// Returns the methods of the frames of a client.
fn methods(it: &Fixture, client: &str, abilities: Abilities) -> Vec<String> {
    let frames = it.frames(client, abilities);
    frames.iter().filter_map(|frame| Some(frame["method"].as_str()?.to_owned())).collect()
}

/// Client `a` has delegated a task, which runs. Client `b` is the host.
fn delegated() -> Fixture {
    let mut it = Fixture::new();
    it.attach("a", speaking());
    it.attach("b", speaking());
    it.client("a", &request(1, "delegate", &envelope("d", "delegate", None, &json!({"task": "t"}))));
    let call = it.last_to_agent()["id"].clone();
    let ack = envelope("k", "ack", Some("d"), &json!({"accepted": true}));
    it.agent(&json!({"jsonrpc": "2.0", "id": call, "result": {"envelope": ack["envelope"]}}));
    assert!(it.owner.is_working() && !it.owner.has_turn());
    it
}

#[test]
fn a_delegation_belongs_to_its_client() {
    let mut it = delegated();
    // A query back goes to the client of the delegation, also without a reference.
    it.agent(&request(9, "query", &envelope("q", "query", None, &json!({"question": "?"}))));
    let asked = it.frames("a", speaking()).pop().unwrap();
    assert_eq!(asked["method"], "_session/query");
    it.client("a", &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"envelope": {"id": "r"}}}));
    let answer = json!({"jsonrpc": "2.0", "id": 9, "result": {"envelope": {"id": "r"}}});
    assert_eq!(*it.last_to_agent(), answer);

    it.agent(&notification(
        "notify",
        &envelope("n", "notify", Some("d"), &json!({"topic": "task.progress"})),
    ));
    it.agent(&notification("result", &envelope("x", "result", Some("d"), &json!({"status": "completed"}))));
    assert_eq!(methods(&it, "a", speaking()), ["_session/query", "_session/notify", "_session/result"]);
    assert_eq!(methods(&it, "b", speaking()), [] as [String; 0]);
    assert!(!it.owner.is_working());

    // Without a delegation requests go to the creator. A broadcast goes to every client that handles envelopes.
    it.agent(&request(10, "query", &envelope("q2", "query", None, &json!({"question": "?"}))));
    it.agent(&notification("notify", &envelope("n2", "notify", None, &json!({"topic": "t"}))));
    assert_eq!(methods(&it, "a", speaking())[3..], ["_session/query", "_session/notify"]);
    assert_eq!(methods(&it, "b", speaking()), ["_session/notify"]);
    assert_eq!(methods(&it, "c", able()), [] as [String; 0]);
}

#[test]
fn a_request_of_the_agent_is_sent_to_one_client_once() {
    let mut it = delegated();
    it.agent(&request(9, "query", &envelope("q", "query", None, &json!({"question": "?"}))));
    it.input(OwnerInput::Left(&key("a")));
    assert_eq!(it.last_to_agent()["error"]["data"]["code"], "client_lost");
    assert_eq!(methods(&it, "b", speaking()), [] as [String; 0]);
    // A message about the delegation is for nobody else either.
    it.agent(&request(10, "cancel", &envelope("c", "cancel", Some("d"), &json!({}))));
    assert_eq!(it.last_to_agent()["error"]["data"]["code"], "client_lost");
    // The host does not handle envelopes.
    it.attach("b", able());
    it.agent(&request(11, "query", &envelope("q2", "query", None, &json!({"question": "?"}))));
    assert_eq!(it.last_to_agent()["error"]["code"], -32601);
}

#[test]
fn a_delegation_fails_with_its_agent() {
    let check = |mut it: Fixture| {
        let failure = it.frames("a", speaking()).pop().unwrap();
        assert_eq!(failure["method"], "_session/error", "{failure}");
        let envelope = &failure["params"]["envelope"];
        assert_eq!((&envelope["ref"], &envelope["kind"]), (&json!("d"), &json!("error")));
        assert_eq!(
            (&envelope["payload"]["code"], &envelope["payload"]["retryable"]),
            (&json!("unreachable"), &json!(true))
        );
        assert_eq!(methods(&it, "b", speaking()), [] as [String; 0]);
        // Once.
        let before = it.owner.end();
        it.input(OwnerInput::Time);
        assert_eq!(it.owner.end(), before);
    };
    let mut it = delegated();
    it.input(OwnerInput::AgentEnded("it crashed"));
    check(it);
    let mut it = delegated().restarted();
    it.input(OwnerInput::Time);
    check(it);
}

#[test]
fn a_refused_delegation_does_not_run() {
    for answer in [
        json!({"result": {"envelope": {"payload": {"accepted": false}}}}),
        json!({"error": {"code": -31005, "message": "overloaded"}}),
    ] {
        let mut it = Fixture::new();
        it.attach("a", speaking());
        it.client("a", &request(1, "delegate", &envelope("d", "delegate", None, &json!({"task": "t"}))));
        let mut answer = answer;
        (answer["jsonrpc"], answer["id"]) = (json!("2.0"), it.last_to_agent()["id"].clone());
        it.agent(&answer);
        assert!(!it.owner.is_working());
    }
}

/// An envelope to an agent of the server goes to the server, and its answer to the agent, once and while its process runs.
#[test]
fn a_call_to_another_agent_is_routed() {
    let mut settings = OwnerSettings::default();
    settings.routes_calls = true;
    let mut it = Fixture::with(settings);
    it.attach("a", speaking());
    let mut call = envelope("d", "delegate", None, &json!({"task": "t"}));
    call["envelope"]["to"] = json!("agent://b");
    it.is_writing = false;
    it.agent(&request(9, "delegate", &call));
    assert!(it.routed.is_empty(), "the record is not written");
    it.is_writing = true;
    it.input(OwnerInput::Time);
    assert_eq!(it.routed, [request(9, "delegate", &call)]);
    // A notification to an agent is for nobody. A `discover` without an address is for the registry, and other envelopes are
    // for clients.
    let mut notify = envelope("n", "notify", None, &json!({"topic": "t"}));
    notify["envelope"]["to"] = json!("agent://b");
    it.agent(&notification("notify", &notify));
    it.agent(&request(10, "discover", &envelope("x", "discover", None, &json!({}))));
    it.agent(&request(11, "query", &envelope("q", "query", None, &json!({"question": "?"}))));
    assert_eq!(it.routed.len(), 2);
    // A withdrawal follows its call.
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 9}});
    it.agent(&cancel);
    assert_eq!(it.routed.split_off(2), [cancel]);
    assert_eq!(methods(&it, "a", speaking()), ["_session/query"]);

    let answer = json!({"jsonrpc": "2.0", "id": 9, "result": {"envelope": {"id": "k"}}});
    for _ in 0..2 {
        it.input(OwnerInput::Routed(answer.to_string().as_bytes()));
    }
    assert_eq!(it.agent.iter().filter(|line| **line == answer).count(), 1);
    let end = notification("result", &envelope("x", "result", Some("d"), &json!({"status": "completed"})));
    it.input(OwnerInput::Routed(end.to_string().as_bytes()));
    assert_eq!(*it.last_to_agent(), end);
    it.input(OwnerInput::AgentEnded("it crashed"));
    let count = it.agent.len();
    it.input(OwnerInput::Routed(end.to_string().as_bytes()));
    assert_eq!(it.agent.len(), count);
    assert!(methods(&it, "a", speaking()).iter().all(|method| method != "_session/result"));
}

/// Without other agents an address of one is that of the client. Beside them a client has every other address.
#[test]
fn an_agent_reaches_its_client_by_an_address() {
    for (routes_calls, address) in [(false, "agent://editor"), (true, "editor"), (true, "")] {
        let mut settings = OwnerSettings::default();
        settings.routes_calls = routes_calls;
        let mut it = Fixture::with(settings);
        it.attach("a", speaking());
        let mut call = envelope("d", "delegate", None, &json!({"task": "t"}));
        call["envelope"]["to"] = json!(address);
        it.agent(&request(9, "delegate", &call));
        assert!(it.routed.is_empty(), "{address}");
        let asked = it.frames("a", speaking()).pop().unwrap();
        assert_eq!(asked["params"]["envelope"]["to"], address, "{asked}");
        let ack = json!({"envelope": {"id": "k"}});
        it.client("a", &json!({"jsonrpc": "2.0", "id": asked["id"], "result": ack}));
        assert_eq!(*it.last_to_agent(), json!({"jsonrpc": "2.0", "id": 9, "result": ack}));
    }
}

/// The answers of a dialogue go to the client that began it, or that the agent has chosen for it.
#[test]
fn a_dialogue_stays_with_its_client() {
    let dialogue = |id| json!({"sessionId": "s", "message": {"message_id": "m", "session_id": id}});
    let mut it = Fixture::new();
    it.attach("a", speaking());
    it.client("a", &request(1, "dialogue", &dialogue("d1")));
    let call = it.last_to_agent()["id"].clone();
    it.agent(&json!({"jsonrpc": "2.0", "id": call, "result": {"receipt": {}}}));
    it.agent(&request(8, "dialogue", &dialogue("d2")));
    it.attach("b", speaking());
    for id in ["d1", "d2"] {
        it.agent(&request(9, "dialogue", &dialogue(id)));
    }
    assert_eq!(methods(&it, "a", speaking()).len(), 3);
    assert_eq!(methods(&it, "b", speaking()), [] as [String; 0]);
    // A hub that was started again has the dialogue of its earlier connection.
    it.input(OwnerInput::Left(&key("a")));
    it.agent(&request(11, "dialogue", &dialogue("d1")));
    assert_eq!(methods(&it, "b", speaking()), ["_session/dialogue"]);
}

/// In a server of several agents the recipient of a dialogue is one of them if its name has no path.
#[test]
fn a_dialogue_with_another_agent_is_routed() {
    let message = |id, to| json!({"sessionId": "s", "message": {"message_id": "m", "session_id": id, "recipient_id": to}});
    let mut settings = OwnerSettings::default();
    settings.routes_calls = true;
    let mut it = Fixture::with(settings);
    it.attach("a", speaking());
    it.client("a", &request(1, "dialogue", &message("d1", "agent://us")));
    let call = request(8, "dialogue", &message("d2", "agent://b"));
    it.agent(&call);
    assert_eq!(it.routed, [call]);
    // A client has its own dialogues, and names with a path.
    it.agent(&request(9, "dialogue", &message("d1", "agent://a")));
    it.agent(&request(10, "dialogue", &message("d3", "agent://home.example/a")));
    assert_eq!(it.routed.len(), 1);
    assert_eq!(methods(&it, "a", speaking()).len(), 2);
}

/// A signature covers the text of a message, so nothing else than ids of the hub changes.
#[tokio::test]
async fn messages_keep_their_text_and_clients_their_answers() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(traced(data.path())).unwrap();
        let mut client = RawClient::new(&hub);
        let schemes = json!({"envelope": {"v": [1]}, "dialogue": {}, "work": {}});
        let introduced = client.initialize_with(schemes.clone()).await;
        let offered = &introduced["result"]["agentCapabilities"]["_meta"]["duologue"];
        let mut all = schemes.clone();
        all["agentId"] = json!("6d6f636b");
        assert_eq!(*offered, all);
        let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let id = new["result"]["sessionId"].as_str().unwrap().to_owned();
        let text = r#"{"z" : 1.50,"session_id":"d\u0041","a":[1e2 ],"message_id":"é"}"#;
        let line = r#"{"jsonrpc":"2.0","id":2,"method":"_session/dialogue","params":{"message":MESSAGE,"sessionId":"ID"}}"#;
        client.send_line(&line.replace("MESSAGE", text).replace("ID", &id)).await;
        assert!(client.response(2).await["result"]["error"].is_object());
        let input = std::fs::read_to_string(data.path().join("input")).unwrap();
        let received = input.lines().find(|line| line.contains("_session/dialogue")).unwrap();
        assert!(received.contains(&format!(r#""message":{text}"#)), "{received}");
        assert!(!received.contains(&id), "{received}");
        assert!(input.lines().next().unwrap().contains(r#""envelope":{"v":[1]}"#), "{input}");

        // Some messages need no session.
        let ping = json!({"envelope": envelope("p", "ping", None, &json!({}))["envelope"]});
        let pong = client.request(3, "_session/ping", ping).await;
        assert_eq!(pong["result"]["envelope"]["kind"], "pong", "{pong}");

        // The agent advertises its own schemes to every client, and learns of those of its client only.
        let mut other = RawClient::new(&hub);
        let introduced = other.initialize().await;
        assert_eq!(introduced["result"]["agentCapabilities"]["_meta"]["duologue"], all);
        other.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        let input = std::fs::read_to_string(data.path().join("input")).unwrap();
        let last = input.lines().rfind(|line| line.contains("hub:initialize")).unwrap();
        assert!(!last.contains("envelope") && last.contains("messageClear"), "{last}");
        hub.shut_down().await;
    })
    .await;
}

/// The agent answers a request of no session only when it is cancelled.
#[cfg(unix)]
#[tokio::test]
async fn a_request_without_a_session_is_cancelled_at_the_agent() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; read -r line
        case $line in *'$/cancel_request'*'"requestId":"hub:_session/query"'*)
            echo '{"jsonrpc":"2.0","id":"hub:_session/query","error":{"code":-32800,"message":"it was cancelled"}}';;
        esac
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let settings = HubSettings::new(|| Command::new("sh").args(["-c", AGENT]), data.path());
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        client.send(2, "_session/query", json!({})).await;
        for id in [1, 2] {
            let params = json!({"requestId": id});
            let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params});
            client.send_line(&cancel.to_string()).await;
        }
        let error = &client.response(2).await["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!(-32800), &json!("it was cancelled")));
        hub.shut_down().await;
    })
    .await;
}

/// A delegation whose task queries its client, and ends while another client has the session open.
async fn delegates(data: &Path, is_shared: bool) {
    let mut settings = settings(data, 0);
    settings.shared_process = is_shared;
    let hub = Hub::open(settings).unwrap();
    let (mut client, mut other) = (RawClient::new(&hub), RawClient::new(&hub));
    for client in [&mut client, &mut other] {
        client.initialize_with(json!({"envelope": {"v": [1]}})).await;
    }
    let new = client.request(1, "session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
    let id = &new["result"]["sessionId"];
    other.request(1, "session/resume", json!({"sessionId": id, "cwd": "/tmp"})).await;
    let mut task = envelope("d", "delegate", None, &json!({"task": "colleague"}));
    task["sessionId"] = id.clone();
    client.send(2, "_session/delegate", task).await;
    let mut queried = 0;
    let result = loop {
        let message = client.next().await;
        let kind = message["method"].as_str().unwrap_or_default().trim_start_matches("_session/").to_owned();
        match (kind.as_str(), &message["id"]) {
            ("result", _) => break message,
            (_, request) if request.is_string() => {
                queried += 1;
                let error = json!({"code": -32601, "message": "no"});
                client.send_line(&json!({"jsonrpc": "2.0", "id": request, "error": error}).to_string()).await;
            }
            _ => {}
        }
        assert!(message["params"]["sessionId"].is_null() || message["params"]["sessionId"] == *id);
    };
    let envelope = &result["params"]["envelope"];
    assert_eq!((&envelope["ref"], &envelope["payload"]["status"]), (&json!("d"), &json!("completed")));
    assert!(queried > 0);
    // The other client has received only what is for everybody.
    let broadcast = other.next().await;
    assert_eq!(broadcast["params"]["envelope"]["payload"]["topic"], "work.build", "{broadcast}");
    other.send(2, "session/list", json!({})).await;
    assert_eq!(other.next().await["id"], 2);
    hub.shut_down().await;
}

#[tokio::test]
async fn a_delegated_task_can_query_its_client() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        delegates(data.path(), false).await;
    })
    .await;
}

#[tokio::test]
async fn a_delegated_task_of_a_shared_process_can_query_its_client() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        delegates(data.path(), true).await;
    })
    .await;
}
