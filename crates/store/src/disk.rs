//! Files and folders that other users or programs may have replaced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use duologue_transcript::private_file::access_of_others;

/// Opens an ordinary file. A link is refused. A pipe or a device is refused too, without waiting for it.
pub(crate) fn open_ordinary(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;

        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not an ordinary file"));
    }
    Ok(file)
}

/// Removes a file or a link, unless there is none.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Waits until the names in a folder are on the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Returns the options for a folder that is for its owner only.
pub(crate) fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Returns the bytes that this user can still write to the disk of a file, if that is known.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(path).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

/// Refuses a folder that another user owns or can change.
pub(crate) fn check_owner(folder: &Path) -> io::Result<()> {
    match access_of_others(&std::fs::metadata(folder)?, 0o022) {
        Some(fault) => Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("{fault}; use `chmod go=`, or a folder of this user"),
        )),
        None => Ok(()),
    }
}

/// Returns the length of an open file, or zero if its path leads to no file or to another one.
pub(crate) fn length_at(path: &Path, file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;

        let there = std::fs::symlink_metadata(path);
        if !there.is_ok_and(|there| (there.dev(), there.ino()) == (found.dev(), found.ino())) {
            return Ok(0);
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(found.len())
}
