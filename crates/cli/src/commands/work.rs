//! `duologue peer work`.

use std::path::PathBuf;

use duologue_client::exchange::work::apply_artifacts;
use duologue_schema::work::WorkInput;

use crate::commands::peer::MetaArgs;
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::run::envelope_command::{self, PeerScheme, continued, one_line};
use crate::ui::plural;

/// Send a work order to an agent and show its artifacts
///
/// The agent has to advertise work orders. The proposed files are listed, and written only with --apply: all of
/// them or none.
///
/// Exits with 1 if the step did not succeed; then nothing is written.
#[derive(clap::Args)]
pub(crate) struct WorkArgs {
    /// The order, a JSON file
    order: PathBuf,
    /// Write the artifacts into the project in this folder
    #[arg(long, value_name = "DIR")]
    apply: Option<PathBuf>,
    /// The id of the order, if it has one. It holds for the connection of this command
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: WorkArgs) -> Result<Exit> {
    let text = std::fs::read_to_string(&args.order).map_err(in_file(args.order.display()))?;
    let input: WorkInput = serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("{} is no work order: {error}", args.order.display())))?;
    block_on(envelope_command::run_with(&args.envelope, PeerScheme::Work, async |command| {
        let mut work = command.peer().work(input.clone());
        if let Some(id) = &args.id {
            work = work.id(id.as_str());
        }
        if let Some(meta) = args.meta.meta() {
            work = work.meta(meta);
        }
        let output = command.answer(work.into_future()).await?;
        let mut lines = vec![continued(&output.summary)];
        for artifact in &output.artifacts {
            let bytes = plural(artifact.content.len(), "byte");
            lines.push(format!(
                "{} {} ({bytes})",
                one_line(artifact.operation.as_str()),
                one_line(&artifact.path)
            ));
        }
        command.print_as("work", &output, &lines)?;
        if !output.success {
            command
                .note(&format!("the step did not succeed: {}", one_line(output.recommendation.as_str())))?;
            return Ok(Exit::Found);
        }
        if let Some(folder) = &args.apply {
            let written = apply_artifacts(folder, &input, &output);
            let written = written.map_err(|error| std::io::Error::other(error.to_string()))?;
            command.note(&format!("wrote {} below {}", plural(written.len(), "file"), folder.display()))?;
        }
        Ok(Exit::Ok)
    }))
}
