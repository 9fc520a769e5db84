//! `duologue schema`.

use std::io::Write as _;

use duologue_schema::export;

use crate::error::Result;
use crate::exit::Exit;
use crate::ui;

/// Print the JSON Schema of the protocol
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the table of methods instead
    #[arg(long)]
    meta: bool,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    let value = if args.meta { export::meta() } else { export::document() };
    writeln!(ui::stdout(), "{value:#}")?;
    Ok(Exit::Ok)
}
