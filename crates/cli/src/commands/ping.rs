//! `duologue ping`.

use std::time::Instant;

use duologue_schema::envelope::Kind;

use crate::commands::{ErrandArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::errand::{self, time, word};
use crate::ui::plural;

/// Ask an agent whether it is there, and how busy it is
///
/// The agent has to speak envelopes, which it advertises. No session is made. The answer has 10 seconds,
/// or --timeout if that is less.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    errand: ErrandArgs,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(errand::run(&args.errand, async |errand| {
        let start = Instant::now();
        let peer = errand.peer();
        let pong = errand.quick_answer(Kind::Ping, peer.ping()).await?;
        let took = start.elapsed();
        let name = if pong.agent_name.is_empty() { "the agent" } else { &pong.agent_name };
        let line = format!(
            "{}: {}, {}, up {} s, answered in {}",
            word(name),
            word(pong.status.as_str()),
            plural(usize::try_from(pong.active_tasks).unwrap_or(usize::MAX), "task"),
            pong.uptime_secs,
            time(took),
        );
        errand.say(&pong, &[line])?;
        Ok(Exit::Ok)
    }))
}
