//! Sessions that are opened again: the options that clients have chosen, folders and servers, and an agent whose turn was
//! cancelled. The agents are programs.

use std::path::Path;

use duologue_hub::Hub;
use duologue_test_support::in_time;
use serde_json::{Value, json};

use super::second_life::script;
use crate::faults::{new_session, text_prompt};
use crate::hub::{RawClient, agent_text, open_when_free, opened, reopened};

/// An agent that writes its options in each turn. It answers the choice of `tools` without the list.
const WITH_OPTIONS: &str = r#"
    effort=low; tools=false
    values='[{"value":"low","name":"Low"},{"value":"high","name":"High"}]'
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case "$line" in
            *'"configId":"effort"'*) effort=${line#*\"value\":\"}; effort=${effort%%\"*};;
            *'"configId":"tools"'*) tools=${line#*\"value\":}; tools=${tools%%[,\}]*};;
        esac
        options='[{"id":"effort","name":"Effort","type":"select","currentValue":"'$effort'","options":'$values'},
            {"id":"tools","name":"Tools","type":"boolean","currentValue":'$tools'}]'
        case "$line" in
            *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}';;
            *session/new*|*session/load*) result='{"sessionId":"s","configOptions":'$options'}';;
            *'"configId":"effort"'*) result='{"configOptions":'$options'}';;
            *'"configId":"tools"'*) result='{}';;
            *exit*) exit 3;;
            *session/prompt*)
                chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'$effort', '$tools'"}}'
                echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'$chunk'}}'
                result='{"stopReason":"end_turn"}';;
        esac
        echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}' | tr -d '\n'; echo
    done
"#;

/// Sends a prompt during which the agent ends.
async fn end_agent(client: &mut RawClient, id: u32, session: &Value) {
    let ended = client.request(id, "session/prompt", text_prompt(session, "exit")).await;
    assert_eq!(ended["error"]["data"]["code"], "interrupted", "{ended}");
}

#[tokio::test]
async fn a_session_is_opened_with_the_options_that_a_client_has_chosen() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (mut hub, mut client, new) = opened(script(data.path(), WITH_OPTIONS)).await;
        let id = new["result"]["sessionId"].clone();
        let mut options = new["result"]["configOptions"].clone();
        for (number, chosen) in [
            json!({"configId": "effort", "value": "high"}),
            json!({"configId": "tools", "type": "boolean", "value": true}),
        ]
        .into_iter()
        .enumerate()
        {
            options[number]["currentValue"] = chosen["value"].clone();
            let mut params = chosen;
            params["sessionId"] = id.clone();
            let answer = client.request(2, "session/set_config_option", params).await;
            assert!(answer["result"].is_object(), "{answer}");
        }
        for restarted in ["nothing", "the agent", "the hub"] {
            match restarted {
                "the agent" => end_agent(&mut client, 3, &id).await,
                "the hub" => {
                    hub.shut_down().await;
                    drop((hub, client));
                    (hub, client) = reopened(|| script(data.path(), WITH_OPTIONS)).await;
                }
                _ => {}
            }
            let open = json!({"sessionId": id, "cwd": "/tmp", "mcpServers": []});
            for method in ["session/resume", "session/load", "session/resume"] {
                let opened = client.request(4, method, open.clone()).await;
                assert_eq!(opened["result"]["configOptions"], options, "{restarted}, {method}: {opened}");
            }
            // The agent has what its clients see.
            client.send(5, "session/prompt", text_prompt(&id, "hello")).await;
            let text = loop {
                let message = client.next().await;
                assert!(message["error"].is_null(), "{restarted}: {message}");
                if !agent_text(&message).is_empty() {
                    break agent_text(&message).to_owned();
                }
            };
            assert_eq!(text, "high, true", "{restarted}");
            client.response(5).await;
        }
        hub.shut_down().await;
    })
    .await;
}

/// An agent that writes the requests that open its session, and answers that it has loaded one with `null`.
const OPENED: &str = r#"
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case "$line" in
            *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}';;
            *session/new*) result='{"sessionId":"s"}';;
            *session/load*) echo "$line" >> opened; result=null;;
            *exit*) exit 3;;
            *session/prompt*) result='{"stopReason":"end_turn"}';;
        esac
        echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
    done
"#;

/// Returns the folder and the servers with which the last process has opened its session.
fn last_opened(data: &Path) -> (Value, Value) {
    let opened = std::fs::read_to_string(data.join("opened")).unwrap();
    let last: Value = serde_json::from_str(opened.lines().last().unwrap()).unwrap();
    (last["params"]["cwd"].clone(), last["params"]["mcpServers"].clone())
}

#[tokio::test]
async fn the_client_that_needs_the_next_process_decides_its_folder_and_servers() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(script(data.path(), OPENED)).unwrap();
        let mut creator = RawClient::initialized(&hub).await;
        let mut viewer = RawClient::initialized(&hub).await;
        let servers = json!([{"name": "tools", "command": "/bin/true", "args": [], "env": []}]);
        let (own, other) = ((json!("/tmp"), servers), (json!("/"), json!([])));
        let params = |(cwd, servers): &(Value, Value)| json!({"cwd": cwd, "mcpServers": servers});
        let new = creator.request(1, "session/new", params(&own)).await;
        let id = &new["result"]["sessionId"];
        let open = |opened: &(Value, Value)| {
            let mut params = params(opened);
            params["sessionId"] = id.clone();
            params
        };
        let mut number = 1;
        // The request of the viewer that opens the session first, and the client that needs the process.
        for (viewer_opens, viewer_prompts, expected) in [
            (Some("session/load"), false, &own),
            (Some("session/resume"), false, &own),
            (None, true, &other),
            // The client that has created the session takes its folder back, and opens nothing for it.
            (None, false, &own),
            (Some("session/load"), false, &own),
            (None, true, &other),
            (None, false, &own),
        ] {
            number += 10;
            let row = format!("viewer opens: {viewer_opens:?}, prompts: {viewer_prompts}");
            end_agent(&mut creator, number, id).await;
            if let Some(method) = viewer_opens {
                let opened = viewer.request(number, method, open(&other)).await;
                assert!(opened["result"].is_object(), "{row}: {opened}");
            }
            let prompter = if viewer_prompts { &mut viewer } else { &mut creator };
            let answer = prompter.request(number + 2, "session/prompt", text_prompt(id, "hello")).await;
            assert_eq!(answer["result"]["stopReason"], "end_turn", "{row}: {answer}");
            assert_eq!(&last_opened(data.path()), expected, "{row}");
        }
        hub.shut_down().await;
    })
    .await;
}

/// An agent that ignores cancellations, and writes the number of its process when it opens a session.
#[cfg(feature = "gateway")]
const DEAF: &str = r#"
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case "$line" in
            *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}';;
            *session/new*|*session/load*) echo "$$" >> processes; result='{"sessionId":"s"}';;
            *session/cancel*) continue;;
            *'"hang"'*)
                chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hangs"}}'
                echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'$chunk'}}'
                continue;;
            *session/prompt*) result='{"stopReason":"end_turn"}';;
        esac
        echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
    done
"#;

#[cfg(feature = "gateway")]
#[tokio::test]
async fn an_agent_that_ignores_a_cancellation_is_ended_behind_each_transport() {
    use std::time::Duration;

    use duologue_http::{ConnectOptions, RemoteTransport, connect};
    use duologue_hub::ServerOptions;
    use tokio::net::TcpListener;

    for transport in [RemoteTransport::WebSocket, RemoteTransport::Events] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let settings = || {
                let mut settings = script(data.path(), DEAF);
                settings.owner.cancel_grace = Duration::ZERO;
                settings
            };
            let (mut id, mut number, mut processes) = (Value::Null, 0, 0);
            for life in ["first", "second"] {
                let hub = open_when_free(settings).await;
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}/acp", listener.local_addr().unwrap());
                let mut server = ServerOptions::default();
                server.token = Some("token".into());
                let (served, (stop, stopped)) = (hub.clone(), tokio::sync::oneshot::channel::<()>());
                let serving = tokio::spawn(async move {
                    served.serve_http(listener, server, async { _ = stopped.await }).await
                });
                let mut options = ConnectOptions::default();
                (options.transport, options.bearer_token) = (transport, Some("token".into()));
                let mut client = RawClient::over(connect(&url, options).await.unwrap().0);
                client.initialize().await;
                if id.is_null() {
                    let new = client.request(1, "session/new", new_session()).await;
                    id = new["result"]["sessionId"].clone();
                } else {
                    let mut load = new_session();
                    load["sessionId"] = id.clone();
                    assert!(client.request(1, "session/load", load).await["result"].is_object());
                }
                // The first process of a life, which the first prompt starts in the second one.
                processes += 1;
                // The second process of a life has restored the session.
                for _ in 0..2 {
                    number += 10;
                    client.send(number, "session/prompt", text_prompt(&id, "hang")).await;
                    // The agent has it.
                    while agent_text(&client.next().await) != "hangs" {}
                    let cancel =
                        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}});
                    client.send_line(&cancel.to_string()).await;
                    let ended = client.response(number).await;
                    let row = format!("{transport:?}, {life} life");
                    assert_eq!(ended["result"]["stopReason"], "cancelled", "{row}: {ended}");
                    let next = client.request(number + 1, "session/prompt", text_prompt(&id, "hello")).await;
                    assert_eq!(next["result"]["stopReason"], "end_turn", "{row}: {next}");
                    processes += 1;
                    let started = std::fs::read_to_string(data.path().join("processes")).unwrap();
                    let started: std::collections::BTreeSet<&str> = started.lines().collect();
                    assert_eq!(started.len(), processes, "{row}");
                }
                hub.shut_down().await;
                drop((client, hub, stop));
                serving.await.unwrap().unwrap();
            }
        })
        .await;
    }
}
