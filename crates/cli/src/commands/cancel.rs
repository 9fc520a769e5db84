//! `duologue peer cancel`.

use duologue_schema::envelope::EnvelopeKind;

use crate::commands::peer::MetaArgs;
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command;

/// Cancel a delegated task
///
/// The agent has to advertise envelopes. Most agents know the tasks of their connection alone, and this
/// command opens a new one. Ctrl-C in `duologue peer delegate` cancels the task of that command. The response
/// may take 30 seconds, or --timeout if that is less.
///
/// Exits with 1 if the agent does not know the task or does not cancel it.
#[derive(clap::Args)]
pub(crate) struct CancelArgs {
    /// The id of the task, as in `peer delegate --id`
    task: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: CancelArgs) -> Result<Exit> {
    block_on(envelope_command::run(&args.envelope, async |command| {
        let mut cancel = command.in_session().await?.cancel(args.task.as_str());
        if let Some(reason) = &args.reason {
            cancel = cancel.reason(reason);
        }
        if let Some(meta) = args.meta.meta() {
            cancel = cancel.meta(meta);
        }
        let ack = command.answer_in_time(EnvelopeKind::Cancel, cancel.into_future()).await?;
        command.cancel_answered(&ack)?;
        if !ack.accepted {
            return Ok(Exit::Found);
        }
        command.note("the agent cancels the task")?;
        Ok(Exit::Ok)
    }))
}
