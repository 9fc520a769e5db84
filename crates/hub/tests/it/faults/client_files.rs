//! Agents that try to reach the files and terminals of a client.

use duologue_client::Command;
use duologue_hub::{Hub, HubSettings};
use duologue_test_support::in_time;
use serde_json::json;

use super::{ANSWERS, new_session, text_prompt};
use crate::hub::RawClient;

/// An agent and a client that write names, objects and messages as only some programs read them.
#[tokio::test]
async fn no_form_of_a_message_brings_files_of_a_client_to_an_agent() {
    const AGENT: &str = r#"
        read -r line; printf '%s\n' "$line" > "$0"
        answer '{"protocolVersion":1,"authMethods":[{"id":"a","name":"A","_meta":{"terminal-auth":{"command":"id"},"k":1}},{"type":"terminal","id":"t","name":"T","args":["x"]},{"type":"Terminal","id":"u","name":"U"}]}'
        read -r line; answer '{"sessionId":"s"}'
        read -r line
        for method in fs/write_text_file FS/Write_Text_File 'fs\/write_text_file' terminal/create Terminal/Create; do
            for id in '' '"id":null,' '"id":7,' '"ID":7,' '"id":7,"method":"_x/y",' '"id":7,"Method":"_x/y",'; do
                for params in '{"sessionId":"s","path":"/f","content":"c","command":"id"}' '["s","/f","c"]'; do
                    message='{"jsonrpc":"2.0",'$id'"method":"'$method'","params":'$params'}'
                    printf '%s\n[%s]\n' "$message" "$message"
                done
            done
        done
        answer '{"stopReason":"end_turn"}'
        read -r line
    "#;
    let files = json!({"readTextFile": true, "writeTextFile": true});
    let forms = [
        json!({"fs": files, "terminal": true, "FS": files, "Terminal": true, "a": {"fs": files, "terminal": true}}),
        json!([files, true]),
        json!({"fs": [true, true], "terminal": [true]}),
    ];
    for capabilities in forms {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let seen = data.path().join("seen");
            let (agent, path) = ([ANSWERS, AGENT].concat(), seen.clone());
            let command = move || Command::new("sh").args(["-c", &agent]).arg(&path);
            let hub = Hub::open(HubSettings::new(command, data.path())).unwrap();
            let mut client = RawClient::new(&hub);
            let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
            let introduced = client.request(0, "initialize", params).await;
            let seen = std::fs::read_to_string(seen).unwrap();
            assert!(seen.contains(r#""terminal":false"#) && !seen.contains("File\":true"), "{seen}");
            if introduced["error"].is_object() {
                return hub.shut_down().await;
            }
            let logins = json!([{"id": "a", "name": "A", "_meta": {"k": 1}}]);
            assert_eq!(introduced["result"]["authMethods"], logins, "{introduced}");
            let new = client.request(1, "session/new", new_session()).await;
            client.send(2, "session/prompt", text_prompt(&new["result"]["sessionId"], "hello")).await;
            let ended = client.next().await;
            assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
            hub.shut_down().await;
        })
        .await;
    }
}
