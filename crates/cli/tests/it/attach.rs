//! `duologue attach` as a process, with a hub that is killed and started again.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::process::{DUOLOGUE, run, shown};
use crate::served::Server;

/// A hub without agents of its own. The principal `planner` is the agent of that name.
const CONFIG: &str = r#"
[[principals]]
id = "planner"
agent = "planner"
key_sha256 = "c47dc9a3e283cde72014c0ad6009737098106b5f0fe057a3bc210c6cc17d98c8"

[[principals]]
id = "other"
agent = "other"
key_sha256 = "580843d03d2216ff1a275d0991bad66e4d1af871171d929e9de604b7959f9bca"
"#;

fn hub(data: &Path, listen: &str) -> Server {
    let file = data.join("hub.toml");
    std::fs::write(&file, CONFIG).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", listen, "--config"]).arg(&file).arg("--data").arg(data.join("hub"));
    Server::of(&mut command)
}

fn attach(data: &Path, address: &str, key: &str, id: &str) -> Command {
    let file = data.join(key);
    std::fs::write(&file, key).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["attach", "--hub", address, "--id", id, "--token-file"]).arg(&file);
    command.arg("--root").arg(data).arg("--data").arg(data.join(format!("{key}-data")));
    command.args(["--", DUOLOGUE, "mock"]);
    command
}

/// A program that is attached.
struct Attached {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Attached {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Attached { process, lines }
    }

    /// Waits until the hub has accepted it.
    fn until_attached(&mut self) {
        let line = self.lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("attached as ")));
        assert_eq!(line.expect("the line").expect("UTF-8"), "attached as planner");
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_agent_behind_a_firewall_is_attached_again_after_a_restart_of_the_hub() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = hub(data.path(), "127.0.0.1:0");
    let address = server.url.strip_suffix("/acp").expect("a path").to_owned();
    let mut attached = Attached::start(&mut attach(data.path(), &address, "planner-key", "planner"));
    attached.until_attached();
    let prompt = |server: &Server| {
        let mut command = Command::new(DUOLOGUE);
        command.current_dir(data.path()).args(["run", "--yes", "plan", "--", DUOLOGUE, "connect"]);
        command.args(["--token-file", &server.token]).arg(format!("{address}/acp/planner"));
        run(&mut command, "")
    };
    let output = prompt(&server);
    assert!(output.status.success(), "{}", shown(&output));

    // Another principal is not the agent, whether it is there or not.
    for id in ["planner", "absent"] {
        let refused = run(&mut attach(data.path(), &address, "other-key", id), "");
        let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && printed.contains("no such agent"), "{printed}");
    }
    let mut keyless = Command::new(DUOLOGUE);
    keyless.args(["attach", "--hub", &address, "--data"]).arg(data.path().join("keyless"));
    let refused = shown(&run(keyless.args(["--", DUOLOGUE, "mock"]), ""));
    assert!(refused.contains("; `--token-file` names") && !refused.contains('{'), "{refused}");
    // The hub would only see that it does not answer.
    let mut absent = Command::new(DUOLOGUE);
    absent.args(["attach", "--hub", &address, "--token-file"]).arg(data.path().join("planner-key"));
    absent.arg("--data").arg(data.path().join("absent")).args(["--", "/absent/program"]);
    let refused = shown(&run(&mut absent, ""));
    assert!(refused.contains("/absent/program"), "{refused}");

    server.kill();
    let listen = address.split_once("//").expect("a scheme").1;
    let server = hub(data.path(), listen);
    attached.until_attached();
    let output = prompt(&server);
    assert!(output.status.success(), "{}", shown(&output));
}
