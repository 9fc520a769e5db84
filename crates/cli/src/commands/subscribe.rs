//! `duologue peer subscribe`.

use std::time::Duration;

use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::{self, parse_duration};

/// Print the notifications of an agent
///
/// The agent has to advertise envelopes. A session is open meanwhile. It ends after --count notifications,
/// after --time, or with Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct SubscribeArgs {
    /// The topic: a whole one, one with `*` at its end, or `*` for all
    topic: String,
    /// End after so many notifications
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, such as 2m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: SubscribeArgs) -> Result<Exit> {
    block_on(envelope_command::run(&args.envelope, async |command| {
        command.print_notifications(&args.topic, args.count, args.time).await?;
        Ok(Exit::Ok)
    }))
}
