//! `duologue schema`.

use std::io::Write as _;

use duologue_schema::export;

use crate::error::Result;
use crate::exit::Exit;
use crate::ui;

/// Print the JSON Schema of the protocol, or of the messages between agents
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SchemaArgs {
    /// The protocol or scheme
    #[arg(default_value = ACP, value_parser = names())]
    of: String,
    /// Print the table of methods instead
    #[arg(long)]
    meta: bool,
}

const EXAMPLES: &str = "\
Examples:
  duologue schema > acp.json
  duologue schema --meta envelope";

/// The name of the protocol itself, beside the schemes.
const ACP: &str = "acp";

fn names() -> Vec<&'static str> {
    std::iter::once(ACP).chain(export::extension_schemas().iter().map(|scheme| scheme.name)).collect()
}

pub(crate) fn run(args: SchemaArgs) -> Result<Exit> {
    let scheme = export::extension_schemas().into_iter().find(|scheme| scheme.name == args.of);
    let value = match scheme {
        Some(scheme) if args.meta => scheme.meta(),
        Some(scheme) => scheme.document(),
        None if args.meta => export::meta(),
        None => export::document(),
    };
    writeln!(ui::stdout(), "{value:#}")?;
    Ok(Exit::Ok)
}
