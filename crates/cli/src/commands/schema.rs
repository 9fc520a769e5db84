//! `duologue schema`.

use crate::error::{Error, Result};
use crate::exit::Exit;

/// Print the JSON Schema of the protocol
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<Exit> {
    Err(Error::Usage("not here yet".into()))
}
