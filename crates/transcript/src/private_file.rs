//! Files and folders that belong to one user, and files that one program writes. Code that depends on the operating system
//! is here and in `record/file.rs`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// Returns options that create a file for its owner only, since it contains prompts, files and keys.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Rejects symbolic links: one in a shared folder could lead a recording to another file.
pub fn no_links(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        options,
        rustix::fs::OFlags::NOFOLLOW.bits().cast_signed(),
    );
    options
}

/// Makes a file private that was readable by others before prompts were recorded.
///
/// # Errors
///
/// Those of the operating system.
pub fn close_to_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Returns the reason for which other users can use a file or a folder: one of them owns it, or its mode grants them a right of
/// `mask`, such as 0o022 to change it.
pub fn access_of_others(found: &Metadata, mask: u32) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;

        fault(found.uid(), rustix::process::geteuid().as_raw(), found.mode(), mask)
    }
    #[cfg(not(unix))]
    {
        let _ = (found, mask);
        None
    }
}

/// Returns true if all users of the system can read or change a file. Those of its group are not all: a group is common in
/// containers, and shows the users of an access list too.
pub fn may_all_use(found: &Metadata) -> bool {
    #[cfg(unix)]
    {
        std::os::unix::fs::MetadataExt::mode(found) & 0o006 != 0
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        false
    }
}

#[cfg(unix)]
fn fault(owner: u32, user: u32, mode: u32, mask: u32) -> Option<String> {
    let mode = mode & 0o7777;
    if owner != user {
        return Some(format!("it belongs to the user {owner} (mode {mode:o}), and this is the user {user}"));
    }
    (mode & mask != 0).then(|| format!("other users have access to it (mode {mode:o})"))
}

/// Locks a file. Two writers would mix their records, and one of a replaced file would write to a file that
/// has no name any more.
///
/// # Errors
///
/// `ResourceBusy` if another program has the lock or has replaced the file.
pub fn locked(file: File, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let busy = || io::Error::new(ErrorKind::ResourceBusy, "another recorder is writing it");
        let taken = || {
            let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            lock == Err(rustix::io::Errno::WOULDBLOCK)
        };
        // A program that is just being started holds our lock between fork and exec.
        let mut patience = 20;
        while taken() {
            if patience == 0 {
                return Err(busy());
            }
            patience -= 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        let (ours, there) = (file.metadata()?, fs::symlink_metadata(path));
        if !there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Err(busy());
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(file)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_of_others_are_known() {
        for (mode, mask) in [(0o40_700, 0o022), (0o40_755, 0o022), (0o100_600, 0o077)] {
            assert_eq!(fault(7, 7, mode, mask), None);
        }
        for (mode, mask) in [(0o40_720, 0o022), (0o40_702, 0o022), (0o41_777, 0o022), (0o100_640, 0o077)] {
            let fault = fault(7, 7, mode, mask).unwrap_or_default();
            assert!(fault.contains(&format!("(mode {:o})", mode & 0o7777)), "{fault}");
        }
        assert!(fault(8, 7, 0o40_700, 0o022).is_some_and(|fault| fault.contains("the user 8 (mode 700)")));
    }
}
