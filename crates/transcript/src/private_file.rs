//! Files that only their owner may read, and that one program writes. Code that depends on the operating system
//! is here and in `record/file.rs`.

use std::fs::{self, File, OpenOptions};
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
