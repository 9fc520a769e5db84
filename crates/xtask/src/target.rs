//! Where everything is built.

use std::path::{Path, PathBuf};

/// The folder that cargo builds into, wherever a program is started.
pub(crate) fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(own, PathBuf::from);
    std::path::absolute(&folder).unwrap_or(folder)
}
