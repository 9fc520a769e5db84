//! A scripted agent behind a server and `duologue connect`, over each transport: the beginning of a session, cancellations, ids
//! of requests, and errors of a load.
#![cfg(all(unix, feature = "serve"))]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::DUOLOGUE;
use crate::served::{RawClient, Server, prompt, text};

/// An agent that sends an update directly behind its answer to `session/new`, and keeps a cancellation for the next turn. It
/// does not end the turn of the prompt `hang`, and that of `wait` when it is cancelled. Its answer to `breaks` has line breaks of
/// other kinds than those of the protocol. The commands of a session, which it sends
/// behind the answer that opens it, are named like the process. Loads fail with the error in the file `refusal`, and wait for a
/// line in the pipe `gate`. The file `input` has each message behind the number of the process.
const AGENT: &str = r#"
    cd "${0%/*}"
    notify() {
        printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":%s}}' "$session" "$1"
    }
    update() {
        notify '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'$1'"}}'
    }
    commands() {
        notify '{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"'$$'","description":"d"}]}'
    }
    while IFS= read -r line; do
        printf '%s %s\n' "$$" "$line" >> input
        id=${line#*\"id\":}; id=${id%%,*}
        session=${line#*\"sessionId\":\"}; session=${session%%\"*}
        outcome='"result":{}'; behind=
        case "$line" in
            *'"method":"$/'*) continue;;
            *'"initialize"'*) outcome='"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}';;
            *session/new*)
                count=$((count + 1)); session=$$-$count
                outcome='"result":{"sessionId":"'$session'"}'; behind=$(commands; echo; update first);;
            *session/load*)
                [ -p gate ] && read -r _ < gate
                if [ -e refusal ]; then outcome='"error":'$(cat refusal); else behind=$(commands); fi;;
            *session/cancel*)
                reason=cancelled; printf '%s\n' "$(update kept)"
                [ "$waiting" ] || continue
                id=$waiting; waiting=; outcome='"result":{"stopReason":"cancelled"}'; reason=;;
            *'"wait"'*) waiting=$id; printf '%s\n' "$(update waits)"; continue;;
            *'"hang"'*) printf '%s\n' "$(update hangs)"; continue;;
            *'"breaks"'*)
                update "a$(printf '\342\200\250')b$(printf '\302\205')c" | sed "s/,/,$(printf '\r')/g"; echo
                outcome='"result":{"stopReason":"end_turn"}';;
            *'"exit"'*) exit 3;;
            *session/prompt*) outcome='"result":{"stopReason":"'${reason:-end_turn}'"}'; reason=;;
        esac
        printf '{"jsonrpc":"2.0","id":%s,%s}\n%s' "$id" "$outcome" "${behind:+$behind
}"
    done
"#;

/// Starts a server at an address.
pub(crate) fn start(address: &str, data: &Path, options: &[&str]) -> Server {
    let script = data.join("agent");
    std::fs::write(&script, AGENT).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", address, "--data"]).arg(data).args(options);
    Server::of(command.args(["--", "sh"]).arg(script))
}

/// Runs a test with a server and a client over each transport.
pub(crate) fn over_each_transport(options: &[&str], test: impl Fn(&Path, Server, RawClient, &str) + Sync) {
    std::thread::scope(|scope| {
        for transport in ["ws", "sse"] {
            let test = &test;
            scope.spawn(move || {
                let data = tempfile::tempdir().expect("a folder");
                let server = start("127.0.0.1:0", data.path(), options);
                let client = RawClient::of(server.connect().args(["--transport", transport]), &json!({}));
                test(data.path(), server, client, transport);
            });
        }
    });
}

/// Sends a prompt, which the agent ends. Returns the texts before the answer.
pub(crate) fn ends_turn(client: &mut RawClient, params: &Value) -> String {
    let (ended, messages) = client.request_with("session/prompt", params);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    text(&messages)
}

/// Sends a prompt with which the agent ends.
pub(crate) fn end_agent(client: &mut RawClient, session: &str) {
    let ended = client.request("session/prompt", &prompt(session, "exit"));
    assert_eq!(ended["error"]["data"]["code"], "interrupted", "{ended}");
}

pub(crate) fn cancel(client: &mut RawClient, session: &str) {
    let params = json!({"sessionId": session});
    client.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
}

/// Waits for a text of the agent.
pub(crate) fn wait_for_text(client: &mut RawClient, expected: &str) {
    while text(&[client.next()]) != expected {}
}

/// Returns the messages to the agent, each behind the number of its process.
pub(crate) fn input(data: &Path) -> Vec<(String, Value)> {
    let input = std::fs::read_to_string(data.join("input")).expect("it ran");
    let lines = input.lines().map(|line| line.split_once(' ').expect("a number"));
    lines.map(|(process, line)| (process.to_owned(), serde_json::from_str(line).expect("JSON"))).collect()
}

/// Replaces the error of loads. Without one they succeed.
pub(crate) fn refuse_loads(data: &Path, error: Option<&Value>) {
    let file = data.join("refusal");
    match error {
        Some(error) => std::fs::write(file, error.to_string()).expect("a file"),
        None => std::fs::remove_file(file).expect("it is there"),
    }
}

#[test]
fn the_first_update_of_a_session_reaches_its_client() {
    for options in [&[][..], &["--shared"]] {
        over_each_transport(options, |data, _server, mut client, transport| {
            let first = client.session();
            assert_eq!(ends_turn(&mut client, &prompt(&first, "hello")), "first", "{transport} {options:?}");
            end_agent(&mut client, &first);
            // The next process begins it anew, and another session too.
            refuse_loads(data, Some(&json!({"code": -32002, "message": "unknown session"})));
            let mut fresh = prompt(&first, "hello");
            fresh["_meta"] = json!({"duologue": {"fresh": true}});
            assert_eq!(ends_turn(&mut client, &fresh), "first", "{transport} {options:?}");
            let second = client.session();
            assert_eq!(ends_turn(&mut client, &prompt(&second, "hello")), "first", "{transport} {options:?}");
            assert_eq!(ends_turn(&mut client, &prompt(&first, "hello")), "", "{transport} {options:?}");
        });
    }
}

#[test]
fn line_breaks_inside_a_message_are_no_ends_of_it() {
    over_each_transport(&[], |_, server, mut client, transport| {
        let session = client.session();
        wait_for_text(&mut client, "first");
        let expected = "a\u{2028}b\u{85}c";
        assert_eq!(ends_turn(&mut client, &prompt(&session, "breaks")), expected, "{transport}");
        let mut other = RawClient::of(server.connect().args(["--transport", transport]), &json!({}));
        let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let (_, messages) = other.request_with("session/load", &params);
        assert!(text(&messages).ends_with(expected), "{transport}: {messages:?}");
    });
}

#[test]
fn a_cancellation_without_a_turn_does_not_end_the_next_one() {
    over_each_transport(&[], |data, _server, mut client, transport| {
        let session = client.session();
        for restarts in [false, true] {
            if restarts {
                end_agent(&mut client, &session);
            }
            for _ in 0..2 {
                cancel(&mut client, &session);
                ends_turn(&mut client, &prompt(&session, "hello"));
            }
        }
        let has_cancel = input(data).iter().any(|(_, line)| line["method"] == "session/cancel");
        assert!(!has_cancel, "{transport}: {:?}", input(data));
    });
}

#[test]
fn the_error_of_a_load_is_passed_on() {
    over_each_transport(&[], |data, _server, mut client, transport| {
        let session = client.session();
        end_agent(&mut client, &session);
        for (code, message, data_of_agent) in [
            (-32000, "login required", json!({"provider": "a"})),
            (-32603, "backend unreachable", json!({"attempts": 3})),
            (-32002, "unknown session", Value::Null),
        ] {
            refuse_loads(data, Some(&json!({"code": code, "message": message, "data": data_of_agent})));
            // Each prompt starts the agent again.
            for _ in 0..2 {
                let refused = client.request("session/prompt", &prompt(&session, "hello"));
                let error = &refused["error"];
                let text = error["message"].as_str().unwrap_or_default();
                assert!(text.contains(message), "{transport}: {refused}");
                let expected = match code {
                    -32000 => (code, data_of_agent.clone()),
                    -32603 => {
                        let data =
                            json!({"code": "restore_failed", "retryable": true, "agent": data_of_agent});
                        (code, data)
                    }
                    _ => (-32603, json!({"code": "context_lost", "retryable": false})),
                };
                assert_eq!(
                    (error["code"].as_i64(), &error["data"]),
                    (Some(expected.0), &expected.1),
                    "{transport}"
                );
            }
        }
        // Nothing is lost if the agent knows the conversation after all.
        refuse_loads(data, None);
        ends_turn(&mut client, &prompt(&session, "hello"));
    });
}

#[test]
fn a_cancellation_in_one_write_with_its_prompt_ends_the_turn() {
    over_each_transport(&[], |data, _server, mut client, transport| {
        let session = client.session();
        for is_started_again in [false, true] {
            if is_started_again {
                end_agent(&mut client, &session);
            }
            let params = json!({"sessionId": session});
            let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
            let turn = prompt(&session, "wait");
            let turn = json!({"jsonrpc": "2.0", "id": 10, "method": "session/prompt", "params": turn});
            let both = format!("{turn}\n{cancel}\n");
            let input = client.input.as_mut().expect("it is open");
            input.write_all(both.as_bytes()).expect("it reads");
            let ended = std::iter::repeat_with(|| client.next()).find(|message| message["id"] == 10);
            let ended = ended.expect("an answer");
            assert_eq!(ended["result"]["stopReason"], "cancelled", "{transport}: {ended}");
            ends_turn(&mut client, &prompt(&session, "hello"));
        }
        // The agent that was being started has not received the turn.
        let input = input(data);
        let waits = input.iter().filter(|(_, line)| line["params"]["prompt"][0]["text"] == "wait");
        assert_eq!(waits.count(), 1, "{transport}");
    });
}

/// A response is found by its id and its session, however often a client uses the id.
#[test]
fn an_id_can_be_used_again_for_another_request() {
    for options in [&[][..], &["--shared"]] {
        over_each_transport(options, |_, _server, mut client, transport| {
            fn request(client: &mut RawClient, method: &str, params: &Value) -> (Value, Vec<Value>) {
                client.requests = 0;
                client.request_with(method, params)
            }
            let sessions = [(); 2].map(|()| {
                let (new, _) = request(&mut client, "session/new", &json!({"cwd": "/tmp", "mcpServers": []}));
                wait_for_text(&mut client, "first");
                new["result"]["sessionId"].as_str().expect("an id").to_owned()
            });
            let row = format!("{transport} {options:?}");
            for restarts in [false, true] {
                for session in &sessions {
                    if restarts {
                        let (ended, _) = request(&mut client, "session/prompt", &prompt(session, "exit"));
                        assert_eq!(ended["error"]["data"]["code"], "interrupted", "{row}: {ended}");
                    }
                    for _ in 0..2 {
                        let (ended, messages) =
                            request(&mut client, "session/prompt", &prompt(session, "hello"));
                        assert_eq!(ended["result"]["stopReason"], "end_turn", "{row}: {ended}");
                        assert_eq!(text(&messages), "", "{row}");
                    }
                    let (listed, _) = request(&mut client, "session/list", &json!({}));
                    assert!(listed["result"]["sessions"].is_array(), "{row}: {listed}");
                    // A second request has the id of one that runs.
                    client.requests = 0;
                    client.send("session/prompt", &prompt(session, "wait"));
                    wait_for_text(&mut client, "waits");
                    let (refused, _) = request(&mut client, "session/prompt", &prompt(session, "hello"));
                    assert_eq!(refused["error"]["data"]["code"], "busy", "{row}: {refused}");
                    cancel(&mut client, session);
                    wait_for_text(&mut client, "kept");
                    let ended = client.next();
                    let outcome = (&ended["id"], &ended["result"]["stopReason"]);
                    assert_eq!(outcome, (&json!(1), &json!("cancelled")), "{row}: {ended}");
                }
            }
            client.requests = 1;
            let (listed, messages) = client.request_with("session/list", &json!({}));
            assert!(listed["result"].is_object() && messages.is_empty(), "{row}: {messages:?}");
        });
    }
}
