//! `duologue mock`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// A deterministic agent that shows everything an agent can do
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
