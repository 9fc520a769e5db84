//! `duologue record`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Sit between a client and an agent and write down what they say
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
