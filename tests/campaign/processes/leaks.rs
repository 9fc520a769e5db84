//! Leaks of descriptors, secrets and processes, and full pipes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use duologue_client::{Client, Command};

use super::trees::{CLIENT, DIRECT, PATIENCE, SCRIPTED, Tree, inherited};
use duologue_test_support::{at_most, measured, runs};

fn open_files(pid: &str) -> Vec<String> {
    let mut open: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("a process")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    // Descriptors inherited by the test itself are not counted.
    let inherited = inherited();
    open.retain(|number| ["0", "1", "2"].contains(&number.as_str()) || !inherited.contains(number));
    open.sort();
    open
}

/// Fifty at once, each of which must not see the pipes of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_three_descriptors() {
    let rounds = runs(50).div_ceil(50);
    for _ in 0..rounds {
        let starts = (0..50).map(|_| async {
            let agent = Client::new(()).spawn(Command::new(SCRIPTED)).await.expect("starts");
            let pid = agent.info().expect("info").version.clone();
            assert_eq!(open_files(&pid), ["0", "1", "2"]);
            agent
        });
        let agents = futures::future::join_all(starts).await;
        futures::future::join_all(agents.iter().map(duologue_client::Connection::close)).await;
    }
    measured(format_args!("{} agents, 50 at a time, with descriptors 0 to 2 and no other", rounds * 50));
}

async fn client(args: &[&str], secrets: &[(String, String)], patience: Duration) -> String {
    let mut command = tokio::process::Command::new(CLIENT);
    command.args(args).envs(secrets.iter().cloned()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output =
        tokio::time::timeout(patience, command.output()).await.expect("this hangs").expect("it runs");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn a_clean_environment_has_no_secrets() {
    let names = [
        "API_KEY",
        "TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DATABASE_URL",
        "LD_PRELOAD_NOT",
        "SSH_AUTH_SOCK",
        "lc_key",
        "HOME_KEY",
        "PATH_KEY",
        "XDGKEY",
    ];
    let mut secrets: Vec<(String, String)> = (0..50)
        .map(|number| (format!("{}_{number}", names[number % names.len()]), format!("sentinel-{number}")))
        .collect();
    // A shell function under an allowed name.
    secrets.push(("LC_FUNCTION".into(), "() { echo sentinel; }".into()));
    let environ = client(&["environ", SCRIPTED], &secrets, PATIENCE).await;
    assert!(!environ.contains("sentinel"), "{environ}");
    assert!(environ.contains("PATH="), "{environ}");
    assert!(environ.contains("EXPLICIT=1"), "{environ}");
    let kept = environ.lines().filter(|line| !line.is_empty()).count();
    measured(format_args!("0 of {} secrets in an environment of {kept} variables", secrets.len()));
}

/// Half of them closed, half of them dropped.
#[tokio::test]
async fn agents_that_come_and_go_leave_nothing() {
    let cycles = runs(300);
    let patience = PATIENCE + Duration::from_millis(100) * u32::try_from(cycles).expect("fits");
    let counts = client(&["cycle", &cycles.to_string(), SCRIPTED], &[], patience).await;
    let counts: Vec<Vec<usize>> = counts
        .lines()
        .map(|line| line.split_whitespace().map(|number| number.parse().expect("a number")).collect())
        .collect();
    let [early, late] = counts.as_slice() else { panic!("{counts:?}") };
    // An agent that was dropped a moment ago may still be on its way out.
    assert!(late[0] <= early[0] + 8, "descriptors: {counts:?}");
    assert!(late[1] <= 2, "children: {counts:?}");
    assert!(late[2] <= early[2] + 1, "threads: {counts:?}");
    assert!(late[3] <= early[3] + 8 * 1024, "KiB: {counts:?}");
    let grown = |index: usize| late[index].cast_signed() - early[index].cast_signed();
    measured(format_args!(
        "after {cycles} agents: {:+} descriptors, {} children, {:+} threads, {:+} KiB",
        grown(0),
        late[1],
        grown(2),
        grown(3)
    ));
}

#[tokio::test]
async fn a_dropped_runtime_leaves_no_zombie() {
    assert_eq!(client(&["orphan", SCRIPTED, "--on-eof", "stay"], &[], PATIENCE).await, "0\n");
}

/// The agent writes 10 MB before it reads a byte, the client has 10 MB to say, and the pipes hold
/// a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_pipes_full() {
    let tree = Tree::new().await;
    let program = [SCRIPTED, "--pipe", "4096", "--ahead", "10000000"];
    let agent = Client::new(()).spawn(tree.command(DIRECT, &program)).await.expect("starts");
    let begun = Instant::now();
    let session = agent.new_session("/").await.expect("a session");
    let turn = session.prompt("x".repeat(10_000_000)).await.expect("idle");
    let reply = tokio::time::timeout(PATIENCE, turn.finish()).await.expect("this hangs").expect("an answer");
    let took = begun.elapsed();
    assert!(took <= at_most(Duration::from_secs(5)), "{took:?}");
    assert!(!reply.text.is_empty());
    assert_eq!(agent.close().await.and_then(|status| status.code()), Some(0));
    tree.gone(Duration::from_secs(1)).await;
}
