//! Scripted agents behind a server and `duologue connect`, over each transport: the beginning of a session, cancellations, and
//! errors of a load.
#![cfg(all(unix, feature = "serve"))]

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::DUOLOGUE;
use crate::served::{RawClient, Server, prompt, text};

/// An agent that sends an update directly behind its answer to `session/new`, and keeps a cancellation for the next turn. It
/// does not end the turn of the prompt `hang`. Loads fail with the error in the file `refusal`. The file `input` has each
/// message behind the number of the process.
const AGENT: &str = r#"
    cd "${0%/*}"
    update() {
        chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'$1'"}}'
        printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":%s}}' "$session" "$chunk"
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
                outcome='"result":{"sessionId":"'$session'"}'; behind=$(update first);;
            *session/load*) [ -e refusal ] && outcome='"error":'$(cat refusal);;
            *session/cancel*) reason=cancelled; printf '%s\n' "$(update kept)"; continue;;
            *'"hang"'*) printf '%s\n' "$(update hangs)"; continue;;
            *'"exit"'*) exit 3;;
            *session/prompt*) outcome='"result":{"stopReason":"'${reason:-end_turn}'"}'; reason=;;
        esac
        printf '{"jsonrpc":"2.0","id":%s,%s}\n%s' "$id" "$outcome" "${behind:+$behind
}"
    done
"#;

/// Starts a server at an address.
fn start(address: &str, data: &Path, options: &[&str]) -> Server {
    let script = data.join("agent");
    std::fs::write(&script, AGENT).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", address, "--data"]).arg(data).args(options);
    Server::of(command.args(["--", "sh"]).arg(script))
}

/// Runs a test with a server and a client over each transport.
fn over_each_transport(options: &[&str], test: impl Fn(&Path, Server, RawClient, &str) + Sync) {
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
fn ends_turn(client: &mut RawClient, params: &Value) -> String {
    let (ended, messages) = client.request_with("session/prompt", params);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    text(&messages)
}

/// Sends a prompt with which the agent ends.
fn end_agent(client: &mut RawClient, session: &str) {
    let ended = client.request("session/prompt", &prompt(session, "exit"));
    assert_eq!(ended["error"]["data"]["code"], "interrupted", "{ended}");
}

fn cancel(client: &mut RawClient, session: &str) {
    let params = json!({"sessionId": session});
    client.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
}

/// Waits for a text of the agent.
fn wait_for_text(client: &mut RawClient, expected: &str) {
    while text(&[client.next()]) != expected {}
}

/// Returns the messages to the agent, each behind the number of its process.
fn input(data: &Path) -> Vec<(String, Value)> {
    let input = std::fs::read_to_string(data.join("input")).expect("it ran");
    let lines = input.lines().map(|line| line.split_once(' ').expect("a number"));
    lines.map(|(process, line)| (process.to_owned(), serde_json::from_str(line).expect("JSON"))).collect()
}

/// Replaces the error of loads. Without one they succeed.
fn refuse_loads(data: &Path, error: Option<&Value>) {
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
fn a_cancelled_turn_does_not_survive_its_server() {
    for is_killed in [true, false] {
        over_each_transport(&["--drain", "0"], |data, mut server, mut client, transport| {
            let session = client.session();
            let id = client.send("session/prompt", &prompt(&session, "hang"));
            wait_for_text(&mut client, "hangs");
            cancel(&mut client, &session);
            // The agent has it, and goes on.
            wait_for_text(&mut client, "kept");
            if is_killed {
                server.kill()
            } else {
                server.stop()
            }
            let address = server.url.split('/').nth(2).expect("an address").to_owned();
            let _next = start(&address, data, &[]);
            let answer = std::iter::repeat_with(|| client.next()).find(|message| message["id"] == id);
            let answer = answer.expect("an answer");
            assert_eq!(answer["error"]["data"]["code"], "interrupted", "{transport}, {is_killed}: {answer}");
            ends_turn(&mut client, &prompt(&session, "hello"));
            let input = input(data);
            let (last, _) = input.last().expect("a message");
            let methods: Vec<&Value> = input
                .iter()
                .filter(|(process, _)| process == last)
                .map(|(_, line)| &line["method"])
                .collect();
            assert_eq!(methods, ["initialize", "session/load", "session/prompt"], "{transport}, {is_killed}");
        });
    }
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
