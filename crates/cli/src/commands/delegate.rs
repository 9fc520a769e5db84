//! `duologue peer delegate`.

use std::path::PathBuf;
use std::time::Duration;

use duologue_schema::Members;
use duologue_schema::envelope::Priority;

use crate::commands::peer::{self, MetaArgs};
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::run::envelope_command::{self, parse_duration};

/// Delegate a task to an agent, as another agent would
///
/// The agent has to advertise envelopes. It gets the task in a new session, without access to files, programs
/// or permissions. Its progress is shown, then its result.
///
/// Ctrl-C requests the cancellation and waits a little for the end; a second one exits at once.
///
/// Exits with 0 if the task is completed, and with 1 if it failed, is incomplete, was refused or cancelled. With
/// --no-report it exits as soon as the agent has accepted the task; an agent that ends with its input
/// drops the task.
#[derive(clap::Args)]
pub(crate) struct DelegateArgs {
    /// The task
    task: String,
    /// The context of the task: a JSON object, or @FILE with one in it
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// Allow the slot that is reserved for urgent tasks
    #[arg(long, conflicts_with = "priority")]
    urgent: bool,
    /// The priority of the task
    #[arg(long, value_name = "LEVEL", value_parser = ["low", "normal", "medium", "high", "urgent", "critical"])]
    priority: Option<String>,
    /// Attach a file
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// The id of the task, if not a random one. It holds for the connection of this command
    #[arg(long)]
    id: Option<String>,
    /// The deadline of the task, such as 10m; without it there is no limit
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Do not wait for the result
    #[arg(long)]
    no_report: bool,
    /// Cancel the task after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "no_report")]
    cancel_after: Option<Duration>,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: DelegateArgs) -> Result<Exit> {
    let context = args.context.as_deref().map(context).transpose()?;
    let attachments = peer::attachments(&args.file)?;
    block_on(envelope_command::run(&args.envelope, async |command| {
        let mut task = command.in_session().await?.delegate(&args.task).report_back(!args.no_report);
        if let Some(context) = context {
            task = task.context(context);
        }
        if args.urgent {
            task = task.urgent();
        }
        if let Some(priority) = &args.priority {
            task = task.priority(Priority::from(priority.as_str()));
        }
        if let Some(id) = &args.id {
            task = task.id(id.as_str());
        }
        if let Some(meta) = args.meta.meta() {
            task = task.meta(meta);
        }
        task = attachments.into_iter().fold(task, |task, attachment| task.attachment(attachment));
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

/// Parses a JSON object, from the argument or from a file.
fn context(text: &str) -> Result<Members> {
    let (json, origin) = match text.strip_prefix('@') {
        Some(file) => (std::fs::read_to_string(file).map_err(in_file(file))?, file),
        None => (text.to_owned(), "--context"),
    };
    serde_json::from_str(&json).map_err(|error| Error::Usage(format!("{origin} is no JSON object: {error}")))
}
