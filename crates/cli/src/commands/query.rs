//! `duologue peer query`.

use std::path::PathBuf;
use std::time::Duration;

use crate::commands::peer::{self, MetaArgs};
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::{self, attached, data, multi_line, parse_duration};

/// Send a query to an agent, as another agent would
///
/// The agent has to advertise envelopes. The query is sent in a new session. The command prints the response
/// and its data.
///
/// Exits with 1 if the agent answers with an error.
#[derive(clap::Args)]
pub(crate) struct QueryArgs {
    /// The question
    question: String,
    /// The domain of the question, such as family.calendar
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// The maximum length of the response in tokens; agents may exceed it
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// Wait so long for the response, such as 2m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    deadline: Duration,
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

pub(crate) fn run(args: QueryArgs) -> Result<Exit> {
    let attachments = peer::attachments(&args.file)?;
    block_on(envelope_command::run(&args.envelope, async |command| {
        let mut query = command.in_session().await?.query(&args.question).deadline(args.deadline);
        if let Some(domain) = &args.domain {
            query = query.domain(domain);
        }
        if let Some(max_tokens) = args.max_tokens {
            query = query.max_tokens(max_tokens);
        }
        if let Some(id) = &args.id {
            query = query.id(id.as_str());
        }
        if let Some(meta) = args.meta.meta() {
            query = query.meta(meta);
        }
        let query = attachments.into_iter().fold(query, |query, attachment| query.attachment(attachment));
        let answer = command.answer(query.into_future()).await?;
        let summary = Some(multi_line(&answer.summary)).filter(|text| !text.is_empty());
        let data = answer.data.as_ref().map(data);
        let lines: Vec<_> =
            summary.into_iter().chain(data).chain(answer.attachments.iter().map(attached)).collect();
        command.print(&answer, &lines)?;
        if answer.truncated {
            command.note("the agent left something out")?;
        }
        Ok(Exit::Ok)
    }))
}
