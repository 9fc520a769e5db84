//! `duologue peer discover`.

use duologue_schema::envelope::EnvelopeKind;

use crate::commands::{EnvelopeArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::{self, one_line};

/// Query the capabilities of an agent for other agents
///
/// The agent has to advertise envelopes. No session is created. The response may take 10 seconds,
/// or --timeout if that is less.
#[derive(clap::Args)]
pub(crate) struct DiscoverArgs {
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

pub(crate) fn run(args: DiscoverArgs) -> Result<Exit> {
    block_on(envelope_command::run(&args.envelope, async |command| {
        let peer = command.peer();
        let capabilities = command.answer_in_time(EnvelopeKind::Discover, peer.discover()).await?;
        let names = |names: &[String]| names.iter().map(|name| one_line(name)).collect::<Vec<_>>().join(", ");
        let rows = [
            ("name", one_line(&capabilities.agent_name)),
            ("model", capabilities.model.as_deref().map(one_line).unwrap_or_default()),
            ("domains", names(&capabilities.domains)),
            ("version", capabilities.version.as_deref().map(one_line).unwrap_or_default()),
            ("provider", capabilities.provider.as_deref().map(one_line).unwrap_or_default()),
            ("channels", names(&capabilities.channels)),
            ("topics", names(&capabilities.topics)),
            ("tools", names(&capabilities.tools)),
            (
                "can",
                names(&capabilities.capabilities.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>()),
            ),
            ("MIME", names(&capabilities.mime_types)),
            ("tasks", format!("{} at once", capabilities.max_concurrent_tasks)),
        ];
        let rows = rows.iter().filter(|(_, value)| !value.is_empty());
        let lines: Vec<_> = rows.map(|(name, value)| format!("{name:10}{value}")).collect();
        command.print(&capabilities, &lines)?;
        Ok(Exit::Ok)
    }))
}
