//! `duologue delegate`.

use std::path::Path;
use std::time::Duration;

use duologue_schema::Members;

use crate::commands::{EnvelopeArgs, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::run::envelope_command::{self, parse_duration};

/// Give an agent a task, as another agent would
///
/// The agent has to speak envelopes, which it advertises. It gets the task in a new session, and is lent
/// nothing: no files, no programs, no permission. What it says while it works is shown, then its result.
///
/// Ctrl-C asks the agent to cancel and waits a little for the end; a second one leaves.
///
/// Ends with 0 when the task is completed, 1 when it failed, was done in part, refused or cancelled. With
/// --no-report it ends as soon as the agent has taken the task on; an agent that ends with its input
/// takes the task with it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The task
    task: String,
    /// What is needed to do it: a JSON object, or @FILE with one in it
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// Let it use the slot that is kept free for urgent tasks
    #[arg(long)]
    urgent: bool,
    /// How long the agent may work on it, such as 10m; else there is no limit
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Do not wait for the result
    #[arg(long)]
    no_report: bool,
    /// Cancel the task when it has taken so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "no_report")]
    cancel_after: Option<Duration>,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    let context = args.context.as_deref().map(context).transpose()?;
    block_on(envelope_command::run(&args.envelope, async |command| {
        let mut task = command.in_session().await?.delegate(&args.task).report_back(!args.no_report);
        if let Some(context) = context {
            task = task.context(context);
        }
        if args.urgent {
            task = task.urgent();
        }
        if let Some(deadline) = args.deadline {
            task = task.deadline(deadline);
        }
        let task = command.delegated(task).await?;
        match args.no_report {
            true => Ok(Exit::Ok),
            false => command.result(&task, args.cancel_after).await,
        }
    }))
}

/// An object as JSON, or in a file.
fn context(text: &str) -> Result<Members> {
    let (json, origin) = match text.strip_prefix('@') {
        Some(file) => {
            let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{file}: {error}"));
            (std::fs::read_to_string(Path::new(file)).map_err(named)?, file)
        }
        None => (text.to_owned(), "--context"),
    };
    serde_json::from_str(&json).map_err(|error| Error::Usage(format!("{origin} is no JSON object: {error}")))
}
