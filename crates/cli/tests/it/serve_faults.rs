//! A server without what it gets from its system: space in its output, descriptors, places for connections.
#![cfg(all(target_os = "linux", feature = "serve"))]

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::process::{DUOLOGUE, run, shown};
use crate::served::{RawClient, Server};

/// Opens connections to a server that send nothing, until its log has a text.
fn connect_until(server: &Server, log: &Path, expected: &str) {
    let address = server.url.trim_start_matches("http://").trim_end_matches("/acp");
    let mut open = Vec::new();
    while !std::fs::read_to_string(log).expect("a log").contains(expected) {
        assert!(open.len() < 10_000, "{expected:?} is not logged");
        open.push(TcpStream::connect(address).expect("it listens"));
    }
}

/// Starts a server with a limit of open files, whose log is in a file.
fn with_descriptors(limit: u32, data: &Path, log: &Path) -> Server {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n "$0"; exec "$@""#]).arg(limit.to_string()).arg(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.join("data"));
    Server::of(command.args(["--", DUOLOGUE, "mock"]).stderr(std::fs::File::create(log).expect("a file")))
}

#[test]
fn strangers_that_lose_their_places_are_logged() {
    let data = tempfile::tempdir().expect("a folder");
    let log = data.path().join("log");
    let server = with_descriptors(1024, data.path(), &log);
    connect_until(&server, &log, "newer connections took its place (`ServerOptions::strangers`)");
}

#[test]
fn a_server_without_descriptors_says_so() {
    let data = tempfile::tempdir().expect("a folder");
    let log = data.path().join("log");
    let server = with_descriptors(50, data.path(), &log);
    connect_until(&server, &log, "a connection was not accepted; clients wait");
}

#[test]
fn a_session_without_descriptors_is_logged() {
    let data = tempfile::tempdir().expect("a folder");
    let log = data.path().join("log");
    let server = with_descriptors(64, data.path(), &log);
    let mut client = RawClient::new(&server);
    let refused = (0..64).map(|_| client.request("session/new", &json!({"cwd": "/tmp", "mcpServers": []})));
    let refused = refused.filter(|response| response["error"].is_object()).take(3).last();
    let logged = std::fs::read_to_string(&log).expect("a log");
    assert!(logged.contains("a request has failed at the limit of open files"), "{refused:?} {logged}");
}

#[test]
fn a_server_whose_output_nobody_reads_goes_on() {
    /// The bytes in a pipe.
    const PIPE: usize = 65_536;
    let state = tempfile::tempdir().expect("a folder");
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[b'x'; PIPE]).expect("space");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--", DUOLOGUE, "mock"]).env("XDG_STATE_HOME", state.path());
    let mut process = command.stdout(writer).spawn().expect("it starts");
    let hello = ["run", "hello", "--", DUOLOGUE, "connect", "--wait", "10"];
    let said = shown(&run(Command::new(DUOLOGUE).args(hello).env("XDG_STATE_HOME", state.path()), ""));
    run(Command::new("kill").arg(process.id().to_string()), "");
    assert!(process.wait().expect("it ended").success() && said.contains("Hello!"), "{said}");
}
