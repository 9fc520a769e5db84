//! A scripted agent behind a server that is started again, over each transport: what the agent sends around its answers, and
//! cancellations. Servers are killed, or end at a signal.
#![cfg(all(unix, feature = "serve"))]

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::run;
use crate::served::{RawClient, Server, prompt, text};
use crate::served_agents::{
    cancel, ends_turn, input, over_each_transport, refuse_loads, start, wait_for_text,
};

/// A server that a test starts again, with its client.
struct Served<'a> {
    server: Server,
    client: RawClient,
    data: &'a Path,
    options: &'a [&'a str],
    is_killed: bool,
    /// The transport, the options, the case and the kind of end.
    row: String,
}

impl Served<'_> {
    fn end(&mut self) {
        if self.is_killed { self.server.kill() } else { self.server.stop() }
    }

    /// Starts the next server at the same address.
    fn start(&mut self) {
        let address = self.server.url.split('/').nth(2).expect("an address").to_owned();
        self.server = start(&address, self.data, self.options);
    }

    /// Connects another client.
    fn other(&self) -> RawClient {
        RawClient::new(&self.server)
    }

    /// Loads a session for another client. Returns the messages before the answer.
    fn load(&self, other: &mut RawClient, session: &str) -> Vec<Value> {
        let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let (loaded, messages) = other.request_with("session/load", &params);
        assert!(loaded["result"].is_object(), "{}: {loaded}", self.row);
        messages
    }

    /// Returns the number of the last process, and the methods that it has received.
    fn last_process(&self) -> (String, Vec<String>) {
        let input = input(self.data);
        let last = input.last().expect("a message").0.clone();
        let of_last = input.iter().filter(|(process, _)| *process == last);
        let methods = of_last.map(|(_, line)| line["method"].as_str().expect("a method").to_owned());
        let methods = methods.collect();
        (last, methods)
    }

    fn has_received(&self, method: &str) -> bool {
        input(self.data).iter().any(|(_, line)| line["method"] == method)
    }
}

/// Runs both cases of a test over each transport. Each case and each transport has a server that is killed, and one that is
/// stopped. The servers of the second case have options.
fn over_restarts(options_of_second: &[&str], test: impl Fn(Served<'_>, bool) + Sync) {
    std::thread::scope(|scope| {
        for is_second in [false, true] {
            let test = &test;
            scope.spawn(move || {
                let options = if is_second { options_of_second } else { &[] };
                let options = [options, &["--drain", "0"]].concat();
                over_each_transport(&options, |data, server, client, transport| {
                    let is_killed = is_second == (transport == "ws");
                    let row = format!("{transport} {options:?}, second: {is_second}, is killed: {is_killed}");
                    test(Served { server, client, data, options: &options, is_killed, row }, is_second);
                });
            });
        }
    });
}

/// Returns the names of the commands in the updates.
fn commands(messages: &[Value]) -> Vec<&str> {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    updates.filter_map(|update| update["availableCommands"][0]["name"].as_str()).collect()
}

#[test]
fn what_an_agent_sends_around_its_answers_reaches_the_clients_of_the_next_server() {
    over_restarts(&["--shared"], |mut it, _| {
        let [fresh, kept] = [(); 2].map(|()| it.client.session());
        for session in [&kept, &fresh] {
            // The log has it, and it is possible that the client does not.
            let mut viewer = it.other();
            let seen = it.load(&mut viewer, session);
            if text(&seen).is_empty() {
                wait_for_text(&mut viewer, "first");
            }
        }
        let (former, _) = it.last_process();
        it.end();
        it.start();
        let (ended, messages) = it.client.request_with("session/prompt", &prompt(&kept, "hello"));
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{}: {ended}", it.row);
        let of_kept: Vec<Value> =
            messages.into_iter().filter(|message| message["params"]["sessionId"] == *kept).collect();
        let (next, _) = it.last_process();
        assert_eq!(text(&of_kept), "first", "{}", it.row);
        // Messages of the next process behind its answer to the load count too.
        let names = commands(&of_kept);
        assert!(names.len() == 2 && names[1] == next && next != former, "{}: {names:?} {next}", it.row);
        // A session that begins anew, and one that this server creates.
        refuse_loads(it.data, Some(&json!({"code": -32002, "message": "unknown session"})));
        let mut params = prompt(&fresh, "hello");
        params["_meta"] = json!({"duologue": {"fresh": true}});
        assert!(ends_turn(&mut it.client, &params).ends_with("first"), "{}", it.row);
        let new = it.client.session();
        assert_eq!(ends_turn(&mut it.client, &prompt(&new, "hello")), "first", "{}", it.row);
        // Another client, which loads the sessions.
        let mut other = it.other();
        for (session, expected) in [(&kept, "firsthello"), (&fresh, "firsthellofirst"), (&new, "firsthello")]
        {
            let seen = it.load(&mut other, session);
            let seen: Vec<Value> = seen
                .into_iter()
                .filter(|message| message["params"]["update"]["sessionUpdate"] != "notice")
                .collect();
            assert_eq!(text(&seen), expected, "{}", it.row);
            assert_eq!(commands(&seen).len(), 1, "{}: {seen:?}", it.row);
        }
    });
}

#[test]
fn a_cancelled_turn_does_not_survive_its_server() {
    over_restarts(&[], |mut it, is_of_other| {
        let session = it.client.session();
        let mut other = it.other();
        it.load(&mut other, &session);
        let id = it.client.send("session/prompt", &prompt(&session, "hang"));
        for client in [&mut it.client, &mut other] {
            wait_for_text(client, "hangs");
        }
        cancel(if is_of_other { &mut other } else { &mut it.client }, &session);
        // The agent has it, and goes on.
        for client in [&mut it.client, &mut other] {
            wait_for_text(client, "kept");
        }
        it.end();
        it.start();
        let answer = std::iter::repeat_with(|| it.client.next()).find(|message| message["id"] == id);
        let answer = answer.expect("an answer");
        assert_eq!(answer["error"]["data"]["code"], "interrupted", "{}: {answer}", it.row);
        // The session is free for each of its clients.
        for client in [&mut other, &mut it.client] {
            ends_turn(client, &prompt(&session, "hello"));
        }
        let (_, methods) = it.last_process();
        let expected = ["initialize", "session/load", "session/prompt", "session/prompt"];
        assert_eq!(methods, expected, "{}", it.row);
    });
}

/// The agent of the next server does not answer when it loads the session.
#[test]
fn a_prompt_that_waits_for_the_agent_of_the_next_server_can_be_cancelled() {
    over_restarts(&[], |mut it, is_of_other| {
        let session = it.client.session();
        ends_turn(&mut it.client, &prompt(&session, "hello"));
        it.end();
        let gate = it.data.join("gate");
        run(Command::new("mkfifo").arg(&gate), "");
        it.start();
        let mut other = it.other();
        it.load(&mut other, &session);
        let id = it.client.send("session/prompt", &prompt(&session, "cancelled"));
        if is_of_other {
            wait_for_text(&mut other, "cancelled");
            cancel(&mut other, &session);
        } else {
            cancel(&mut it.client, &session);
        }
        let answer = std::iter::repeat_with(|| it.client.next()).find(|message| message["id"] == id);
        let answer = answer.expect("an answer");
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{}: {answer}", it.row);
        // The next prompt waits for the same process.
        let id = other.send("session/prompt", &prompt(&session, "hello"));
        // A pipe that is open in both directions waits for no reader.
        let mut gate = std::fs::File::options().read(true).write(true).open(gate).expect("the pipe");
        std::io::Write::write_all(&mut gate, b"\n").expect("the agent reads it");
        let answer = std::iter::repeat_with(|| other.next()).find(|message| message["id"] == id);
        let answer = answer.expect("an answer");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{}: {answer}", it.row);
        let (_, methods) = it.last_process();
        assert_eq!(methods, ["initialize", "session/load", "session/prompt"], "{}", it.row);
    });
}

#[test]
fn a_cancellation_around_a_restart_of_the_server_does_not_end_the_next_turn() {
    over_restarts(&[], |mut it, has_turn_before| {
        let session = it.client.session();
        if has_turn_before {
            ends_turn(&mut it.client, &prompt(&session, "hello"));
        }
        let stop = |client: &mut RawClient| {
            cancel(client, &session);
            // A request that was answered long ago.
            let params = json!({"requestId": 2});
            client.write(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}));
        };
        stop(&mut it.client);
        it.end();
        stop(&mut it.client);
        it.start();
        stop(&mut it.client);
        // The server has read them.
        it.client.request("session/list", &json!({}));
        let mut other = it.other();
        it.load(&mut other, &session);
        for _ in 0..2 {
            stop(&mut other);
            ends_turn(&mut other, &prompt(&session, "hello"));
            stop(&mut it.client);
            ends_turn(&mut it.client, &prompt(&session, "hello"));
        }
        for method in ["session/cancel", "$/cancel_request"] {
            assert!(!it.has_received(method), "{}: {method}", it.row);
        }
    });
}
