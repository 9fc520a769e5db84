//! Programs, run and ended through the five terminal methods.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duologue_client::Host;
use duologue_client::schema::{CreateTerminalRequest, TerminalOutputRequest};
use serde_json::{Value, json};

use super::desk::{Agent, Desk, INTERNAL, INVALID, NOT_FOUND, Refused};
use duologue_test_support::in_time;

const MIB: usize = 1024 * 1024;

impl Agent {
    /// Waits until a program has printed a whole line.
    async fn line(&mut self, terminal: &Value) -> String {
        loop {
            let output = self.output(terminal).await;
            let text = output["output"].as_str().expect("text");
            if text.ends_with('\n') {
                return text.trim_end().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_from_outside_the_group_holds_nothing_up() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host().max_terminals(1), desk.root()).await;
        let terminal = agent
            .sh("setsid sh -c 'echo $$ >pid; exec yes' & until [ -s pid ]; do sleep 0.05; done; exit 3")
            .await;
        let began = Instant::now();
        assert_eq!(agent.exit(&terminal).await, json!({"exitCode": 3}));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        // It has nobody to write to any more.
        gone(&desk.get("pid")).await;
        assert!(agent.output(&terminal).await["output"].as_str().expect("text").ends_with("y\n"));
        agent.ask("terminal/release", terminal).await.expect("released");
        agent.run(json!({"command": "true"})).await;
    })
    .await;
}

/// Waits until the processes are gone, or dead and not collected.
async fn gone(pids: &str) {
    for pid in pids.split_whitespace() {
        let began = Instant::now();
        while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(began.elapsed() < Duration::from_secs(20), "{pid} lives");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A program with a child and a grandchild, which prints the numbers of all three.
const FAMILY: &str = "sh -c 'sleep 600 & echo $! $$; exec sleep 600' & sleep 0.2; echo $$; wait";

async fn family(agent: &mut Agent) -> (Value, String) {
    let terminal = agent.sh(FAMILY).await;
    loop {
        let output = agent.output(&terminal).await;
        let pids = output["output"].as_str().expect("text");
        if pids.split_whitespace().count() == 3 && pids.ends_with('\n') {
            return (terminal, pids.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_and_tell_how_they_ended() {
    in_time(async {
        let desk = Desk::new();
        let tool = desk.at("my tool");
        std::fs::write(&tool, "#!/bin/sh\necho \"$0 $#\"\n").expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("set");
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let exited = |code: u32| json!({"exitCode": code});
        let sh = |script: &str| json!({"command": "sh", "args": ["-c", script]});
        let root = desk.root().display().to_string();
        for (params, output, exit) in [
            (json!({"command": "echo", "args": ["a b", "$HOME", ";", "id"]}), "a b $HOME ; id\n", exited(0)),
            (json!({"command": "true"}), "", exited(0)),
            (json!({"command": "false"}), "", exited(1)),
            (sh("exit 255"), "", exited(255)),
            (sh("kill -TERM $$"), "", json!({"signal": "SIGTERM"})),
            (sh("kill -KILL $$"), "", json!({"signal": "SIGKILL"})),
            // There is nothing to read.
            (json!({"command": "cat"}), "", exited(0)),
            // Both outputs in their order.
            (sh("for i in 1 2 3; do echo $i; echo e$i >&2; done"), "1\ne1\n2\ne2\n3\ne3\n", exited(0)),
            (sh(r"printf '\033[31mred\377\303'"), "\u{1b}[31mred\u{fffd}\u{fffd}", exited(0)),
            // Its folder.
            (json!({"command": "pwd"}), &format!("{root}\n"), exited(0)),
            (json!({"command": "pwd", "cwd": desk.at("dir")}), &format!("{root}/dir\n"), exited(0)),
            (json!({"command": "cat", "args": ["inner.txt"], "cwd": desk.at("dir")}), "inner", exited(0)),
            // Its environment.
            (
                json!({"command": "printenv", "args": ["A", "B"],
                    "env": [{"name": "A", "value": "1=2"}, {"name": "B", "value": ""}]}),
                "1=2\n\n",
                exited(0),
            ),
            // Whole command lines.
            (
                json!({"command": "cat file.txt | tr i I && echo \"$A\"", "args": [],
                "env": [{"name": "A", "value": "set"}]}),
                "InsIdeset\n",
                exited(0),
            ),
            (json!({"command": "exit 3"}), "", exited(3)),
            (json!({"command": "nobody-has-this 2>/dev/null || echo none"}), "none\n", exited(0)),
            // A program whose name only looks like one.
            (json!({"command": tool}), &format!("{root}/my tool 0\n"), exited(0)),
            (json!({"command": "./my tool"}), "./my tool 0\n", exited(0)),
            (json!({"command": "./my tool", "args": ["x"]}), "./my tool 1\n", exited(0)),
        ] {
            let (text, ended) = agent.run(params.clone()).await;
            assert_eq!((text.as_str(), &ended), (output, &exit), "{params}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_run_is_an_error_with_a_reason() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let env =
            |name: &str, value: &str| json!({"command": "true", "env": [{"name": name, "value": value}]});
        for (params, code, part) in [
            (json!({"command": "nobody-has-this"}), NOT_FOUND, "there is no program nobody-has-this"),
            (json!({"command": "nobody has this", "args": ["x"]}), NOT_FOUND, "there is no program"),
            (json!({"command": ""}), NOT_FOUND, "there is no program"),
            (json!({"command": desk.at("file.txt")}), INTERNAL, "Permission denied"),
            (json!({"command": desk.at("dir")}), INTERNAL, "Permission denied"),
            (json!({"command": "true\0"}), INVALID, "NUL"),
            (json!({"command": "echo", "args": ["a\0b"]}), INVALID, "NUL"),
            (json!({"command": "echo", "args": ["x".repeat(200_000)]}), INTERNAL, "Argument list too long"),
            (env("A\0", ""), INVALID, "NUL"),
            (env("A", "\0"), INVALID, "NUL"),
            (env("", "x"), INVALID, "is not a valid name of a variable"),
            (env("A=B", "x"), INVALID, "is not a valid name of a variable"),
            (
                json!({"command": "pwd", "cwd": desk.path("outside")}),
                INVALID,
                "outside of the session's folders",
            ),
            (json!({"command": "pwd", "cwd": desk.at("missing")}), NOT_FOUND, "does not exist"),
            (json!({"command": "pwd", "cwd": desk.at("file.txt")}), INVALID, "is not a folder"),
        ] {
            agent.ask("terminal/create", params.clone()).await.expect_err("refused").says(code, part);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_goes_through_its_life_in_any_order() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        agent.open(desk.root(), &[]).await;
        let unknown = |answer: Result<Value, Refused>| {
            answer.expect_err("refused").says(NOT_FOUND, "no such terminal");
        };
        let methods = ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"];
        for method in methods {
            unknown(agent.ask(method, json!({"terminalId": "terminal-x"})).await);
        }
        // A killed terminal can still be queried, and killed again; a released one is unknown.
        let (terminal, pids) = family(&mut agent).await;
        for method in methods {
            unknown(agent.ask_in("s1", method, terminal.clone()).await);
        }
        assert!(agent.output(&terminal).await.get("exitStatus").is_none_or(Value::is_null));
        for _ in 0..3 {
            agent.ask("terminal/kill", terminal.clone()).await.expect("killed");
            let output = agent.output(&terminal).await;
            assert_eq!(output["exitStatus"], json!({"signal": "SIGKILL"}));
            assert_eq!(output["output"], pids);
            assert_eq!(agent.exit(&terminal).await, json!({"signal": "SIGKILL"}));
        }
        gone(&pids).await;
        agent.ask("terminal/release", terminal.clone()).await.expect("released");
        for method in methods {
            unknown(agent.ask(method, terminal.clone()).await);
        }
        // Released while it runs and somebody waits: the wait has its answer, and everybody is gone.
        let (terminal, pids) = family(&mut agent).await;
        let mut wait = terminal.clone();
        wait["sessionId"] = "s0".into();
        let waits = [
            agent.script.send_request("terminal/wait_for_exit", wait.clone()).await,
            agent.script.send_request("terminal/wait_for_exit", wait.clone()).await,
        ];
        // They wait, each in a task of its own.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let release = agent.script.send_request("terminal/release", wait).await;
        for _ in 0..3 {
            let answer = agent.script.next_message().await;
            if answer["id"] != release {
                assert!(waits.iter().any(|wait| answer["id"] == *wait));
                assert_eq!(answer["result"], json!({"signal": "SIGKILL"}));
            }
        }
        gone(&pids).await;
        // Processes that a program leaves running end with it.
        let terminal = agent.sh("sleep 600 & echo $!").await;
        assert_eq!(agent.exit(&terminal).await, json!({"exitCode": 0}));
        let pid = agent.line(&terminal).await;
        gone(&pid).await;
        // Unless it went away on purpose; nobody waits for it.
        let terminal = agent
            .sh("setsid sh -c 'echo $$; : >gone; exec sleep 600' & until [ -e gone ]; do sleep 0.02; done")
            .await;
        assert_eq!(agent.exit(&terminal).await, json!({"exitCode": 0}));
        let pid: i32 = agent.line(&terminal).await.parse().expect("a number");
        let pid = rustix::process::Pid::from_raw(pid).expect("a number");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_end_with_the_connection() {
    in_time(async {
        let desk = Desk::new();
        for hang_up in [true, false] {
            // Nobody who holds on to the host or the connection holds its programs.
            let host = Arc::new(desk.host());
            let mut agent = Agent::of(host.clone(), desk.root()).await;
            let (_, pids) = family(&mut agent).await;
            let Agent { mut script, connection, sessions } = agent;
            let context = connection.host_context().clone();
            if hang_up {
                script.close().await;
                connection.closed().await;
                gone(&pids).await;
                drop((connection, sessions));
            } else {
                drop((connection, sessions));
                gone(&pids).await;
            }
            let late = host.create_terminal(&context, CreateTerminalRequest::new("s0", "true")).await;
            assert!(late.is_err(), "a program without a connection");
        }
    })
    .await;
}

/// The agent can no longer release them.
#[tokio::test(flavor = "multi_thread")]
async fn programs_end_with_their_session() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host().max_terminals(2), desk.root()).await;
        let (kept, _) = family(&mut agent).await;
        for _ in 0..3 {
            agent.open(desk.root(), &[]).await;
            let params = json!({"command": "echo $$ >pid; exec sleep 600"});
            // The place of the program before it is free when that program was reaped.
            while let Err(refused) = agent.ask_in("s1", "terminal/create", params.clone()).await {
                assert!(refused.message.starts_with("too many terminals"), "{}", refused.message);
                tokio::task::yield_now().await;
            }
            while !std::fs::read_to_string(desk.at("pid")).is_ok_and(|pid| pid.ends_with('\n')) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            agent.close().await;
            gone(&desk.get("pid")).await;
            std::fs::remove_file(desk.at("pid")).expect("removed");
        }
        assert!(agent.output(&kept).await["exitStatus"].is_null());
    })
    .await;
}

/// An editor shows the end of an output without a copy of all of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_editor_reads_the_end_of_an_output() {
    in_time(async {
        let desk = Desk::new();
        let host = Arc::new(desk.host());
        let mut agent = Agent::of(host.clone(), desk.root()).await;
        let terminal = agent.sh("printf 'one é'; exit 3").await;
        agent.exit(&terminal).await;
        let id = terminal["terminalId"].as_str().expect("an id");
        let context = agent.connection.host_context();
        for (bytes, end, truncated) in [
            (0, "", true),
            (1, "", true),
            (2, "é", true),
            (5, "ne é", true),
            (6, "one é", false),
            (usize::MAX, "one é", false),
        ] {
            let request = TerminalOutputRequest::new("s0", id);
            let output = host.terminal_output_end(context, &request, bytes).expect("output");
            assert_eq!((output.output.as_str(), output.truncated), (end, truncated), "{bytes}");
            assert_eq!(output.exit_status.and_then(|exit| exit.exit_code), Some(3));
        }
        for unknown in [TerminalOutputRequest::new("s0", "none"), TerminalOutputRequest::new("s1", id)] {
            let error = host.terminal_output_end(context, &unknown, 9).expect_err("refused");
            assert!(error.message.contains("no such terminal"), "{error}");
        }
    })
    .await;
}

#[test]
fn programs_end_with_the_runtime() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let desk = Desk::new();
    let (agent, pids) = runtime.block_on(in_time(async {
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let (_, pids) = family(&mut agent).await;
        (agent, pids)
    }));
    drop(runtime);
    drop(agent);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(gone(&pids));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_cut_at_its_front_between_characters() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let script = "printf 'aé€'; printf '\\360\\235\\204\\236'; printf 'z'";
        for (limit, expect) in [
            (0, ""),
            (1, "z"),
            (4, "z"),
            (5, "\u{1d11e}z"),
            (7, "\u{1d11e}z"),
            (8, "€\u{1d11e}z"),
            (10, "é€\u{1d11e}z"),
            (11, "aé€\u{1d11e}z"),
            (u64::MAX, "aé€\u{1d11e}z"),
        ] {
            let params = json!({"command": "sh", "args": ["-c", script], "outputByteLimit": limit});
            let terminal = agent.start(params).await;
            agent.exit(&terminal).await;
            let output = agent.output(&terminal).await;
            assert_eq!((output["output"].as_str(), &output["truncated"]), (Some(expect), &json!(limit < 11)));
            agent.ask("terminal/release", terminal).await.expect("released");
        }
        // Half a character is buffered until the rest has come.
        let terminal = agent.sh("printf 'x\\342\\202'; read nothing; sleep 0.4; printf '\\254\\n'").await;
        let mut seen = String::new();
        while seen != "x€\n" {
            seen = agent.output(&terminal).await["output"].as_str().expect("text").to_owned();
            assert!(["", "x", "x€\n"].contains(&seen.as_str()), "{seen}");
        }
    })
    .await;
}

/// While one floods, the agent is served. The campaign measures the memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_cut_to_the_limit_while_the_agent_is_served() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        // The second is no UTF-8, which is the longest as text.
        for flood in ["yes | head -c 20000000", "head -c 2000000 /dev/zero | tr '\\0' '\\377'"] {
            // It ends after the agent has read a file.
            let terminal = agent.sh(&format!("{flood}; until [ -e read ]; do sleep 0.02; done")).await;
            agent.read(desk.at("file.txt")).await.expect("served");
            desk.put("read", "");
            assert_eq!(agent.exit(&terminal).await, json!({"exitCode": 0}));
            let output = agent.output(&terminal).await;
            let text = output["output"].as_str().expect("text");
            assert!(
                output["truncated"] == true && text.len() <= MIB && text.len() > MIB - 4,
                "{}",
                text.len()
            );
            std::fs::remove_file(desk.at("read")).expect("removed");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_output_fits_an_answer() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let params =
            json!({"command": "head -c 5000000 /dev/zero | tr '\\0' '\\7'", "outputByteLimit": u64::MAX});
        let terminal = agent.start(params).await;
        agent.exit(&terminal).await;
        assert_eq!(agent.output(&terminal).await["output"], "\u{7}".repeat(2 * MIB));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_so_many_terminals_and_no_more() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host().max_terminals(2), desk.root()).await;
        let sleep = || json!({"command": "sleep", "args": ["600"]});
        let mut open = vec![agent.start(sleep()).await, agent.start(json!({"command": "true"})).await];
        for _ in 0..20 {
            let refused = agent.ask("terminal/create", sleep()).await.expect_err("refused");
            refused.says(INTERNAL, "release one first");
            agent.ask("terminal/release", open.remove(0)).await.expect("released");
            open.push(agent.start(sleep()).await);
        }
        // A start that failed takes no place.
        agent.ask("terminal/release", open.remove(0)).await.expect("released");
        for _ in 0..5 {
            let refused = agent.ask("terminal/create", json!({"command": "nobody-has-this"})).await;
            refused.expect_err("refused").says(NOT_FOUND, "no program");
        }
        agent.start(sleep()).await;
    })
    .await;
}
