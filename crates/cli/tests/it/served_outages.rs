//! Servers that are away for a while, and what clients and users notice of it.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::process::DUOLOGUE;
use crate::served::{RawClient, Server, prompt};

#[test]
fn a_client_that_ends_does_not_wait_for_a_server_that_is_away() {
    for transport in ["ws", "sse"] {
        let data = tempfile::tempdir().expect("a folder");
        let mut server = Server::start(data.path(), "0");
        let mut command = server.connect();
        command.args(["--transport", transport]).stderr(Stdio::piped());
        let mut client = RawClient::of(&mut command, &json!({}));
        client.session();
        server.kill();
        let mut log = client.log();
        let lost = log.next().expect("a line");
        assert!(lost.ends_with("the connection to the server was lost; trying again"), "{lost}");
        client.input = None;
        assert!(client.process.wait().expect("it ends").success());
        let rest: Vec<String> = log.collect();
        assert!(rest.len() == 1 && rest[0].contains("has not taken or answered"), "{rest:?}");
    }
}

#[test]
fn a_user_sees_that_the_server_is_lost() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "1000");
    let mut command = Command::new(DUOLOGUE);
    command.args(["run", "--json", "hello", "--", DUOLOGUE, "connect", "--token-file", &server.token]);
    command.arg(&server.url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("it starts");
    let mut output = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    // The turn has begun.
    assert!(output.any(|line| line.expect("UTF-8").contains("agent_thought_chunk")));
    server.kill();
    let mut log = BufReader::new(process.stderr.take().expect("a pipe")).lines();
    let lost = log.next().expect("a line").expect("UTF-8");
    process.kill().expect("it runs");
    process.wait().expect("it ended");
    assert_eq!(lost, "stderr: duologue connect: the connection to the server was lost; trying again");
}

#[test]
fn a_server_that_returns_is_logged_once_and_receives_the_prompt_of_the_outage() {
    for transport in ["ws", "sse"] {
        let data = tempfile::tempdir().expect("a folder");
        let mut server = Server::start(data.path(), "0");
        let mut command = server.connect();
        // The mock forgets its conversations.
        command.args(["--fresh", "--transport", transport]).stderr(Stdio::piped());
        let mut client = RawClient::of(&mut command, &json!({}));
        let session = client.session();
        server.kill();
        let mut log = client.log();
        assert!(log.next().expect("a line").ends_with("was lost; trying again"));
        let id = client.send("session/prompt", &prompt(&session, "hello"));
        let address = server.url.split('/').nth(2).expect("an address").to_owned();
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", &address, "--data"]).arg(data.path());
        let _server = Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", "0"]));
        assert!(log.next().expect("a line").contains("are resumed on another connection"));
        assert!(log.next().expect("a line").ends_with("the sessions were resumed"));
        let ended = std::iter::repeat_with(|| client.next()).find(|message| message["id"] == id);
        let ended = ended.expect("an answer");
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{transport} {ended}");
        client.input = None;
        assert_eq!(log.next(), None);
    }
}

/// The next server loses connections before it has answered `initialize`.
#[test]
#[cfg(target_os = "linux")]
fn a_client_reaches_a_server_that_returns_behind_a_bad_link() {
    for transport in ["ws", "sse"] {
        let data = tempfile::tempdir().expect("a folder");
        let mut server = Server::start(data.path(), "0");
        let address = server.url.split('/').nth(2).expect("an address").to_owned();
        let relay = crate::cut_relay::CutRelay::start(&address);
        let mut command = Command::new(DUOLOGUE);
        command.args(["connect", "--fresh", "--transport", transport, "--token-file", &server.token]);
        let mut client = RawClient::of(command.arg(format!("http://{}/acp", relay.address)), &json!({}));
        let session = client.session();
        server.kill();
        relay.loses_second.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", &address, "--data"]).arg(data.path());
        let _server = Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", "0"]));
        let (ended, _) = client.request_with("session/prompt", &prompt(&session, "hello"));
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{transport} {ended}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_connection_that_is_resumed_is_logged_once() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let address = |url: &str| url.split('/').nth(2).expect("an address").to_owned();
    let relay = crate::cut_relay::CutRelay::start(&address(&server.url));
    let mut command = Command::new(DUOLOGUE);
    command.args(["connect", "--token-file", &server.token, &format!("http://{}/acp", relay.address)]);
    let mut client = RawClient::of(command.stderr(Stdio::piped()), &json!({}));
    let session = client.session();
    assert!(relay.cut(|| true) > 0, "no connection");
    let mut log = client.log();
    assert!(log.next().expect("a line").ends_with("was lost; trying again"));
    assert!(log.next().expect("a line").ends_with("was resumed"));
    let (ended, _) = client.request_with("session/prompt", &prompt(&session, "hello"));
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    client.input = None;
    assert_eq!(log.next(), None);
}
