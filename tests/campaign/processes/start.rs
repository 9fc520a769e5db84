//! Agents that do not start: every way has an error of its own that says what to do, and leaves
//! no process.

use std::time::{Duration, Instant};

use duologue_client::{Client, Command, Error};

use super::trees::{DIRECT, SCRIPTED, Tree, WRAPPED};
use duologue_test_support::{at_most, measured, runs};

const AT_ONCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn no_such_program() {
    let begun = Instant::now();
    for program in ["no-such-agent-anywhere", "/no/such/agent", "/etc/passwd", "/"] {
        let error = Client::new(()).spawn(Command::new(program)).await.expect_err("nothing to run");
        assert!(matches!(&error, Error::Spawn { program: named, .. } if named == program), "{error:?}");
        assert!(error.to_string().contains(program), "{error}");
    }
    let nowhere = Command::new(SCRIPTED).cwd("/no/such/folder");
    let error = Client::new(()).spawn(nowhere).await.expect_err("nowhere to run");
    assert!(matches!(&error, Error::Spawn { .. }), "{error:?}");
    assert!(begun.elapsed() < at_most(AT_ONCE));
}

#[tokio::test]
async fn ends_before_it_says_a_word() {
    for (script, code) in [
        ("echo 'no API key' >&2; exit 3", 3),
        ("echo 'no API key' >&2; cat >/dev/null & exit 4", 4),
        ("echo 'no API key' >&2; exec 0<&- 1>&-; sleep 0.1; exit 5", 5),
        ("read -r line; echo 'usage: agent'; echo 'no API key' >&2; exit 0", 0),
    ] {
        let tree = Tree::new().await;
        let begun = Instant::now();
        let error = Client::new(()).spawn(tree.command(script, &[])).await.expect_err("it leaves");
        let took = begun.elapsed();
        let Error::AgentExited(exited) = &error else { panic!("{script}: {error:?}") };
        assert_eq!(exited.status.and_then(|status| status.code()), Some(code), "{script}");
        assert_eq!(exited.stderr, "no API key\n", "{script}");
        assert!(error.to_string().contains("no API key"), "{error}");
        assert!(took < at_most(AT_ONCE), "{script}: {took:?}");
        tree.gone(AT_ONCE).await;
    }
}

#[tokio::test]
async fn says_only_what_nobody_understands() {
    let tree = Tree::new().await;
    let begun = Instant::now();
    let command = tree.command("for i in 1 2 3; do echo \"usage: agent $i\"; done; exit 2", &[]);
    let error = Client::new(()).spawn(command).await.expect_err("it leaves");
    let Error::AgentExited(exited) = &error else { panic!("{error:?}") };
    assert_eq!(exited.noise, ["usage: agent 1", "usage: agent 2", "usage: agent 3"]);
    assert!(error.to_string().contains("usage: agent 3"), "{error}");
    assert!(begun.elapsed() < at_most(AT_ONCE));
}

#[tokio::test]
async fn does_not_answer_in_time() {
    let tree = Tree::new().await;
    let after = Duration::from_millis(700);
    let program = [SCRIPTED, "--noise", "25", "--at", "0", "--do", "hang"];
    let begun = Instant::now();
    let started = Client::new(()).start_timeout(after).spawn(tree.command(WRAPPED, &program)).await;
    let took = begun.elapsed();
    let error = started.expect_err("it hangs");
    let Error::StartTimeout { after: named, stderr, noise } = &error else { panic!("{error:?}") };
    assert_eq!(*named, after);
    assert!(took >= after && took < after + at_most(AT_ONCE), "{took:?}");
    assert!(stderr.contains("complaint 0\n") && stderr.contains("complaint 24\n"), "{stderr}");
    // The last ones.
    assert_eq!(noise.len(), 20);
    assert_eq!(noise.last().map(String::as_str), Some("noise 24"));
    assert!(error.to_string().contains("after frame 0"), "{error}");
    tree.gone(AT_ONCE).await;
}

/// Many MiB, and none of it text.
#[tokio::test]
async fn shouts_before_it_answers() {
    let tree = Tree::new().await;
    let mib = runs(64);
    let begun = Instant::now();
    let command = tree.command(DIRECT, &[SCRIPTED, "--stderr", &(mib << 20).to_string()]);
    let agent = Client::new(()).spawn(command).await.expect("it answers in the end");
    let took = begun.elapsed();
    assert!(took < at_most(Duration::from_secs(30)), "{took:?}");
    let kept = agent.stderr().len();
    assert!((60 * 1024..=64 * 1024).contains(&kept), "{kept} bytes are kept");
    agent.close().await;
    tree.gone(AT_ONCE).await;
    measured(format_args!(
        "{mib} MiB of stderr, the answer after {} ms, {kept} bytes kept",
        took.as_millis()
    ));
}

/// A stderr handler that never returns from its first call.
struct Stuck(std::sync::mpsc::Receiver<()>);

impl std::io::Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn shouts_at_somebody_who_does_not_listen() {
    let tree = Tree::new().await;
    let (release, stuck) = std::sync::mpsc::channel();
    let command = tree.command(DIRECT, &[SCRIPTED, "--stderr", "16777216"]).stderr_to(Stuck(stuck));
    let agent = tokio::time::timeout(Duration::from_secs(20), Client::new(()).spawn(command)).await;
    let agent = agent.expect("this hangs").expect("it answers");
    assert!(agent.stderr().len() > 60 * 1024);
    agent.close().await;
    tree.gone(AT_ONCE).await;
    drop(release);
}

/// Shells and launchers print lines before the agent takes over.
#[tokio::test]
async fn a_conversation_begins_behind_the_noise() {
    let tree = Tree::new().await;
    let long = "x".repeat(5000);
    let script = format!(
        r#"echo "Welcome to the agent"; printf '\033[32mready\033[0m\n2026-11-21 12:00:00 INFO up\n\n{{\n'; echo {long}; exec "$@""#
    );
    let agent = Client::new(()).spawn(tree.command(&script, &[SCRIPTED])).await.expect("it answers");
    let session = agent.new_session("/").await.expect("a session");
    session.prompt("go").await.expect("idle").finish().await.expect("an answer");
    let noise = agent.peer().recent_noise();
    let shown = ["Welcome to the agent", "\\u{1b}[32mready\\u{1b}[0m", "2026-11-21 12:00:00 INFO up", "{"];
    assert_eq!(noise[..4], shown);
    assert_eq!(noise[4], "x".repeat(1024));
    assert_eq!((noise.len(), agent.peer().stats().noise), (5, 5));
    agent.close().await;
    tree.gone(AT_ONCE).await;
}

/// A write to it fails without a panic: the conversation is over, and so is the process.
#[tokio::test]
async fn closes_its_input_and_stays() {
    let tree = Tree::new().await;
    // Bytes in a closed pipe are lost without an error, so it is closed before the next write.
    let script = r#"read -r _; exec 0<&-
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'; sleep 600"#;
    let agent = Client::new(()).spawn(tree.command(script, &[])).await.expect("it says hello");
    let begun = Instant::now();
    let session = agent.new_session("/").await;
    assert!(matches!(session, Err(Error::Connection(_))), "{session:?}");
    assert!(begun.elapsed() < at_most(2 * AT_ONCE), "{:?}", begun.elapsed());
    tree.gone(Duration::from_secs(5)).await;
}

/// The thread that started the agent ends, as a worker of a runtime may: the agent does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outlives_the_thread_that_started_it() {
    let tree = Tree::new().await;
    let (command, runtime) = (tree.command(DIRECT, &[SCRIPTED]), tokio::runtime::Handle::current());
    let starting = std::thread::spawn(move || runtime.block_on(Client::new(()).spawn(command)));
    let agent = tokio::task::spawn_blocking(|| starting.join()).await.expect("no panic").expect("no panic");
    let agent = agent.expect("it starts");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let session = agent.new_session("/").await.expect("it lives");
    session.prompt("go").await.expect("idle").finish().await.expect("an answer");
    assert_eq!(agent.close().await.and_then(|status| status.code()), Some(0));
    tree.gone(AT_ONCE).await;
}

/// No shell reads what is started, in any of its places.
#[tokio::test]
async fn every_word_of_a_command_is_a_word() {
    use tokio::io::AsyncReadExt;
    let folder = tempfile::tempdir().expect("a folder");
    let words = [
        "; touch pwned",
        "$(touch pwned)",
        "`touch pwned`",
        "| touch pwned",
        "&& touch pwned",
        "> pwned",
        "two words",
        "*",
        "~",
        "",
        "'",
        "\"",
        "\\",
        "-n",
        "--",
        "%s",
        "a\nb",
        "\u{1b}[31m",
        "$HOME",
        "!!",
    ];
    // The first word after the program is its format.
    let command = Command::new("printf").arg("%s\\0").args(words).env("WORD", words[0]).cwd(folder.path());
    let (process, mut pipes) = duologue_client::AgentProcess::start(command).expect("starts");
    let mut said = String::new();
    pipes.stdout.read_to_string(&mut said).await.expect("text");
    assert_eq!(said, words.map(|word| format!("{word}\0")).concat());
    assert!(process.end().await.is_some_and(|status| status.success()));
    for (program, argument) in [
        ("true; touch pwned".to_owned(), String::new()),
        ("$(touch pwned)".to_owned(), String::new()),
        ("true -x".to_owned(), String::new()),
        ("true".to_owned(), "a NUL \0 in it".to_owned()),
        ("true".to_owned(), "x".repeat(140 * 1024)),
    ] {
        let command = Command::new(&program).arg(argument).cwd(folder.path());
        let error = Client::new(()).spawn(command).await.expect_err("nothing to run");
        assert!(matches!(&error, Error::Spawn { program: named, .. } if *named == program), "{error:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

/// The connection is dead without an end of the process: requests fail, and the last handle ends it.
#[tokio::test]
async fn closes_its_output_and_stays() {
    let tree = Tree::new().await;
    let script = r#"exec 1>&-; sleep 600"#;
    let begun = Instant::now();
    let started = Client::new(()).spawn(tree.command(script, &[])).await;
    assert!(matches!(started, Err(Error::Connection(_))), "{started:?}");
    assert!(begun.elapsed() < at_most(AT_ONCE), "{:?}", begun.elapsed());
    tree.gone(Duration::from_secs(5)).await;
}
