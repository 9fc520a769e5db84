//! A process whose agent is stuck before its first response.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use duologue_agent::schema::{AuthMethod, InitializeRequest};
use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve_stdio};

struct Stuck;

impl Agent for Stuck {
    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        writeln!(std::io::stderr(), "stuck").expect("written");
        std::thread::sleep(Duration::from_secs(60));
        Vec::new()
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// The test is the agent too: it starts itself with this variable.
const IS_AGENT: &str = "DUOLOGUE_TEST_STUCK_AGENT";

#[test]
fn an_agent_that_is_stuck_in_initialize_exits_after_its_input() {
    if std::env::var_os(IS_AGENT).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        return runtime.expect("a runtime").block_on(serve_stdio(Stuck)).expect("served");
    }
    let name = "stuck::an_agent_that_is_stuck_in_initialize_exits_after_its_input";
    let mut agent = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", name, "--nocapture"])
        .env(IS_AGENT, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = agent.stdin.take().expect("stdin");
    let params = r#"{"protocolVersion":1}"#;
    writeln!(input, r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#).expect("sent");
    let mut lines = BufReader::new(agent.stderr.take().expect("stderr")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "stuck")), "initialize was not called");
    drop(input);
    let ended = Instant::now();
    let status = loop {
        if let Some(status) = agent.try_wait().expect("a status") {
            break status;
        }
        if ended.elapsed() > Duration::from_secs(10) {
            agent.kill().expect("killed");
            agent.wait().expect("a status");
            panic!("the agent did not exit");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0), "a client that leaves is no error");
}
