//! `duologue agents`, `tasks`, `inbox` and `dead-letters` with a hub of its own.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::{DUOLOGUE, run, shown};
use crate::served::Server;
use crate::served::start_hub;

/// A hub, and the key with which the commands use it.
struct Hub {
    server: Server,
    url: String,
    key: PathBuf,
}

impl Hub {
    fn start(data: &Path) -> Self {
        let server = start_hub(data);
        let url = server.url.strip_suffix("/acp").expect("the path of the first agent").to_owned();
        let key = PathBuf::from(&server.token);
        Hub { server, url, key }
    }

    /// Runs a command, and returns its output and exit code.
    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new(DUOLOGUE);
        command.args(args).args(["--hub", &self.url, "--token-file"]).arg(&self.key);
        shown(&run(&mut command, ""))
    }

    /// Runs a command that succeeds, and returns what it prints.
    #[track_caller]
    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = output.strip_suffix("exit 0");
        text.unwrap_or_else(|| panic!("{args:?}: {output}")).to_owned()
    }

    /// Runs a command with `--json`, and returns its lines.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let text = self.text(&[args, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

#[test]
fn agents_are_listed_and_shown() {
    let data = tempfile::tempdir().expect("a folder");
    let hub = Hub::start(data.path());
    let listed = hub.text(&["agents"]);
    assert!(listed.contains("reviewer  online  /acp/reviewer  review\n"), "{listed}");
    assert!(listed.contains("writer    online  /acp/writer    text, plan\n"), "{listed}");
    let found = hub.json(&["agents", "list", "--capability", "review"]);
    assert_eq!((found.len(), &found[0]["agentId"]), (1, &json!("reviewer")));
    assert_eq!(hub.json(&["agents", "show", "writer"])[0]["metadata"]["version"], "1.0.0");
    assert!(hub.text(&["agents", "show", "writer"]).contains("domains: writing\n"));
    // An option may be in front of the verb.
    let first = hub.text(&["agents", "--json", "list", "--limit", "1"]);
    assert!(first.starts_with('{') && first.lines().count() == 1, "{first}");
}

#[test]
fn an_agent_is_registered_shows_its_state_and_is_removed() {
    let data = tempfile::tempdir().expect("a folder");
    let hub = Hub::start(data.path());
    let card = ["--tag", "demo", "--provider", "us", "--agent-version", "2"];
    let options =
        [&["agents", "register", "translator", "--capability", "a", "--capability", "b"], &card[..]];
    let registered = hub.text(&options.concat());
    assert!(registered.starts_with("translator: online\nendpoint: /agents/translator\n"), "{registered}");
    assert!(
        registered.contains("capabilities: a, b\ntags: demo\nprovider: us\nversion: 2\n"),
        "{registered}"
    );
    let busy = hub.text(&["agents", "heartbeat", "translator", "--status", "busy"]);
    assert_eq!(busy, "translator: busy\n");
    let refused = hub.run(&["agents", "heartbeat", "writer"]);
    assert!(refused.contains("configuration of the server") && refused.ends_with("exit 1"), "{refused}");
    assert_eq!(hub.text(&["agents", "remove", "translator"]), "translator: removed\n");
    let gone = hub.run(&["agents", "heartbeat", "translator", "--every", "3600"]);
    assert!(gone.contains("not_found") && gone.ends_with("exit 1"), "{gone}");
}

#[test]
fn a_task_is_followed_over_a_restart_of_the_hub() {
    let data = tempfile::tempdir().expect("a folder");
    let mut hub = Hub::start(data.path());
    hub.text(&["tasks", "create", "reviewer", "go", "--id", "t1"]);
    let mut command = Command::new(DUOLOGUE);
    command.args(["tasks", "watch", "reviewer", "t1", "--data"]).arg(data.path());
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut wait_for = |text: &str| {
        for line in lines.by_ref() {
            if line.expect("UTF-8").contains(text) {
                return;
            }
        }
        panic!("it ends without {text:?}");
    };
    wait_for("t1: input_required");
    hub.server.kill();
    let mut log = BufReader::new(watch.stderr.take().expect("a pipe")).lines();
    let lost = log.next().expect("a line").expect("UTF-8");
    assert!(lost.contains("connection to the hub was lost"), "{lost}");
    hub.server = start_hub(data.path());
    wait_for("t1: failed");
    assert_eq!(watch.wait().expect("it ends").code(), Some(1));
}

#[test]
fn a_task_is_followed_answered_and_cancelled() {
    let data = tempfile::tempdir().expect("a folder");
    let hub = Hub::start(data.path());
    let watched = hub.text(&["tasks", "create", "writer", "plan", "--id", "t1", "--watch"]);
    let (streamed, end) = watched.split_once("t1: completed, 100%\n").expect("its end");
    // The result is the text that was printed already.
    assert!(streamed.contains("plan") && end.is_empty(), "{watched}");
    let listed = hub.json(&["tasks", "list", "writer", "--state", "completed"]);
    assert_eq!((listed.len(), &listed[0]["taskId"]), (1, &json!("t1")));
    // So it is with two messages, and without a draft that was withdrawn.
    let watched = hub.text(&["tasks", "create", "writer", "thoughts", "--watch"]);
    assert!(watched.contains("\n\n") && watched.trim_end().ends_with("completed, 100%"), "{watched}");
    let watched = hub.text(&["tasks", "create", "writer", "hello", "--watch"]);
    assert!(watched.contains("(the agent withdraws this message)\n"), "{watched}");
    let events = hub.json(&["tasks", "watch", "writer", "t1"]);
    assert!(events.iter().any(|event| event["data"]["update"]["sessionUpdate"] == "plan"), "{events:?}");
    assert_eq!(events.last().expect("an end")["event"], "end");

    assert_eq!(hub.text(&["tasks", "create", "reviewer", "go", "--id", "t2"]), "t2\n");
    let shown = loop {
        let shown = hub.text(&["tasks", "show", "reviewer", "t2"]);
        if shown.contains("question") {
            break shown;
        }
    };
    assert!(shown.contains("t2: input_required") && shown.contains("allow-once ("), "{shown}");
    let refused = hub.run(&["tasks", "answer", "reviewer", "t2", "maybe"]);
    assert!(
        refused.contains("use one of ") && refused.contains("allow-once") && refused.ends_with("exit 2"),
        "{refused}"
    );
    assert!(hub.text(&["tasks", "answer", "reviewer", "t2", "allow-once"]).ends_with(": answered\n"));
    assert!(hub.text(&["tasks", "watch", "reviewer", "t2"]).contains("t2: completed"));

    hub.text(&["tasks", "create", "writer", "cancel", "--id", "t3", "--priority", "high"]);
    assert!(hub.text(&["tasks", "cancel", "writer", "t3"]).starts_with("t3: cancel"));
    let ended = hub.run(&["tasks", "watch", "writer", "t3"]);
    assert!(ended.contains("t3: cancelled") && ended.ends_with("exit 1"), "{ended}");
    let refused = hub.run(&["tasks", "cancel", "writer", "t1"]);
    assert!(refused.contains("already_finished") && refused.ends_with("exit 1"), "{refused}");
}

#[test]
fn a_message_is_sent_taken_and_acknowledged() {
    let data = tempfile::tempdir().expect("a folder");
    let hub = Hub::start(data.path());
    let sent = [
        "messages",
        "send",
        "writer",
        "hello",
        "--sync",
        "--ttl",
        "1m",
        "--group",
        "g",
        "--correlation",
        "c",
        "--retry",
    ];
    let answer = hub.text(&sent);
    assert!(answer.contains("Hello!"), "{answer}");

    hub.text(&["agents", "register", "translator"]);
    assert_eq!(hub.text(&["inbox", "send", "translator", "water", "--id", "m1"]), "m1: received\n");
    hub.text(&["inbox", "send", "translator", "{\"word\": \"fire\"}", "--id", "m2", "--type", "inform"]);
    let listed = hub.text(&["inbox", "list", "translator", "--limit", "1"]);
    assert!(listed.contains("m1  received  local  water\n") && listed.contains("--offset 1"), "{listed}");
    let claimed = hub.json(&["inbox", "claim", "translator", "--max", "2", "--wait", "5s"]);
    assert_eq!(claimed[1]["message"]["content"], json!({"word": "fire"}));
    let lease = |message: usize| claimed[message]["lease"].as_str().expect("a lease");
    let wrong = hub.run(&["inbox", "ack", "translator", "m1", lease(1)]);
    assert!(wrong.contains("not that of this message") && wrong.ends_with("exit 1"), "{wrong}");
    let ended = hub.text(&["inbox", "ack", "translator", "m1", lease(0), "--response", "eau"]);
    assert_eq!(ended, "m1: completed\n");
    assert!(hub.text(&["inbox", "show", "translator", "m1"]).contains("answer: eau\n"));

    let dead = ["inbox", "nack", "translator", "m2", lease(1), "--dead", "--error", "too_hot: no"];
    assert_eq!(hub.text(&dead), "m2: error\n");
    assert!(hub.text(&["dead-letters", "list", "translator"]).contains("m2  error  local"));
    assert_eq!(hub.json(&["dead-letters", "list", "translator", "--tasks"]).len(), 0);
    let absent = hub.run(&["dead-letters", "resend", "translator", "m9"]);
    assert!(absent.contains("; a task needs `--task`") && absent.ends_with("exit 1"), "{absent}");
    assert_eq!(hub.text(&["dead-letters", "resend", "translator", "m2"]), "m2: sent again\n");
    let again = hub.run(&["dead-letters", "drop", "translator", "m2"]);
    assert!(again.contains("not a dead letter") && again.ends_with("exit 1"), "{again}");
    let lease = hub.json(&["inbox", "claim", "translator"])[0]["lease"].as_str().expect("a lease").to_owned();
    hub.text(&["inbox", "nack", "translator", "m2", &lease, "--dead"]);
    assert_eq!(hub.text(&["dead-letters", "drop", "translator", "m2"]), "m2: dropped\n");
}

#[test]
fn errors_name_the_remedy() {
    let data = tempfile::tempdir().expect("a folder");
    let mut hub = Hub::start(data.path());
    let absent = hub.run(&["tasks", "list", "absent"]);
    assert!(absent.contains("`duologue agents` lists those") && absent.ends_with("exit 1"), "{absent}");
    let key = hub.key.clone();
    hub.key = data.path().join("wrong");
    std::fs::write(&hub.key, "wrong").expect("a file");
    let refused = hub.run(&["agents"]);
    assert!(refused.contains("--token-file") && refused.ends_with("exit 1"), "{refused}");
    hub.key = data.path().join("none");
    let missing = hub.run(&["agents"]);
    assert!(missing.ends_with("exit 4"), "{missing}");

    hub.key = key;
    hub.server.kill();
    let gone = hub.run(&["agents"]);
    assert!(gone.contains("duologue serve --config") && gone.ends_with("exit 3"), "{gone}");
    hub.url = "ftp://a".to_owned();
    let address = hub.run(&["agents"]);
    assert!(address.contains("invalid address") && address.ends_with("exit 2"), "{address}");
}

/// `duologue serve -- agent` has sessions alone.
/// A named key is that of its principal, also at the socket, whose user may do everything.
#[test]
fn a_key_is_used_at_the_socket_too() {
    let data = tempfile::tempdir().expect("a folder");
    let _hub = Hub::start(data.path());
    let agents = |more: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        shown(&run(command.args(["agents", "--data"]).arg(data.path()).args(more), ""))
    };
    let listed = agents(&[]);
    assert!(listed.contains("writer") && listed.ends_with("exit 0"), "{listed}");
    let wrong = data.path().join("wrong");
    std::fs::write(&wrong, "0".repeat(64)).expect("a file");
    let refused = agents(&["--token-file", wrong.to_str().expect("UTF-8")]);
    assert!(refused.contains("unauthenticated"), "{refused}");
}

#[test]
fn a_server_of_one_agent_is_no_hub() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let server = Server::of(command.args(["--", DUOLOGUE, "mock"]));
    let (url, key) = (server.url.clone(), PathBuf::from(&server.token));
    let hub = Hub { server, url, key };
    let refused = hub.run(&["agents"]);
    assert!(refused.contains("it is empty; http") && refused.ends_with("exit 3"), "{refused}");
    assert!(refused.contains("is not the address of a hub: start a hub"), "{refused}");
}

#[test]
fn a_hub_that_is_missing_is_started_or_named() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(DUOLOGUE);
    let refused = shown(&run(command.args(["agents", "--data"]).arg(data.path()), ""));
    for remedy in ["duologue serve --config", "`--data`", "`--hub`"] {
        assert!(refused.contains(remedy) && refused.ends_with("exit 3"), "{refused}");
    }
}

#[test]
fn one_agent_is_counted_as_one() {
    let data = tempfile::tempdir().expect("a folder");
    let config = data.path().join("hub.toml");
    let agent =
        "data = \"data\"\nlisten = \"127.0.0.1:0\"\n[[agents]]\nid = \"a\"\ncommand = [\"duologue\"]\n";
    std::fs::write(&config, agent).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    let mut process =
        command.args(["serve", "--config"]).arg(&config).stdout(Stdio::piped()).spawn().expect("it starts");
    let first = BufReader::new(process.stdout.take().expect("a pipe")).lines().next();
    process.kill().expect("it runs");
    process.wait().expect("it ends");
    let first = first.expect("a line").expect("UTF-8");
    assert!(first.starts_with("serving 1 agent at "), "{first}");
}
