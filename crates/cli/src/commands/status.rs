//! `duologue peer status`.

use duologue_schema::envelope::EnvelopeKind;

use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::{self, one_line};

/// Query the state of a delegated task
///
/// The agent has to advertise envelopes. Most agents remember the tasks of their connection alone, and this
/// command opens a new one. An agent that keeps its tasks elsewhere knows the others too. The response may take
/// 30 seconds, or --timeout if that is less.
///
/// Exits with 1 if the agent does not know the task.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// The id of the task, as in `peer delegate --id`
    task: String,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: StatusArgs) -> Result<Exit> {
    block_on(envelope_command::run(&args.envelope, async |command| {
        let peer = command.in_session().await?;
        let status = peer.task_status(args.task.as_str());
        let status = command.answer_in_time(EnvelopeKind::Query, status).await?;
        let fault = status.error.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
        command.print_as("status", &status, &[one_line(&format!("{}{fault}", status.state.as_str()))])?;
        Ok(Exit::Ok)
    }))
}
