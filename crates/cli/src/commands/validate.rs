//! `duologue validate`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Check every frame against the protocol
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
