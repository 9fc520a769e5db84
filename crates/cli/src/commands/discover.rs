//! `duologue discover`.

use duologue_schema::envelope::Kind;

use crate::commands::{ErrandArgs, block_on};
use crate::error::Result;
use crate::exit::Exit;
use crate::run::errand::{self, word};

/// Ask an agent what it can do for other agents
///
/// The agent has to speak envelopes, which it advertises. No session is made. The answer has 10 seconds,
/// or --timeout if that is less.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    errand: ErrandArgs,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(errand::run(&args.errand, async |errand| {
        let peer = errand.peer();
        let told = errand.quick_answer(Kind::Discover, peer.discover()).await?;
        let names = |names: &[String]| names.iter().map(|name| word(name)).collect::<Vec<_>>().join(", ");
        let rows = [
            ("name", word(&told.agent_name)),
            ("model", told.model.as_deref().map(word).unwrap_or_default()),
            ("domains", names(&told.domains)),
            ("channels", names(&told.channels)),
            ("tools", names(&told.tools)),
            ("tasks", format!("{} at once", told.max_concurrent_tasks)),
        ];
        let rows = rows.iter().filter(|(_, value)| !value.is_empty());
        let lines: Vec<_> = rows.map(|(name, value)| format!("{name:10}{value}")).collect();
        errand.say(&told, &lines)?;
        Ok(Exit::Ok)
    }))
}
