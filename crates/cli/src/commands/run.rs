//! `duologue run`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Talk to an agent, once or interactively
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
