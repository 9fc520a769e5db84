//! A hub with agents that do not read, damaged logs, clients that come back, and requests that it does not pass on.

#[cfg(unix)]
mod client_files;
mod continuing;
mod left_clients;

use std::path::Path;

use duologue_client::Command;
use duologue_hub::{Hub, HubSettings};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::hub::{
    RawClient, agent_text, connect, load, open_when_free, opened, prompt, reopened, settings, traced,
};

/// Returns settings for an agent that is a script of the shell.
#[cfg(unix)]
pub(crate) fn script(data: &Path, agent: impl Into<String>) -> HubSettings {
    let agent = agent.into();
    HubSettings::new(move || Command::new("sh").args(["-c", &agent]), data)
}

/// Functions for scripts. `answer` answers the request in `line`, also if sessions share the process.
#[cfg(unix)]
const ANSWERS: &str = r#"
    id() { printf '%s\n' "$line" | sed -E 's/.*"id":([^,]*),"method".*/\1/'; }
    answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$(id)" "$1"; }
    update() { printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}\n' "$1" "$2"; }
    request() { printf '{"jsonrpc":"2.0","id":"r","method":"%s","params":%s}\n' "$1" "$2"; read -r reply; }
"#;

/// The beginning of a script that has a session.
#[cfg(unix)]
const OPENING: &str = r#"
    read -r line; answer '{"protocolVersion":1}'
    read -r line; answer '{"sessionId":"s"}'
"#;

/// A client with files and terminals.
#[cfg(unix)]
async fn client_with_files(hub: &Hub) -> RawClient {
    let mut client = RawClient::new(hub);
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
    let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    client.request(0, "initialize", params).await;
    client
}

pub(crate) fn new_session() -> Value {
    json!({"cwd": "/tmp", "mcpServers": []})
}

pub(crate) fn text_prompt(session: &Value, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// The client of a new session receives what the agent sends directly behind the response.
#[cfg(unix)]
#[tokio::test]
async fn the_first_update_of_each_new_session_reaches_its_client() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        while read -r line; do
            case "$line" in *session/new*)
                n=${line#*\"id\":\"}; n=${n%%:*}
                printf '{"jsonrpc":"2.0","id":"%s:\\"hub:session/new\\"","result":{"sessionId":"%s"}}\n{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"first"}}}}\n' $n $n $n;;
            esac
        done
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = script(data.path(), AGENT);
        settings.shared_process = true;
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        for id in 1..=40 {
            client.send(id, "session/new", new_session()).await;
        }
        let (mut responses, mut updates) = (0, 0);
        // A client that missed an update waits for ever.
        while responses < 40 || updates < 40 {
            let message = client.next().await;
            responses += usize::from(message["result"]["sessionId"].is_string());
            updates += usize::from(agent_text(&message) == "first");
        }
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn methods_that_could_open_a_session_do_not_reach_the_agent() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("allowed");
        std::fs::create_dir(&folder).unwrap();
        let mut settings = traced(data.path());
        settings.policy.roots = Some(vec![folder.clone()]);
        settings.policy.refuses_mcp_programs = true;
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let new = client.request(1, "session/new", json!({"cwd": folder, "mcpServers": []})).await;
        let session = &new["result"]["sessionId"];
        let servers = json!([{"name": "x", "command": "/bin/sh", "args": ["-c", "true"], "env": []}]);
        let fork = json!({"sessionId": session, "cwd": "/", "mcpServers": servers});
        for (id, method) in (2..).zip(["session/fork", "session/later", "later/method", "_later/open"]) {
            let refused = client.request(id, method, fork.clone()).await;
            assert_eq!(refused["error"]["code"], -32601, "{method}: {refused}");
            let notification = json!({"jsonrpc": "2.0", "method": method, "params": fork});
            client.send_line(&notification.to_string()).await;
        }
        let answer = client.request(9, "session/prompt", text_prompt(session, "hello")).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        // An extension of the agent.
        client.request(10, "_later/ping", json!({"sessionId": session})).await;
        let input = std::fs::read_to_string(data.path().join("input")).unwrap();
        assert!(input.contains("_later/ping") && !input.contains("/bin/sh"), "{input}");
        hub.shut_down().await;
    })
    .await;
}

/// The pipe of the agent is full when its session is closed, and when the server shuts down.
#[cfg(unix)]
#[tokio::test]
async fn an_agent_that_does_not_read_is_ended() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        exec sleep 1000
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(script(data.path(), AGENT)).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let long = "x".repeat(1 << 20);
        let mut sessions = Vec::new();
        for id in [1, 2] {
            let new = client.request(10 * id, "session/new", new_session()).await;
            let session = new["result"]["sessionId"].clone();
            client.send(10 * id + 1, "session/prompt", text_prompt(&session, &long)).await;
            sessions.push(session);
        }
        let closed = client.request(40, "session/close", json!({"sessionId": sessions[0]})).await;
        assert!(closed["result"].is_object(), "{closed}");
        hub.shut_down().await;
        assert_eq!(client.response(21).await["error"]["data"]["code"], "interrupted");
    })
    .await;
}

/// The process of a session that reads no more goes on for a while, and the next one waits for its end.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn two_processes_of_a_session_do_not_run_at_once() {
    const AGENT: &str = r#"
        trap '' TERM
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}'
        read -r line
        case "$line" in
            *session/new*) echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'; echo $$ > first;;
            *) if kill -0 $(cat first) 2>/dev/null; then echo both > both; fi
               echo '{"jsonrpc":"2.0","id":"hub:session/load","result":{}}';;
        esac
        read -r line
        if [ ! -e closed ]; then touch closed; exec 1>&-; while :; do sleep 0.1; done; fi
        echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().to_owned();
        let command = move || Command::new("sh").args(["-c", AGENT]).cwd(&folder);
        let (hub, mut client, new) = opened(HubSettings::new(command, data.path())).await;
        let session = &new["result"]["sessionId"];
        // The agent closes its output and goes on.
        let ended = client.request(2, "session/prompt", text_prompt(session, "hello")).await;
        assert_eq!(ended["error"]["data"]["code"], "interrupted", "{ended}");
        let ended = client.request(3, "session/prompt", text_prompt(session, "hello")).await;
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        assert!(!data.path().join("both").exists(), "two processes ran at once");
        hub.shut_down().await;
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn requests_without_a_session_have_a_limit() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; sleep 1000
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = script(data.path(), AGENT);
        settings.requests_without_session = 2;
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        for id in 1..=3 {
            client.send(id, "_session/query", json!({"to": "agent://other"})).await;
        }
        let refused = client.next().await;
        assert_eq!(refused["error"]["data"]["code"], "limit_reached", "{refused}");
        assert!(refused["error"]["message"].to_string().contains("HubSettings::requests_without_session"));
        hub.shut_down().await;
    })
    .await;
}

/// Changes the lines of the log of the only session.
pub(crate) fn change_log(data: &Path, change: impl Fn(&mut Vec<String>)) {
    let folders = std::fs::read_dir(data.join("sessions")).unwrap();
    let folder = folders.map(|folder| folder.unwrap().path()).find(|folder| folder.is_dir()).unwrap();
    let segments = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    for segment in segments.filter(|path| path.extension().is_some_and(|it| it == "jsonl")) {
        let text = std::fs::read_to_string(&segment).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        change(&mut lines);
        std::fs::write(&segment, lines.join("\n") + "\n").unwrap();
    }
}

#[cfg(feature = "gateway")]
#[tokio::test]
async fn the_server_logs_lost_records_and_sessions() {
    use crate::rest::recorder::{LOGS, record, recorded};

    in_time(async {
        record();
        let data = tempfile::tempdir().unwrap();
        let (hub, client, new) = opened(settings(data.path(), 0)).await;
        let id = new["result"]["sessionId"].as_str().unwrap();
        hub.shut_down().await;
        drop((client, hub));
        // Bytes of a record in the middle are zero, as after a power cut.
        change_log(data.path(), |lines| lines[4] = lines[4].replacen("{\"", "\0\0", 1));
        let (hub, mut client) = reopened(|| settings(data.path(), 0)).await;
        let mut load = new_session();
        load["sessionId"] = json!(id);
        client.request(1, "session/load", load).await;
        let logged = |text: &str| {
            let events = recorded(LOGS);
            assert!(events.iter().any(|event| event.contains(id) && event.contains(text)), "{events:?}");
        };
        logged("a part of a log was lost");
        hub.shut_down().await;
        drop((client, hub));

        std::fs::write(data.path().join("sessions").join(id).join("session.json"), "{").unwrap();
        std::fs::remove_file(data.path().join("sessions/index.sqlite")).unwrap();
        let hub = open_when_free(|| settings(data.path(), 0)).await;
        logged("a session is not in the list");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_log_that_stays_unreadable_is_not_retryable() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let mut load = new_session();
        load["sessionId"] =
            client.request(1, "session/new", new_session()).await["result"]["sessionId"].clone();
        hub.shut_down().await;
        drop((client, hub));
        change_log(data.path(), |lines| lines[0] = lines[0].replace(r#""version":1"#, r#""version":9"#));
        let (hub, mut client) = reopened(|| settings(data.path(), 0)).await;
        let refused = client.request(1, "session/load", load).await;
        assert_eq!(refused["error"]["data"], json!({"code": "log_failed", "retryable": false}), "{refused}");
        hub.shut_down().await;
    })
    .await;
}

/// The question of an agent is shown to a client that opens the session, and that is recorded.
#[tokio::test]
async fn a_client_that_resumes_learns_that_the_log_failed() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        // Each write begins a segment.
        settings.logs.segment_bytes = 1;
        let hub = Hub::open(settings).unwrap();
        let mut first = RawClient::initialized(&hub).await;
        let mut second = RawClient::initialized(&hub).await;
        let new = first.request(1, "session/new", new_session()).await;
        let session = new["result"]["sessionId"].as_str().unwrap();
        first.send(2, "session/prompt", text_prompt(&json!(session), "permission")).await;
        while first.next().await["method"] != "session/request_permission" {}
        // The segment of the next record cannot be made. A sync of those before it can still run.
        std::fs::create_dir(data.path().join("sessions").join(session).join(".new")).unwrap();
        let meta = json!({"duologue": {"after": {"position": "1-0", "frames": 0}}});
        let resume = json!({"sessionId": session, "cwd": "/tmp", "_meta": meta});
        let refused = second.request(1, "session/resume", resume).await;
        assert_eq!(refused["error"]["data"], json!({"code": "log_failed", "retryable": true}), "{refused}");
        assert!(refused["error"]["message"].to_string().contains(session), "{refused}");
        assert_eq!(first.response(2).await["error"]["data"]["code"], "log_failed");
        let refused = first.request(3, "session/prompt", text_prompt(&json!(session), "hello")).await;
        assert_eq!(refused["error"]["data"], json!({"code": "log_failed", "retryable": false}), "{refused}");
        assert!(refused["error"]["message"].to_string().contains("load the session again"), "{refused}");
        hub.shut_down().await;
    })
    .await;
}

/// An agent writes a line of the longest length, and goes on with its message.
#[cfg(unix)]
#[tokio::test]
async fn a_message_that_is_longer_than_a_line_is_loaded() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line
        for bytes in $FIRST 1048576; do
            printf '%s' "$BEGIN"; head -c $bytes /dev/zero | tr '\0' x; printf '"}}}}\n'
        done
        echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}'
        read -r line
    "#;
    const BEGIN: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":""#;
    const LINE: usize = (16 << 20) - (32 << 10);
    const TEXT: usize = LINE - BEGIN.len() - r#""}}}}"#.len();
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let agent =
            || Command::new("sh").args(["-c", AGENT]).env("BEGIN", BEGIN).env("FIRST", TEXT.to_string());
        let hub = Hub::open(HubSettings::new(agent, data.path())).unwrap();
        let mut first = RawClient::initialized(&hub).await;
        let mut second = RawClient::initialized(&hub).await;
        let new = first.request(1, "session/new", new_session()).await;
        let session = &new["result"]["sessionId"];
        let mut load = new_session();
        load["sessionId"] = session.clone();
        first.send(2, "session/prompt", text_prompt(session, "hello")).await;
        let read = async |client: &mut RawClient| {
            let mut bytes = 0;
            loop {
                let message = client.next().await;
                match message["id"].is_null() {
                    true => bytes += agent_text(&message).len(),
                    false => {
                        assert!(message["result"].is_object(), "{message}");
                        return bytes;
                    }
                }
            }
        };
        assert_eq!(read(&mut first).await, TEXT + (1 << 20));
        second.send(1, "session/load", load).await;
        assert_eq!(read(&mut second).await, TEXT + (1 << 20));
        hub.shut_down().await;
    })
    .await;
}

/// A prompt and the answer to a question are longer than the line of an agent may be.
#[tokio::test]
async fn long_lines_of_a_client_do_not_end_the_agent() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(settings(data.path(), 0)).await;
        let session = &new["result"]["sessionId"];
        let long = "x".repeat((16 << 20) - (16 << 10));
        let refused = client.request(2, "session/prompt", text_prompt(session, &long)).await;
        assert_eq!(refused["error"]["data"], json!({"code": "limit_reached", "retryable": false}));
        client.send(3, "session/prompt", text_prompt(session, "permission")).await;
        let question = loop {
            let message = client.next().await;
            if message["method"] == "session/request_permission" {
                break message;
            }
        };
        let option = &question["params"]["options"][0]["optionId"];
        let outcome = json!({"outcome": "selected", "optionId": option, "_meta": {"long": long}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}});
        client.send_line(&answer.to_string()).await;
        // The agent goes on.
        let ended = client.response(3).await;
        assert!(ended["error"]["message"].to_string().contains("Limits::frame_bytes"), "{ended}");
        let ended = client.request(4, "session/prompt", text_prompt(session, "hello")).await;
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        hub.shut_down().await;
    })
    .await;
}

/// A session cannot be created because its log is too small for its beginning.
#[tokio::test]
async fn a_session_that_could_not_be_created_leaves_no_folder() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        settings.logs.log_bytes = 100;
        let hub = Hub::open(settings).unwrap();
        let mut client = RawClient::initialized(&hub).await;
        let refused = client.request(1, "session/new", new_session()).await;
        assert_eq!(refused["error"]["data"]["code"], "log_failed", "{refused}");
        let folders = std::fs::read_dir(data.path().join("sessions")).unwrap();
        let folders: Vec<_> =
            folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        assert!(folders.is_empty(), "{folders:?}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_deleted_while_it_is_loaded_does_not_come_back() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        settings.shared_process = true;
        let hub = Hub::open(settings).unwrap();
        let mut first = RawClient::initialized(&hub).await;
        let mut second = RawClient::initialized(&hub).await;
        for id in 0..20 {
            let new = first.request(10 * id + 1, "session/new", new_session()).await;
            let session = json!({"sessionId": new["result"]["sessionId"]});
            first.request(10 * id + 2, "session/close", session.clone()).await;
            let mut load = new_session();
            load["sessionId"] = session["sessionId"].clone();
            let (deleted, _) = tokio::join!(
                first.request(10 * id + 3, "session/delete", session.clone()),
                second.request(10 * id + 3, "session/load", load)
            );
            if deleted["error"].is_object() {
                // The other client has it open.
                second.request(10 * id + 4, "session/close", session.clone()).await;
                first.request(10 * id + 5, "session/delete", session).await;
            }
        }
        let listed = first.request(1000, "session/list", json!({})).await;
        assert_eq!(listed["result"]["sessions"], json!([]), "{listed}");
        let folders = std::fs::read_dir(data.path().join("sessions")).unwrap();
        let folders: Vec<_> =
            folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        assert!(folders.is_empty(), "{folders:?}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_with_a_damaged_record_is_loaded_without_it() {
    const NOTICE: &str = "[1 record of this session is damaged and was left out.]";
    // Neither JSON, nor a record of the hub.
    for (part, damage) in [("{", "x"), (r#""from":"client""#, r#""from":"dlient""#)] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let hub = Hub::open(settings(data.path(), 0)).unwrap();
            let client = connect(&hub).await;
            let session = client.new_session("/tmp").await.unwrap();
            prompt(&session, "first").await;
            prompt(&session, "second").await;
            let id = session.id().clone();
            hub.shut_down().await;
            drop((session, client, hub));
            change_log(data.path(), |lines| {
                if let Some(line) = lines.iter_mut().find(|line| line.contains(r#""event":"prompt""#)) {
                    assert!(line.contains(part), "{line}");
                    *line = line.replacen(part, damage, 1);
                }
            });
            let hub = open_when_free(|| settings(data.path(), 0)).await;
            let client = connect(&hub).await;
            let (_session, texts) = load(&client, &id).await;
            let texts = texts.join("|");
            assert!(texts.contains("second") && !texts.contains("first|"), "{texts}");
            assert!(texts.starts_with(NOTICE), "{texts}");

            // The number of frames that this client has seen counts those of the damaged record.
            let mut client = RawClient::initialized(&hub).await;
            let meta = json!({"duologue": {"after": {"position": "2-1", "frames": 1000}}});
            client.send(1, "session/resume", json!({"sessionId": id, "cwd": "/tmp", "_meta": meta})).await;
            let mut missed = String::new();
            loop {
                let message = client.next().await;
                if message["id"] == 1 {
                    break;
                }
                missed += &message["params"]["update"].to_string();
            }
            assert!(missed.contains(NOTICE) && missed.contains("second"), "{missed}");
            hub.shut_down().await;
        })
        .await;
    }
}

/// A form is on the screen of the user when another connection of the client continues this one.
#[cfg(unix)]
#[tokio::test]
async fn a_client_that_continues_keeps_its_form() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line
        echo '{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"sessionId":"s","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}}'
        read -r line
        case "$line" in
            *accept*) echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}';;
            *) echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"refusal"}}';;
        esac
        read -r line
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(script(data.path(), AGENT)).unwrap();
        let introduction = |meta: Value| {
            let capabilities = json!({"elicitation": {"form": {}}});
            json!({"protocolVersion": 1, "clientCapabilities": capabilities, "_meta": meta})
        };
        let mut client = RawClient::new(&hub);
        let introduced = client.request(0, "initialize", introduction(json!({}))).await;
        let key = introduced["result"]["_meta"]["duologue"]["client"].clone();
        let new = client.request(1, "session/new", new_session()).await;
        let session = new["result"]["sessionId"].clone();
        client.send(2, "session/prompt", text_prompt(&session, "hello")).await;
        let form = client.next().await;
        assert_eq!(form["method"], "elicitation/create", "{form}");

        let mut next = RawClient::new(&hub);
        next.request(0, "initialize", introduction(json!({"duologue": {"client": key}}))).await;
        // The older connection has ended, and what it has left is known to the session.
        client.wait_for_end().await;
        next.send(1, "session/resume", json!({"sessionId": session, "cwd": "/tmp"})).await;
        let answer =
            json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": {}}});
        next.response(1).await;
        next.send_line(&answer.to_string()).await;
        let ended = next.response(2).await;
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        hub.shut_down().await;
    })
    .await;
}

/// The agent requests them although nothing was advertised to it.
#[cfg(unix)]
#[tokio::test]
async fn files_and_terminals_of_a_client_need_the_setting_of_the_server() {
    const AGENT: &str = r#"
        read -r line
        refused=0
        for call in 'fs/read_text_file "path":"/f"' 'fs/write_text_file "path":"/f","content":"c"' 'terminal/create "command":"id"' 'terminal/output "terminalId":"t"'; do
            request "${call%% *}" "{\"sessionId\":\"s\",${call#* }}"
            case "$reply" in *-32601*) refused=$((refused+1));; esac
        done
        answer "{\"stopReason\":\"end_turn\",\"_meta\":{\"refused\":$refused}}"
        read -r line
    "#;
    const METHODS: [&str; 4] =
        ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output"];
    for (client_files, shared_process) in [(false, false), (false, true), (true, false), (true, true)] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let mut settings = script(data.path(), [ANSWERS, OPENING, AGENT].concat());
            (settings.client_files, settings.shared_process) = (client_files, shared_process);
            let hub = Hub::open(settings).unwrap();
            let mut client = client_with_files(&hub).await;
            let new = client.request(1, "session/new", new_session()).await;
            client.send(2, "session/prompt", text_prompt(&new["result"]["sessionId"], "hello")).await;
            let mut requested = Vec::new();
            let ended = loop {
                let message = client.next().await;
                let Some(method) = message["method"].as_str() else { break message };
                requested.push(method.to_owned());
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
                client.send_line(&answer.to_string()).await;
            };
            let (expected, refused) = if client_files { (&METHODS[..], 0) } else { (&[][..], 4) };
            assert_eq!(requested, expected, "shared: {shared_process}");
            assert_eq!(ended["result"]["_meta"]["refused"], refused, "{ended}");
            hub.shut_down().await;
        })
        .await;
    }
}

/// The text of the prompt is the id of another session of the client. An agent that names it names a child of its own.
#[cfg(unix)]
#[tokio::test]
async fn an_agent_does_not_reach_another_session_of_its_client() {
    const AGENT: &str = r#"
        while read -r line; do
            other=$(printf '%s\n' "$line" | sed -E 's/.*"text":"([^"]*)".*/\1/')
            update "$other" other
            update child child
            update s own
            for method in session/request_permission fs/read_text_file _x/y; do
                request "$method" "{\"sessionId\":\"$other\",\"path\":\"/f\",\"toolCall\":{\"toolCallId\":\"c\"},\"options\":[]}"
            done
            answer '{"stopReason":"end_turn"}'
        done
    "#;
    for shows_children in [false, true] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let mut settings = script(data.path(), [ANSWERS, OPENING, AGENT].concat());
            settings.client_files = true;
            let hub = Hub::open(settings).unwrap();
            let mut client = RawClient::new(&hub);
            let mut capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
            if shows_children {
                capabilities["subagents"] = json!({});
            }
            let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
            client.request(0, "initialize", params).await;
            let mut ids = Vec::new();
            for id in [1, 2] {
                let new = client.request(id, "session/new", new_session()).await;
                ids.push(new["result"]["sessionId"].as_str().unwrap().to_owned());
            }
            let prompt = text_prompt(&json!(ids[0]), &ids[1]);
            client.send(3, "session/prompt", prompt).await;
            let mut received = Vec::new();
            loop {
                let message = client.next().await;
                let Some(method) = message["method"].as_str() else { break };
                let session = message["params"]["sessionId"].as_str().unwrap();
                let child =
                    session.strip_prefix(&ids[0]).unwrap_or_else(|| panic!("another session: {message}"));
                assert_eq!(child.is_empty(), !child.starts_with('~'), "{message}");
                received.push((method.to_owned(), child.is_empty()));
                if message.get("id").is_some() {
                    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": "",
                        "outcome": {"outcome": "cancelled"}}});
                    client.send_line(&answer.to_string()).await;
                }
            }
            let update = |is_own| ("session/update".to_owned(), is_own);
            let requests = ["session/request_permission", "fs/read_text_file", "_x/y"];
            let requests = requests.map(|method| (method.to_owned(), !shows_children));
            let updates = match shows_children {
                true => vec![update(false), update(false), update(true)],
                false => vec![update(true)],
            };
            assert_eq!(received, [updates, requests.to_vec()].concat());
            hub.shut_down().await;
        })
        .await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_error_after_the_end_of_an_agent_has_its_status_and_its_stderr() {
    const WHY: &str = "echo why >&2; exit 3\n";
    const OPENED: &str = "read -r line; answer '{\"protocolVersion\":1}'\n";
    let in_a_turn = |end: &str| [ANSWERS, OPENING, "read -r line\n", end].concat();
    let exited = ["exit status: 3", "its stderr ended with:\nwhy"];
    for (agent, code, expected) in [
        (WHY.to_owned(), "agent_unavailable", &exited[..]),
        (["read -r line\n", WHY].concat(), "agent_unavailable", &exited),
        ([ANSWERS, OPENED, "read -r line\n", WHY].concat(), "agent_unavailable", &exited),
        (in_a_turn(WHY), "interrupted", &exited),
        (
            in_a_turn("printf 'why \\033[2J' >&2; kill -9 $$"),
            "interrupted",
            &["signal: 9", "its stderr ended with:\nwhy \\u{1b}[2J"],
        ),
        (
            in_a_turn("echo why >&2; head -c 17000000 /dev/zero | tr '\\0' x; echo; read -r line"),
            "interrupted",
            &["exceeds the limit of 16744448 bytes", "its stderr ended with:\nwhy"],
        ),
        (
            in_a_turn("echo why >&2; exec sleep 1000 >&-"),
            "interrupted",
            &["closed its output", "its stderr ended with:\nwhy"],
        ),
    ] {
        for shared_process in [false, true] {
            in_time(async {
                let data = tempfile::tempdir().unwrap();
                let mut settings = script(data.path(), agent.clone());
                settings.shared_process = shared_process;
                let hub = Hub::open(settings).unwrap();
                let mut client = RawClient::new(&hub);
                let mut answer = client.initialize().await;
                if answer["error"].is_null() {
                    answer = client.request(1, "session/new", new_session()).await;
                }
                if answer["error"].is_null() {
                    let prompt = text_prompt(&answer["result"]["sessionId"], "hello");
                    answer = client.request(2, "session/prompt", prompt).await;
                }
                assert_eq!(answer["error"]["data"]["code"], code, "{agent}: {answer}");
                let message = answer["error"]["message"].as_str().unwrap();
                for part in expected {
                    assert!(message.contains(part), "{agent}, shared: {shared_process}: {message}");
                }
                hub.shut_down().await;
            })
            .await;
        }
    }
}

/// The process of the first prompt ends, and the second prompt starts the agent again.
#[cfg(unix)]
#[tokio::test]
async fn the_error_after_a_failed_restart_has_its_status_and_its_stderr() {
    const AGENT: &str = r#"
        if [ -e started ]; then echo why >&2; exit 3; fi
        touch started
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().to_owned();
        let agent = [ANSWERS, AGENT, OPENING, "read -r line"].concat();
        let command = move || Command::new("sh").args(["-c", &agent]).cwd(&folder);
        let (hub, mut client, new) = opened(HubSettings::new(command, data.path())).await;
        let prompt = text_prompt(&new["result"]["sessionId"], "hello");
        for (id, expected) in [
            (2, "the agent ended with exit status: 0"),
            (3, "initialize failed: the agent ended with exit status: 3; its stderr ended with:\nwhy"),
        ] {
            let ended = client.request(id, "session/prompt", prompt.clone()).await;
            assert_eq!(ended["error"]["data"]["code"], "interrupted", "{ended}");
            assert_eq!(ended["error"]["message"], expected);
        }
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_stays_open_if_it_cannot_be_read_again() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let mut settings = settings(data.path(), 0);
        settings.policy.refuses_mcp_programs = true;
        let (hub, mut client, new) = opened(settings).await;
        let id = new["result"]["sessionId"].clone();
        let programs = json!([{"name": "a", "command": "/bin/true", "args": [], "env": []}]);
        let load = json!({"sessionId": id, "cwd": "/tmp", "mcpServers": programs});
        let refused = client.request(4, "session/load", load).await;
        assert!(refused["error"]["message"].to_string().contains("is a program"), "{refused}");
        let beyond = json!({"duologue": {"after": {"position": 1_000_000, "frames": 0}}});
        let resume = json!({"sessionId": id, "cwd": "/tmp", "mcpServers": [], "_meta": beyond});
        let refused = client.request(2, "session/resume", resume).await;
        assert_eq!(refused["error"]["data"]["code"], "cursor_gone", "{refused}");
        let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "hello"}]});
        assert_eq!(client.request(3, "session/prompt", prompt).await["result"]["stopReason"], "end_turn");
        hub.shut_down().await;
    })
    .await;
}
