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

/// The client has answered, and its position is behind the session's beginning, as after a damaged record.
#[tokio::test]
async fn an_answered_request_is_not_sent_again() {
    const AGENT: &str = r#"
        read -r line; answer '{"protocolVersion":1}'
        read -r line; answer '{"sessionId":"s"}'
        read -r line
        request fs/write_text_file '{"path":"/f","content":"c"}'; update s "$(printf %s "$reply" | cut -c 1-60 | tr '"' ' ')"
        request fs/write_text_file '{"sessionId":"s","path":"/f","content":"c"}'
        request terminal/create '{"sessionId":"s","command":"id"}'
        answer '{"stopReason":"end_turn"}'
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let agent = [ANSWERS, AGENT].concat();
        let command = move || Command::new("sh").args(["-c", &agent]);
        let mut settings = HubSettings::new(command, data.path());
        settings.client_files = true;
        let hub = Hub::open(settings).unwrap();
        let files = json!({"readTextFile": true, "writeTextFile": true});
        let mut params =
            json!({"protocolVersion": 1, "clientCapabilities": {"fs": files, "terminal": true}, "_meta": {}});
        let mut client = RawClient::new(&hub);
        let introduced = client.request(0, "initialize", params.clone()).await;
        let new = client.request(1, "session/new", new_session()).await;
        let id = new["result"]["sessionId"].clone();
        client.send(2, "session/prompt", text_prompt(&id, "hello")).await;
        let mut frames = Vec::new();
        while frames.len() < 3 {
            let frame = client.next().await;
            if frame["method"] == "fs/write_text_file" {
                let answer = json!({"jsonrpc": "2.0", "id": frame["id"], "result": {}});
                client.send_line(&answer.to_string()).await;
            }
            frames.push(frame);
        }
        // One that names no session could not be counted, so no client receives it.
        assert!(frames[0]["params"]["update"].to_string().contains("-32602"), "{frames:?}");
        assert_eq!([&frames[1]["method"], &frames[2]["method"]], ["fs/write_text_file", "terminal/create"]);
        params["_meta"] = introduced["result"]["_meta"].clone();
        let mut again = RawClient::new(&hub);
        again.request(0, "initialize", params).await;
        let meta = json!({"duologue": {"after": {"position": "1-0", "frames": 0}}});
        again.send(3, "session/resume", json!({"sessionId": id, "cwd": "/tmp", "_meta": meta})).await;
        let mut methods = Vec::new();
        loop {
            let frame = again.next().await;
            match &frame["id"] {
                id if *id == 3 => break,
                id if id.is_string() => methods.push(frame["method"].clone()),
                _ => {}
            }
        }
        assert_eq!(methods, ["terminal/create"], "the open request alone");
        hub.shut_down().await;
    })
    .await;
}

/// An editor of another toolkit runs the program of such a login.
#[tokio::test]
async fn an_error_brings_no_login_in_a_terminal() {
    const AGENT: &str = r#"
        read -r line; answer '{"protocolVersion":1}'
        while read -r line; do
            printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"log in","data":{"a":1,"authMethods":[{"type":"terminal","id":"t","name":"T","args":["x"]}]}}}\n' "$(id)"
        done
    "#;
    for client_files in [false, true] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let agent = [ANSWERS, AGENT].concat();
            let command = move || Command::new("sh").args(["-c", &agent]);
            let mut settings = HubSettings::new(command, data.path());
            settings.client_files = client_files;
            let hub = Hub::open(settings).unwrap();
            let mut client = RawClient::initialized(&hub).await;
            let refused = client.request(1, "session/new", new_session()).await;
            let error = &refused["error"];
            assert_eq!((&error["code"], &error["data"]["a"]), (&json!(-32000), &json!(1)), "{refused}");
            assert_eq!(error["data"]["authMethods"].is_array(), client_files, "{refused}");
            hub.shut_down().await;
        })
        .await;
    }
}
