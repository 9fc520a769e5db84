//! The process of an agent: its last output, the processes that it leaves behind, and its end.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use duologue_client::{AgentProcess, Client, Command, Connection, Error, Limits};
use tokio::io::{AsyncBufReadExt, BufReader};

use duologue_test_support::in_time;

const KIB: usize = 1024;

/// The lines of a shell that respond to `initialize` and `session/new`.
const OPEN: &str = r#"
read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
read line; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
"#;

fn shell(script: &str) -> Command {
    Command::new("/bin/sh").arg("-c").arg(format!("{OPEN}{script}"))
}

/// Waits until the process has exited or is a zombie.
async fn gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    let began = Instant::now();
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < Duration::from_secs(20), "{pid} lives");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The reader pauses after the first updates. The agent has exited, and the rest waits in the pipe for longer than the
/// output of another process is read.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_output_is_read_although_the_reader_has_paused() {
    in_time(async {
        const CHUNKS: usize = 55;
        let mut limits = Limits::default();
        (limits.queue_bytes, limits.queue_bytes_hard) = (4 * KIB, 256 * KIB);
        let update = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{}"}}}}}}}}"#,
            "x".repeat(950)
        );
        let script = format!(
            r#"read line; i=0
               while [ $i -lt {CHUNKS} ]; do echo '{update}'; i=$((i+1)); [ $i != 10 ] || sleep 0.5; done
               echo '{{"jsonrpc":"2.0","id":3,"result":{{"stopReason":"end_turn"}}}}'"#
        );
        let agent = Client::new(()).limits(limits).spawn(shell(&script)).await.expect("starts");
        let session = agent.new_session("/tmp").await.expect("a session");
        let mut turn = session.prompt("go").await.expect("a turn");
        while !agent.peer().is_paused() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A longer sleep on a busy machine changes nothing.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut chunks = 0;
        while let Some(update) = turn.next().await {
            update.expect("an update");
            chunks += 1;
        }
        turn.outcome().await.expect("an outcome");
        assert_eq!(chunks, CHUNKS);
        let Error::AgentExited(exited) = agent.closed().await else { panic!("another end") };
        assert!(exited.status.is_some_and(|status| status.success()), "{exited}");
    })
    .await;
}

/// A process that left the group writes on and on. It does not keep the connection open.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_keeps_writing_does_not_keep_the_connection_open() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("started");
        let script = format!(
            "setsid sh -c 'echo $$ >&2; : >\"$0\"; while :; do echo noise; sleep 0.02; done' '{0}' &
            until [ -e '{0}' ]; do sleep 0.02; done; exit 7",
            mark.display()
        );
        let agent = Client::new(()).spawn(shell(&script)).await.expect("starts");
        let _session = agent.new_session("/tmp").await.expect("a session");
        let Error::AgentExited(exited) = agent.closed().await else { panic!("another end") };
        assert_eq!(exited.status.and_then(|status| status.code()), Some(7));
        // Without its reader it gets SIGPIPE.
        gone(&exited.stderr).await;
    })
    .await;
}

async fn with_child() -> (Connection, String) {
    let agent =
        Client::new(()).spawn(shell("sleep 600 & echo $! >&2; cat >/dev/null")).await.expect("starts");
    agent.new_session("/tmp").await.expect("a session");
    while agent.stderr().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let child = agent.stderr();
    (agent, child)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_the_agent_leaves_behind_ends_with_it() {
    in_time(async {
        for is_killed in [false, true] {
            let (agent, child) = with_child().await;
            if is_killed {
                agent.kill();
                agent.closed().await;
            } else {
                assert!(agent.close().await.is_some_and(|status| status.success()));
            }
            gone(&child).await;
        }
        // The last handle is dropped.
        let (agent, child) = with_child().await;
        drop(agent);
        gone(&child).await;
    })
    .await;
}

/// A proxy or a test tool has the raw process.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_raw_process_ends_its_group() {
    in_time(async {
        for step in ["end", "kill", "drop", "terminate"] {
            let script = "sleep 600 & echo $!; cat >/dev/null";
            let (mut process, pipes) =
                AgentProcess::start(Command::new("/bin/sh").arg("-c").arg(script)).expect("starts");
            assert!(process.id().is_some());
            let mut child = String::new();
            BufReader::new(pipes.stdout).read_line(&mut child).await.expect("a line");
            match step {
                "end" => {
                    drop(pipes.stdin);
                    assert!(process.end().await.is_some_and(|status| status.success()));
                }
                "kill" => {
                    process.kill();
                    assert!(process.wait().await.is_some_and(|status| !status.success()));
                }
                "terminate" => {
                    process.terminate();
                    assert!(process.wait().await.is_some_and(|status| !status.success()));
                }
                _ => drop(process),
            }
            gone(&child).await;
        }
    })
    .await;
}

/// A killed agent gets no time to exit by itself, and no other signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_is_killed_at_once() {
    use std::os::unix::process::ExitStatusExt;

    in_time(async {
        let agent = Client::new(()).spawn(shell("exec sleep 600")).await.expect("starts");
        let _session = agent.new_session("/tmp").await.expect("a session");
        agent.kill();
        let Error::AgentExited(exited) = agent.closed().await else { panic!("no exit") };
        assert_eq!(exited.status.and_then(|status| status.signal()), Some(9), "SIGKILL");
    })
    .await;
}
