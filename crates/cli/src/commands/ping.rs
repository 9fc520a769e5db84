//! `duologue peer ping`.

use std::time::Instant;

use duologue_schema::envelope::EnvelopeKind;

use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::{self, format_duration, one_line};
use crate::ui::plural;

/// Check that an agent responds, and show its load
///
/// The agent has to advertise envelopes. No session is created. The response may take 10 seconds,
/// or --timeout if that is less.
#[derive(clap::Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: PingArgs) -> Result<Exit> {
    block_on(envelope_command::run(&args.envelope, async |command| {
        let start = Instant::now();
        let peer = command.peer();
        let pong = command.answer_in_time(EnvelopeKind::Ping, peer.ping()).await?;
        let took = start.elapsed();
        let name = if pong.agent_name.is_empty() { "the agent" } else { &pong.agent_name };
        let line = format!(
            "{}: {}, {}, up {} s, answered in {}",
            one_line(name),
            one_line(pong.status.as_str()),
            plural(usize::try_from(pong.active_tasks).unwrap_or(usize::MAX), "task"),
            pong.uptime_secs,
            format_duration(took),
        );
        command.print(&pong, &[line])?;
        Ok(Exit::Ok)
    }))
}
