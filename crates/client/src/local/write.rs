//! Writing a text file: whole or not at all.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cap_std::fs::{Dir, File, OpenOptions};

use super::folders::FileError;
use super::{read, system};

/// Writes `content` to the file, making it and its folders if they are missing. `path` is what the
/// agent calls it.
///
/// The new text is written beside the file and takes its place in one step, so that a full disk or a
/// crash leaves the old text. Where that would lose something the file is written in place: it is
/// reached by a link, has several names or another owner, or its folder takes no new files.
pub(super) fn write(dir: &Dir, way: &Path, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let Some(name) = way.file_name() else { return Err(FileError::about(path, "is a folder")) };
    // Before a folder is made for it.
    read::names_file(path)?;
    let parent = folder(dir, way.parent().unwrap_or(Path::new("")))?;
    // Not by the parent's handle: a link beside the file may lead to a place above it.
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
                    "runs with the rights of its owner (set-user-id or set-group-id)",
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

/// The folder of a file, made if it is missing.
fn folder(dir: &Dir, way: &Path) -> io::Result<Dir> {
    if way.as_os_str().is_empty() {
        return dir.try_clone();
    }
    match dir.open_dir(way) {
        // The way back from a folder that is not there leads nowhere.
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

/// Writes a file beside `name` and puts it in its place. `false` when nothing was done, because that
/// would lose something of the old file.
fn replace(parent: &Dir, name: &OsStr, old: Option<&File>, content: &[u8]) -> io::Result<bool> {
    // Until the text has its place, nobody else may read it: the old file may be private.
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
    // A rename can reach the disk before the text does.
    file.sync_data()?;
    beside.rename(name)?;
    Ok(true)
}

/// The permissions of a new file.
enum Mode {
    /// Only its owner may read it.
    Private,
    /// The usual ones of new files.
    Default,
}

/// A file that is removed unless it gets its name.
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
                // Left behind by a program of the same number.
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

    /// The old file may be one that nobody else may read.
    #[test]
    fn a_replacement_is_private_from_its_first_moment() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let (file, _beside) = Beside::new(&folder, Mode::Private).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
