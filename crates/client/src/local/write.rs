//! Writes text files atomically where possible.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cap_std::fs::{Dir, File, OpenOptions};

use super::folders::FileError;
use super::{read, system};

/// Writes `content` to the file. Creates missing files and folders. `path` is its path in the request.
///
/// The new text is written beside the file and replaces it in one step, so that a full disk or a crash
/// leaves the old text. The file is written in place if it is behind a link, has several names or another
/// owner, or if its folder has no write permission.
pub(super) fn write(dir: &Dir, way: &Path, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let Some(name) = way.file_name() else { return Err(FileError::about(path, "is a folder")) };
    // Checked before a folder is created.
    read::names_file(path)?;
    let parent = folder(dir, way.parent().unwrap_or(Path::new("")))?;
    // Not opened through the parent's handle, because a link in the folder may lead to a place above it.
    let old = match read::open_file(dir, way, path, OpenOptions::new().write(true)) {
        Ok(file) => Some(file),
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    let link = parent.symlink_metadata(name).is_ok_and(|metadata| metadata.is_symlink());
    match old {
        Some(old) => {
            if system::has_special_bits(&old.metadata()?) {
                return Err(FileError::about(
                    path,
                    "has the set-user-id or set-group-id bit and is not written",
                ));
            }
            if link || !replace(&parent, name, Some(&old), content)? {
                write_in_place(&old, content)?;
            }
        }
        None if link => {
            let mut options = OpenOptions::new();
            write_in_place(&read::open_file(dir, way, path, options.write(true).create(true))?, content)?;
        }
        None => {
            replace(&parent, name, None, content)?;
        }
    }
    Ok(())
}

/// Opens the folder of a file. Creates it if it is missing.
fn folder(dir: &Dir, way: &Path) -> io::Result<Dir> {
    if way.as_os_str().is_empty() {
        return dir.try_clone();
    }
    match dir.open_dir(way) {
        // A path with `..` after a missing folder is not created.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                && !way.components().any(|part| part == Component::ParentDir) =>
        {
            dir.create_dir_all(way)?;
            dir.open_dir(way)
        }
        opened => opened,
    }
}

fn write_in_place(file: &File, content: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    let mut file = file;
    file.write_all(content)
}

/// Writes a file beside `name` and renames it. Returns false without an effect if this would lose
/// properties of the old file.
fn replace(parent: &Dir, name: &OsStr, old: Option<&File>, content: &[u8]) -> io::Result<bool> {
    // The old file may be private, so the new one is private until it has the old permissions.
    let mode = if old.is_some() { Mode::Private } else { Mode::Default };
    let (mut file, beside) = match Beside::new(parent, mode) {
        Ok(made) => made,
        Err(error) if old.is_some() && error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        Err(error) => return Err(error),
    };
    if let Some(old) = old {
        let old = old.metadata()?;
        if !system::replaceable(&old, &file.metadata()?) {
            return Ok(false);
        }
        file.write_all(content)?;
        file.set_permissions(old.permissions())?;
    } else {
        file.write_all(content)?;
    }
    // Otherwise the rename could reach the disk before the text.
    file.sync_data()?;
    beside.rename(name)?;
    Ok(true)
}

/// The permissions of a new file.
enum Mode {
    /// Only the owner has access.
    Private,
    /// The default permissions of new files.
    Default,
}

/// A temporary file that is removed unless it is renamed.
struct Beside<'a> {
    parent: &'a Dir,
    name: Option<String>,
}

impl<'a> Beside<'a> {
    fn new(parent: &'a Dir, mode: Mode) -> io::Result<(File, Self)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!(".duologue-{}-{}.tmp", std::process::id(), NUMBER.fetch_add(1, Relaxed));
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            if let Mode::Private = mode {
                system::owner_only(&mut options);
            }
            match parent.open_with(&name, &options) {
                Ok(file) => return Ok((file, Beside { parent, name: Some(name) })),
                // An earlier process with the same id left the file behind.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(mut self, name: &OsStr) -> io::Result<()> {
        if let Some(beside) = &self.name {
            self.parent.rename(beside, self.parent, name)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.parent.remove_file(name);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use cap_std::ambient_authority;
    use cap_std::fs::MetadataExt;

    use super::*;

    /// The old file may be private.
    #[test]
    fn a_replacement_is_created_private() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let (file, _beside) = Beside::new(&folder, Mode::Private).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
