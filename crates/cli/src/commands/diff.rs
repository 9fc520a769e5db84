//! `duologue diff`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Compare two transcripts, ids and times aside
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
