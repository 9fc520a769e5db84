//! The folder for state that outlives a process, and the token of the server in it.

use std::env::var_os;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::in_file;

/// Returns the folder of this user: `$XDG_STATE_HOME/duologue` or `~/.local/state/duologue` on Linux.
pub(crate) fn of_user() -> Result<PathBuf> {
    let set = |name: &str| var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        set("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))
    };
    let missing =
        || Error::Usage("HOME is not set, so there is no state folder; name one with --data".into());
    Ok(base.ok_or_else(missing)?.join("duologue"))
}

/// Returns the path of the token in a state folder.
pub(crate) fn token_path(folder: &Path) -> PathBuf {
    folder.join("token")
}

/// Reads a token.
pub(crate) fn read_token(path: &Path) -> Result<String> {
    let mut token = String::new();
    // A token is 64 characters; a wrong path can be any file.
    let read =
        OpenOptions::new().read(true).open(path).and_then(|file| file.take(4096).read_to_string(&mut token));
    read.map_err(in_file(path.display()))?;
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::Usage(format!("{} contains no token", path.display())));
    }
    Ok(token.to_owned())
}

/// Rejects a token that other users may know or replace.
#[cfg(feature = "serve")]
fn check_private(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        let mode = std::fs::metadata(path).map_err(in_file(path.display()))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.display();
            return Err(Error::Usage(format!(
                "other users have access to {path} (mode {mode:o}); remove it, and the server writes a new token"
            )));
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Reads the token of a state folder, and creates it for the first server. Only this user can read the file.
///
/// The caller has the folder for itself. A file without content is replaced: a file system may leave it after a power cut.
#[cfg(feature = "serve")]
pub(crate) fn token(folder: &Path) -> Result<String> {
    use std::io::Write as _;

    let path = token_path(folder);
    match std::fs::metadata(&path) {
        Ok(found) if found.len() > 0 => {
            check_private(&path)?;
            return read_token(&path);
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(in_file(path.display())(error).into());
        }
        _ => {}
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(file, "{token}")?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(in_file(path.display()))?;
    Ok(token)
}
