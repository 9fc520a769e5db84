//! Agents that do not start: every way has an error of its own that says what to do, and leaves
//! no process.

use std::time::{Duration, Instant};

use duologue_client::{Client, Command, Error};

use crate::trees::{DIRECT, SCRIPTED, Tree, WRAPPED};

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
    assert!(begun.elapsed() < AT_ONCE);
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
        assert!(took < AT_ONCE, "{script}: {took:?}");
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
    assert!(begun.elapsed() < AT_ONCE);
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
    assert!(took >= after && took < after + AT_ONCE, "{took:?}");
    assert!(stderr.contains("complaint 0\n") && stderr.contains("complaint 24\n"), "{stderr}");
    // The last ones.
    assert_eq!(noise.len(), 20);
    assert_eq!(noise.last().map(String::as_str), Some("noise 24"));
    assert!(error.to_string().contains("after frame 0"), "{error}");
    tree.gone(AT_ONCE).await;
}

/// 64 MiB, and none of it text.
#[tokio::test]
async fn shouts_before_it_answers() {
    let tree = Tree::new().await;
    let begun = Instant::now();
    let command = tree.command(DIRECT, &[SCRIPTED, "--stderr", "67108864"]);
    let agent = Client::new(()).spawn(command).await.expect("it answers in the end");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let kept = agent.stderr().len();
    assert!((60 * 1024..=64 * 1024).contains(&kept), "{kept} bytes are kept");
    agent.close().await;
    tree.gone(AT_ONCE).await;
}

/// The connection is dead, but nobody said goodbye: what is asked fails, and the last handle ends it.
#[tokio::test]
async fn closes_its_output_and_stays() {
    let tree = Tree::new().await;
    let script = r#"exec 1>&-; sleep 600"#;
    let begun = Instant::now();
    let started = Client::new(()).spawn(tree.command(script, &[])).await;
    assert!(matches!(started, Err(Error::Connection(_))), "{started:?}");
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    tree.gone(Duration::from_secs(5)).await;
}
