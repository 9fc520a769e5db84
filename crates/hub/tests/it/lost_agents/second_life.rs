//! Agents that are started again, and agents that ask something before they answer. The agents are programs.
#![cfg(unix)]

use std::path::Path;

use duologue_client::Command;
use duologue_hub::{Hub, HubSettings};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::faults::{new_session, text_prompt};
use crate::hub::{RawClient, agent_text, opened, reopened};

/// An agent that writes its mode and its model in each turn. It begins with `ask` and `small`, and exits if the prompt says so.
const WITH_MODE: &str = r#"
    mode=ask; model=small
    models='"availableModels":[{"modelId":"small","name":"Small"},{"modelId":"large","name":"Large","_meta":{"id":1}}]'
    modes='"availableModes":[{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan"}]'
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case "$line" in
            *'"initialize"'*)
                result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}';;
            *session/new*|*session/load*)
                result='{"sessionId":"s","modes":{"currentModeId":"'$mode'",'$modes'},"models":{"currentModelId":"'$model'",'$models'}}';;
            *session/set_model*)
                model=${line#*\"modelId\":\"}; model=${model%%\"*}; result='{}';;
            *session/set_mode*)
                mode=${line#*\"modeId\":\"}; mode=${mode%%\"*}; result='{}';;
            *exit*) exit 3;;
            *session/prompt*)
                chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"in '$mode' with '$model'"}}'
                echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'$chunk'}}'
                result='{"stopReason":"end_turn"}';;
        esac
        echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
    done
"#;

/// Returns the settings of a hub whose agent is a script in the folder of its data.
pub(super) fn script(data: &Path, agent: &'static str) -> HubSettings {
    let folder = data.to_owned();
    HubSettings::new(move || Command::new("sh").args(["-c", agent]).cwd(&folder), data)
}

#[tokio::test]
async fn a_session_comes_back_in_its_mode_and_with_its_model() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (mut hub, mut client, new) = opened(script(data.path(), WITH_MODE)).await;
        let id = new["result"]["sessionId"].clone();
        let mode = json!({"sessionId": id, "modeId": "plan"});
        assert!(client.request(2, "session/set_mode", mode).await["result"].is_object());
        let model = json!({"sessionId": id, "modelId": "large"});
        assert!(client.request(2, "session/set_model", model).await["result"].is_object());
        let mut models = new["result"]["models"].clone();
        models["currentModelId"] = json!("large");
        for restarts_hub in [false, true] {
            if restarts_hub {
                hub.shut_down().await;
                drop((hub, client));
                (hub, client) = reopened(|| script(data.path(), WITH_MODE)).await;
            } else {
                let ended = client.request(3, "session/prompt", text_prompt(&id, "exit")).await;
                assert!(ended["error"].is_object(), "{ended}");
            }
            let load = json!({"sessionId": id, "cwd": "/tmp", "mcpServers": []});
            for method in ["session/load", "session/resume"] {
                let opened = client.request(4, method, load.clone()).await;
                assert_eq!(opened["result"]["modes"]["currentModeId"], "plan", "{opened}");
                assert_eq!(opened["result"]["models"], models, "{opened}");
            }
            client.send(5, "session/prompt", text_prompt(&id, "hello")).await;
            let text = loop {
                let message = client.next().await;
                let text = &message["params"]["update"]["content"]["text"];
                if text.as_str().is_some_and(|text| text.starts_with("in ")) {
                    break text.clone();
                }
                assert!(message["error"].is_null(), "{message}");
            };
            assert_eq!(text, "in plan with large");
            while client.next().await["id"] != 5 {}
        }
        hub.shut_down().await;
    })
    .await;
}

/// An agent that answers a login and the beginning of a session behind a question.
const ASKING: &str = r#"
    ask() {
        form='"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{}}'
        echo '{"jsonrpc":"2.0","id":70,"method":"elicitation/create","params":{"requestId":"'$1'",'$form'}}'
        read -r answer
        echo "$answer" >> answers
    }
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case "$line" in
            *'"initialize"'*) result='{"protocolVersion":1,"authMethods":[{"id":"m","name":"M"}]}';;
            *authenticate*) echo "$$" >> logins; ask hub:authenticate; result='{}';;
            *session/new*) ask hub:session/new; result='{"sessionId":"'$$'"}';;
        esac
        echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
    done
"#;

/// Sends a request, answers the question that the agent asks first, and returns the response.
async fn answered(client: &mut RawClient, id: u32, method: &str, params: Value) -> Value {
    client.send(id, method, params).await;
    let asked = client.next().await;
    assert_eq!((&asked["method"], &asked["params"]["requestId"]), (&json!("elicitation/create"), &json!(id)));
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}});
    client.send_line(&answer.to_string()).await;
    client.next().await
}

#[tokio::test]
async fn a_question_before_an_answer_goes_to_the_client_that_waits() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(script(data.path(), ASKING)).unwrap();
        let mut client = RawClient::new(&hub);
        let forms = json!({"protocolVersion": 1, "clientCapabilities": {"elicitation": {"form": {}}}});
        client.request(1, "initialize", forms).await;
        let login = answered(&mut client, 2, "authenticate", json!({"methodId": "m"})).await;
        assert!(login["result"].is_object(), "{login}");
        let new = answered(&mut client, 3, "session/new", new_session()).await;
        assert!(new["result"]["sessionId"].is_string(), "{new}");
        // A client that shows no forms declines, and so does the login that is repeated in the next process.
        let mut other = RawClient::initialized(&hub).await;
        assert!(other.request(2, "session/new", new_session()).await["result"].is_object());
        hub.shut_down().await;
        let lines = |name: &str| -> Vec<String> {
            let text = std::fs::read_to_string(data.path().join(name)).unwrap();
            text.lines().map(str::to_owned).collect()
        };
        let actions: Vec<bool> = lines("answers").iter().map(|line| line.contains("accept")).collect();
        assert_eq!(actions, [true, true, false, false]);
        let logins = lines("logins");
        assert!(logins.len() == 2 && logins[0] != logins[1], "one in each process: {logins:?}");
    })
    .await;
}

/// An agent that sends updates before, with and behind its answer to `session/new`, each of which names its place.
const EARLY: &str = r#"
    update() {
        chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'$1'"}}'
        printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%s}}\n' "$chunk"
    }
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        result='{}'
        case "$line" in
            *'"initialize"'*) result='{"protocolVersion":1}';;
            *session/new*)
                update before; result='{"sessionId":"s"}'
                with="$(update with)"
                echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}
'"$with"
                update behind; continue;;
        esac
        echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
    done
"#;

#[tokio::test]
async fn what_an_agent_sends_around_the_answer_to_new_reaches_the_client() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(script(data.path(), EARLY)).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        for id in 1..=5 {
            client.send(id, "session/new", new_session()).await;
            let response = client.next().await;
            assert_eq!(response["id"], id, "{response}");
            for place in ["before", "with", "behind"] {
                let update = client.next().await;
                assert_eq!(update["params"]["sessionId"], response["result"]["sessionId"]);
                assert_eq!(agent_text(&update), place);
            }
        }
        hub.shut_down().await;
    })
    .await;
}

/// An agent that forgets its sessions in a prompt, and goes on. Its answer names the session by its own id.
const FORGETFUL: &str = r#"
    knows=
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        outcome='"result":{"stopReason":"end_turn"}'
        case "$line" in
            *'"initialize"'*)
                outcome='"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}';;
            *session/new*|*session/load*) knows=1; outcome='"result":{"sessionId":"own"}';;
            *forget*) knows=;;
            *session/prompt*)
                [ "$knows" ] || outcome='"error":{"code":-32002,"message":"unknown session","data":{"sessionId":"own"}}';;
        esac
        echo '{"jsonrpc":"2.0","id":'$id','"$outcome"'}'
    done
"#;

#[tokio::test]
async fn a_session_that_a_running_agent_has_lost_goes_on_with_the_next_prompt() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(script(data.path(), FORGETFUL)).await;
        let prompt = |text: &str| text_prompt(&new["result"]["sessionId"], text);
        for id in [10, 20] {
            assert!(client.request(id, "session/prompt", prompt("forget")).await["result"].is_object());
            let lost = client.request(id + 1, "session/prompt", prompt("hello")).await;
            assert_eq!(lost["error"]["data"]["code"], "interrupted", "{lost}");
            let answer = client.request(id + 2, "session/prompt", prompt("hello")).await;
            assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        }
        hub.shut_down().await;
    })
    .await;
}
