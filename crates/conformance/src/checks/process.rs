//! The agent as a process: how it ends, and what it leaves behind.

use std::time::Duration;

use super::bench::{Bench, Client};
use super::finding::{Check, Outcome, check, fail, page, pass, skip};
use super::wire::Wire;

pub(super) const CHECKS: &[Check] = &[
    check!(
        "exits-on-eof",
        Should,
        page::TRANSPORTS,
        "The agent ends within 5 s when its stdin is closed.",
        exits_on_eof
    ),
    check!(
        "exits-in-turn",
        Should,
        page::TRANSPORTS,
        "The agent ends within 5 s when its stdin is closed in the middle of a turn.",
        exits_in_turn
    ),
    check!(
        "exits-on-sigterm",
        Should,
        page::TRANSPORTS,
        "The agent ends within 5 s when it is asked to terminate.",
        exits_on_sigterm
    ),
    check!(
        "leaves-no-children",
        Should,
        page::TRANSPORTS,
        "Processes that the agent started are gone when it is.",
        leaves_no_children
    ),
];

/// How long an agent may take to go.
const GOING: Duration = Duration::from_secs(5);

async fn exits_on_eof(bench: &mut Bench) -> Outcome {
    let mut wire = bench.fresh(Client::Files).await?.into_wire();
    wire.hang_up();
    goes(bench, wire).await
}

/// Whether it ends in time.
async fn goes(bench: &mut Bench, mut wire: Wire) -> Outcome {
    let exit = wire.exit(GOING).await;
    bench.retire(wire);
    Ok(match exit {
        Some(status) => pass(format!("{status}")),
        None => fail("it still runs 5 s later"),
    })
}

async fn exits_in_turn(bench: &mut Bench) -> Outcome {
    // Whether there can be a turn at all.
    bench.session().await?;
    let mut agent = bench.fresh(Client::Files).await?;
    let opened = agent.open().await?;
    let prompt = agent.prompt(&opened.id);
    agent.post("session/prompt", prompt).await?;
    agent.listen(Duration::from_millis(20)).await?;
    let mut wire = agent.into_wire();
    wire.hang_up();
    Ok(goes(bench, wire).await?.explained_by("exits-on-eof"))
}

#[cfg(unix)]
async fn exits_on_sigterm(bench: &mut Bench) -> Outcome {
    use rustix::process::{Pid, Signal, kill_process};
    let wire = bench.fresh(Client::Files).await?.into_wire();
    let pid = wire.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let Some(pid) = pid else { return Ok(fail("it ended by itself")) };
    // If it has gone already, the wait will tell.
    let _ = kill_process(pid, Signal::TERM);
    goes(bench, wire).await
}

#[cfg(unix)]
async fn leaves_no_children(bench: &mut Bench) -> Outcome {
    use rustix::process::Pid;
    bench.expect_turns()?;
    bench.session().await?;
    let mut agent = bench.fresh(Client::Files).await?;
    let opened = agent.open().await?;
    agent.turn(&opened.id).await.map_err(|finding| finding.needed("there is no turn"))?;
    let mut wire = agent.into_wire();
    let group = wire.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    wire.hang_up();
    let exit = wire.exit(GOING).await;
    if exit.is_none() {
        bench.retire(wire);
        return Ok(skip("it does not end when its stdin is closed"));
    }
    let mut left = true;
    for _ in 0..20 {
        // The agent leads a process group of its own; somebody is left while the group exists.
        left = group.is_some_and(is_alive);
        if !left {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bench.retire(wire);
    Ok(if left { fail("2 s after its end some still run") } else { pass("none are left") })
}

/// Whether anybody of a process group runs. Those that are dead, and whom nobody has collected, do not.
#[cfg(unix)]
fn is_alive(group: rustix::process::Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    // Where there is no such folder, the dead cannot be told apart.
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    processes.flatten().filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok()).any(
        |stat| {
            // The name, in brackets, may hold anything; behind it are the state, the parent and the group.
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let state = fields.next();
            !matches!(state, Some("Z" | "X")) && fields.nth(1) == Some(&group)
        },
    )
}

#[cfg(not(unix))]
async fn exits_on_sigterm(_: &mut Bench) -> Outcome {
    Ok(skip("there is no such signal here"))
}

#[cfg(not(unix))]
async fn leaves_no_children(_: &mut Bench) -> Outcome {
    Ok(skip("not known how to see them here"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use rustix::process::Pid;

    use super::*;

    #[test]
    fn the_dead_that_nobody_has_collected_do_not_run() {
        let mut dead = Command::new("true").process_group(0).spawn().expect("it starts");
        let mut alive = Command::new("sleep").arg("60").process_group(0).spawn().expect("it starts");
        let group = |child: &std::process::Child| Pid::from_raw(child.id().cast_signed()).expect("a number");
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while is_alive(group(&dead)) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = (is_alive(group(&dead)), is_alive(group(&alive)));
        alive.kill().expect("killed");
        alive.wait().expect("collected");
        dead.wait().expect("collected");
        assert_eq!(seen, (false, true));
        assert!(!is_alive(group(&dead)));
    }
}
