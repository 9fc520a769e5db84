//! `duologue peer notify`.

use std::path::PathBuf;

use duologue_schema::Json;
use duologue_schema::envelope::{Importance, Notify};

use crate::commands::peer::{self, MetaArgs};
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::{self, json_or_text};

/// Send a notification to an agent, as another agent would
///
/// The agent has to advertise envelopes. The notification is sent in a new session. There is no answer.
#[derive(clap::Args)]
pub(crate) struct NotifyArgs {
    /// The topic, such as family.calendar
    topic: String,
    /// The data: JSON, or else a text
    data: Option<String>,
    /// The importance: low, medium or high
    #[arg(long, value_name = "LEVEL", value_parser = ["low", "medium", "high"])]
    importance: Option<String>,
    /// Attach a file
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// The id of the message, if not a random one
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: NotifyArgs) -> Result<Exit> {
    let attachments = peer::attachments(&args.file)?;
    let data: Json = json_or_text(args.data.as_deref().unwrap_or("null"))?;
    block_on(envelope_command::run(&args.envelope, async |command| {
        let mut notify = command.in_session().await?.notify(&args.topic, data.clone());
        if let Some(importance) = &args.importance {
            notify = notify.importance(Importance::from(importance.as_str()));
        }
        if let Some(id) = &args.id {
            notify = notify.id(id.as_str());
        }
        if let Some(meta) = args.meta.meta() {
            notify = notify.meta(meta);
        }
        let notify = attachments.into_iter().fold(notify, |notify, attachment| notify.attachment(attachment));
        let id = command.answer(notify.into_future()).await?;
        command.print(&Notify::new(&args.topic).data(data), &[])?;
        command.note(&format!("sent {id}"))?;
        Ok(Exit::Ok)
    }))
}
