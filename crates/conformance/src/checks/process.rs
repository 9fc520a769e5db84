//! The agent's process: its end, and the processes it leaves behind.

use std::time::Duration;

use duologue_schema::{PromptRequest, Request as _};

use crate::finding::{Outcome, checks, fail, pass, skip};
use crate::harness::{Harness, TestClient};
use crate::raw_process::RawProcess;

checks! { "process";
    "exits-on-eof" => exits_on_eof, Should, TRANSPORTS,
        "The agent ends within 5 s when its stdin is closed.";
    "exits-in-turn" => exits_in_turn, Should, TRANSPORTS,
        "The agent ends within 5 s when its stdin is closed in the middle of a turn.";
    "exits-on-sigterm" => exits_on_sigterm, Should, TRANSPORTS,
        "The agent ends within 5 s of SIGTERM.";
    "leaves-no-children" => leaves_no_children, Should, TRANSPORTS,
        "Processes that the agent started are gone when it is.";
}

/// The time that an agent may take to end.
const GOING: Duration = Duration::from_secs(5);

async fn exits_on_eof(harness: &mut Harness) -> Outcome {
    let mut process = harness.fresh(TestClient::Files).await?.into_process();
    process.close_stdin();
    goes(harness, process).await
}

/// Passes if the process ends in time.
async fn goes(harness: &mut Harness, mut process: RawProcess) -> Outcome {
    let exit = process.exit(GOING).await;
    harness.retire(process);
    Ok(match exit {
        Some(status) => pass(format!("{status}")),
        None => fail("it still runs 5 s later"),
    })
}

async fn exits_in_turn(harness: &mut Harness) -> Outcome {
    // Skips the check if there can be no session.
    harness.session().await?;
    let mut agent = harness.fresh(TestClient::Files).await?;
    let opened = agent.open().await?;
    let prompt = agent.prompt_params(&opened.id);
    agent.send_request(PromptRequest::METHOD, prompt).await?;
    agent.serve_for(Duration::from_millis(20)).await?;
    let mut process = agent.into_process();
    process.close_stdin();
    Ok(goes(harness, process).await?.explained_by("exits-on-eof"))
}

#[cfg(unix)]
async fn exits_on_sigterm(harness: &mut Harness) -> Outcome {
    use rustix::process::{Pid, Signal, kill_process};
    let process = harness.fresh(TestClient::Files).await?.into_process();
    let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let Some(pid) = pid else { return Ok(fail("it ended by itself")) };
    // If the process has ended already, the wait below notices it.
    let _ = kill_process(pid, Signal::TERM);
    goes(harness, process).await
}

#[cfg(unix)]
async fn leaves_no_children(harness: &mut Harness) -> Outcome {
    use rustix::process::Pid;
    harness.expect_turns()?;
    harness.session().await?;
    let mut agent = harness.fresh(TestClient::Files).await?;
    let opened = agent.open().await?;
    agent.turn(&opened.id).await.map_err(|finding| finding.needed("there is no turn"))?;
    let mut process = agent.into_process();
    let group = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    process.close_stdin();
    let exit = process.exit(GOING).await;
    if exit.is_none() {
        harness.retire(process);
        return Ok(skip("it does not end when its stdin is closed"));
    }
    let mut left = true;
    for _ in 0..20 {
        // The agent leads a process group of its own, which exists while a process is left.
        left = group.is_some_and(is_group_alive);
        if !left {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    harness.retire(process);
    Ok(if left { fail("2 s after its end some still run") } else { pass("none are left") })
}

/// Returns true if a process of the group runs. Zombies do not count.
#[cfg(unix)]
pub fn is_group_alive(group: rustix::process::Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    // Without `/proc`, zombies cannot be recognized.
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    processes.flatten().filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok()).any(
        |stat| {
            // The name, in brackets, can hold any character. The state, the parent and the group follow it.
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let state = fields.next();
            !matches!(state, Some("Z" | "X")) && fields.nth(1) == Some(&group)
        },
    )
}

#[cfg(not(unix))]
async fn exits_on_sigterm(_: &mut Harness) -> Outcome {
    Ok(skip("there is no such signal here"))
}

#[cfg(not(unix))]
async fn leaves_no_children(_: &mut Harness) -> Outcome {
    Ok(skip("not known how to see them here"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use rustix::process::Pid;

    use super::*;

    #[test]
    fn zombies_do_not_run() {
        let mut dead = Command::new("true").process_group(0).spawn().expect("it starts");
        let mut alive = Command::new("sleep").arg("60").process_group(0).spawn().expect("it starts");
        let group = |child: &std::process::Child| Pid::from_raw(child.id().cast_signed()).expect("a number");
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while is_group_alive(group(&dead)) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = (is_group_alive(group(&dead)), is_group_alive(group(&alive)));
        alive.kill().expect("killed");
        alive.wait().expect("collected");
        dead.wait().expect("collected");
        assert_eq!(seen, (false, true));
        assert!(!is_group_alive(group(&dead)));
    }
}
