//! Files and folders that other users or programs may have replaced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

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

/// Refuses a folder that another user owns or can change.
pub(crate) fn check_owner(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;

        let found = std::fs::metadata(folder)?;
        if let Some(fault) = fault(found.uid(), rustix::process::geteuid().as_raw(), found.mode()) {
            return Err(io::Error::new(ErrorKind::PermissionDenied, fault));
        }
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Returns the reason for which other users can change a folder.
#[cfg(unix)]
fn fault(owner: u32, user: u32, mode: u32) -> Option<String> {
    let mode = mode & 0o7777;
    if owner != user {
        return Some(format!("it belongs to the user {owner} (mode {mode:o}), and this is the user {user}"));
    }
    (mode & 0o022 != 0).then(|| format!("other users can change it (mode {mode:o}); use `chmod go=`"))
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn folders_of_other_users_are_refused() {
        assert_eq!(fault(7, 7, 0o40_700), None);
        assert_eq!(fault(7, 7, 0o40_755), None);
        for mode in [0o40_720, 0o40_702, 0o41_777] {
            let fault = fault(7, 7, mode).unwrap_or_default();
            let mode = format!("(mode {:o})", mode & 0o7777);
            assert!(fault.contains(&mode) && fault.contains("`chmod go=`"), "{fault}");
        }
        assert!(fault(8, 7, 0o40_700).is_some_and(|fault| fault.contains("the user 8 (mode 700)")));
    }
}
