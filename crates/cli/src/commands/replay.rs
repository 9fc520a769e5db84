//! `duologue replay`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Be the agent of a transcript, or its client
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
