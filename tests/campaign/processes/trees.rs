//! Process trees whose death can be seen: a launcher connects to the test before it runs anything,
//! and every descendant inherits that connection. It ends when the last of them is gone, whatever
//! group or session they moved to.

use std::time::{Duration, Instant};

use duologue_client::Command;
use duologue_test_support::at_most;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const SCRIPTED: &str = env!("CARGO_BIN_EXE_scripted-agent");
pub(crate) const GUARDED: &str = env!("CARGO_BIN_EXE_guarded-agent");
pub(crate) const CLIENT: &str = env!("CARGO_BIN_EXE_doomed-client");

/// The program takes the launcher's place.
pub(crate) const DIRECT: &str = r#"exec "$@""#;
/// The launcher stays above the program, which gets a helper beside it; as `npx` and friends do.
pub(crate) const WRAPPED: &str = r#"sleep 600 & "$@"; exit $?"#;

/// Whatever takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Descriptors of this process that every child of it inherits: what the test was started with.
pub(crate) fn inherited() -> Vec<String> {
    let mut inherited = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").expect("descriptors") {
        let entry = entry.expect("an entry");
        // Closed since then.
        let Ok(info) = std::fs::read_to_string(entry.path()) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
        let flags = u32::from_str_radix(flags.trim(), 8).expect("a number");
        if flags & rustix::fs::OFlags::CLOEXEC.bits() == 0 {
            inherited.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    inherited
}

pub(crate) struct Tree {
    listener: TcpListener,
}

impl Tree {
    pub(crate) async fn new() -> Self {
        Tree { listener: TcpListener::bind(("127.0.0.1", 0)).await.expect("a port") }
    }

    /// The words that start `program` under a launcher that does `script`.
    pub(crate) fn words(&self, script: &str, program: &[&str]) -> Vec<String> {
        let port = self.listener.local_addr().expect("an address").port();
        let script = format!("exec 9<>/dev/tcp/127.0.0.1/{port} && echo $$ >&9 || exit 99; {script}");
        let mut words = vec!["bash".to_owned(), "-c".to_owned(), script, "launcher".to_owned()];
        words.extend(program.iter().map(|&word| word.to_owned()));
        words
    }

    pub(crate) fn command(&self, script: &str, program: &[&str]) -> Command {
        let mut words = self.words(script, program).into_iter();
        Command::new(words.next().expect("bash")).args(words)
    }

    /// The tree once it has begun to live.
    pub(crate) async fn alive(&self) -> Alive {
        let (stream, _) = tokio::time::timeout(PATIENCE, self.listener.accept())
            .await
            .expect("the launcher never ran")
            .expect("a connection");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        // A launcher that was killed at once may not have sent its process id.
        let _ = stream.read_line(&mut line).await;
        Alive { stream, leader: line.trim().parse().ok() }
    }

    /// Waits until all of the tree is dead, and checks that its leader, if it was started by this
    /// process, left no zombie.
    pub(crate) async fn gone(&self, within: Duration) {
        self.alive().await.gone(within).await;
    }
}

pub(crate) struct Alive {
    stream: BufReader<TcpStream>,
    pub(crate) leader: Option<u32>,
}

impl Alive {
    pub(crate) async fn gone(mut self, within: Duration) {
        let (mut rest, within) = (Vec::new(), at_most(within));
        // An error is an end too: a process that dies with unread bytes resets the connection.
        let end = tokio::time::timeout(within, self.stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "alive after {within:?}: {}", self.describe());
        let Some(leader) = self.leader else { return };
        let begun = Instant::now();
        while let Ok(stat) = std::fs::read_to_string(format!("/proc/{leader}/stat")) {
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            if parent.and_then(|parent| parent.parse().ok()) != Some(std::process::id()) {
                return;
            }
            assert!(begun.elapsed() < at_most(Duration::from_secs(1)), "left behind: {stat}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.leader.is_some_and(|leader| std::path::Path::new(&format!("/proc/{leader}")).exists())
    }

    /// For the message of a failed test: who still holds the connection.
    fn describe(&self) -> String {
        let mut alive = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            let group = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2));
            if group.and_then(|group| group.parse().ok()) == self.leader {
                alive.push(stat.split_whitespace().take(5).collect::<Vec<_>>().join(" "));
            }
        }
        format!("{:?}, its group: {alive:?}", self.leader)
    }
}
