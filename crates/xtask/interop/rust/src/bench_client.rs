//! The client of the benchmark on the official Rust crate, which starts its agent with `AcpAgent`.

mod bench;

use std::process::{Command, Stdio};

use agent_client_protocol::{AcpAgent, Error, Result};
use bench::client::{Stage, connected_to};
use bench::figures::{Figures, Watch};
use bench::play::Play;
use bench::{Kind, synchronous};

fn main() -> Result<()> {
    let (kind, args) = Kind::read();
    let end = args.iter().position(|arg| arg == "--").expect("PLAY NUMBER.. -- AGENT ARG..");
    let (play, agent) = (Play::parse(&args[..end]).expect("a play"), &args[end + 1..]);
    let figures = kind.runtime()?.block_on(async {
        match play {
            Play::Start { count } => start(kind, agent, count).await,
            _ => connected(kind, agent, async |stage: Stage| stage.play(play).await).await,
        }
    })?;
    println!("{}", figures.line());
    Ok(())
}

async fn connected<T>(kind: Kind, agent: &[String], work: impl AsyncFnOnce(Stage) -> Result<T>) -> Result<T> {
    if kind == Kind::Stock {
        return connected_to(AcpAgent::from_args(agent)?, work).await;
    }
    let (program, args) = agent.split_first().expect("an agent after --");
    let mut command = Command::new(program);
    let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(Error::into_internal_error)?;
    let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let worked = connected_to(synchronous(stdout, stdin), work).await;
    child.wait().map_err(Error::into_internal_error)?;
    worked
}

async fn start(kind: Kind, agent: &[String], count: usize) -> Result<Figures> {
    let (mut figures, mut watch) = (Figures::default(), Watch::start(count));
    for _ in 0..count {
        watch.again();
        watch = connected(kind, agent, async move |_| {
            watch.lap();
            Ok(watch)
        })
        .await?;
        figures.messages += 1;
    }
    (figures.wall, figures.latency) = watch.stop();
    Ok(figures)
}
