//! The logs of sessions that a server or a hub has written: shown by `duologue show`, and removed by `--keep`.
#![cfg(all(unix, feature = "serve"))]

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::gateway::until;
use crate::process::{DUOLOGUE, run, shown};
use crate::served::{RawClient, Server, prompt, start_hub};

/// Runs `duologue show` on a folder.
fn show(args: &[&str], folder: &Path) -> String {
    shown(&run(Command::new(DUOLOGUE).arg("show").args(args).arg(folder), ""))
}

/// The log has two files: one of a server that was killed, and one of the next.
#[test]
fn the_folder_of_a_session_of_a_server_is_shown() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    let session = client.session();
    client.request("session/prompt", &prompt(&session, "a first question"));
    server.kill();
    drop(client);
    let mut server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    client.request("session/load", &json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []}));
    let mut second = prompt(&session, "a second question");
    second["_meta"] = json!({"duologue": {"fresh": true}});
    let ended = client.request("session/prompt", &second);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    drop(client);
    server.stop();

    let folder = data.path().join("sessions").join(&session);
    let text = show(&[], &folder);
    for question in ["a first question", "a second question"] {
        for line in [format!("→ session/prompt \"{question}\""), format!("You said: {question}")] {
            assert_eq!(text.matches(&line).count(), 1, "{text}");
        }
    }
    assert!(
        text.find("a first question") < text.find("a second question") && text.ends_with("exit 0"),
        "{text}"
    );
    let redacted = show(&["--redact"], &folder);
    assert!(redacted.ends_with("exit 0") && !redacted.contains(&session), "{redacted}");
    let script = show(&["--json"], &folder);
    let script = script.strip_suffix("exit 0").expect("the end");
    assert!(serde_json::from_str::<Value>(script).is_ok(), "{script}");
    let page = show(&["--html"], &folder);
    assert!(page.contains("<html") && page.contains("a second question"), "{page}");
    // The folder of the server has no log itself.
    let other = show(&[], data.path());
    assert!(other.contains("the folder of a session of a server") && !other.ends_with("exit 0"), "{other}");
}

#[test]
fn the_folder_of_a_session_of_a_hub_is_shown() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = start_hub(data.path());
    let mut client = RawClient::new(&server);
    let new = client.request("session/new", &json!({"cwd": data.path(), "mcpServers": []}));
    let session = new["result"]["sessionId"].as_str().expect("an id");
    client.request("session/prompt", &prompt(session, "hello"));
    drop(client);
    server.stop();
    let folder = data.path().join("agents/writer/sessions").join(session);
    let (text, state) = (show(&[], &folder), show(&["--fold"], &folder));
    for shown in [&text, &state] {
        assert!(shown.contains("hello") && shown.contains("Hello!") && shown.ends_with("exit 0"), "{shown}");
    }
}

#[test]
fn sessions_are_kept_for_as_many_days_as_asked() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    let (old, fresh) = (client.session(), client.session());
    for session in [&old, &fresh] {
        client.request("session/prompt", &prompt(session, "hello"));
    }
    drop(client);
    server.stop();
    // The list is made again of the entries of the logs.
    let logs = data.path().join("sessions");
    for file in ["index.sqlite", "index.sqlite-wal", "index.sqlite-shm"] {
        let _ = std::fs::remove_file(logs.join(file));
    }
    let folder = logs.join(&old);
    for file in std::fs::read_dir(&folder).expect("a log") {
        let file = file.expect("a file").path();
        if file.extension().is_some_and(|extension| extension == "json") {
            let mut entry: Value =
                serde_json::from_slice(&std::fs::read(&file).expect("an entry")).expect("JSON");
            (entry["created"], entry["updated"]) = (json!(0), json!(0));
            std::fs::write(&file, entry.to_string()).expect("a change");
        }
        File::options()
            .append(true)
            .open(&file)
            .expect("a file")
            .set_modified(SystemTime::UNIX_EPOCH)
            .expect("a time");
    }
    let start = |days: &str| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--keep", days, "--data"]).arg(data.path());
        command.args(["--", DUOLOGUE, "mock"]);
        command
    };
    let refused = shown(&run(&mut start("0"), ""));
    assert!(refused.contains("--keep") && refused.ends_with("exit 2"), "{refused}");
    assert!(folder.exists());
    let _server = Server::of(&mut start("1"));
    until(|| !folder.exists());
    assert!(logs.join(&fresh).is_dir());
}
