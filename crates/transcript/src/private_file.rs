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

/// Returns the reason for which other users can put another file in the place of one, with the remedy. `found` is the file that
/// was opened by this path.
///
/// Root and this user may own the file, the links on its path and the folders of both. Nobody else may rename what is in these
/// folders: those in which all users can write are sticky. The group of a folder is not checked, as in [`may_all_use`].
///
/// # Errors
///
/// Those of the operating system.
pub fn replaceable_by_others(path: &Path, found: &Metadata) -> io::Result<Option<String>> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;

        let user = rustix::process::geteuid().as_raw();
        if let Some(fault) = owner_fault(found.uid(), user) {
            return Ok(Some(format!(
                "{}: {fault}; use `chown {user}`, or a file of this user",
                path.display()
            )));
        }
        // A pipe has nothing but the texts of its owner.
        if found.is_file() || found.is_dir() { path_fault(path, user) } else { Ok(None) }
    }
    #[cfg(not(unix))]
    {
        let _ = (path, found);
        Ok(None)
    }
}

#[cfg(unix)]
fn path_fault(path: &Path, user: u32) -> io::Result<Option<String>> {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;

    /// As many as systems follow.
    const LINKS: usize = 40;
    let at = |path: &Path| {
        let shown = path.display().to_string();
        move |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"))
    };
    // In a namespace of users the owner of everything has another number than root.
    let top = fs::metadata("/")?.uid();
    let owner = |found: u32| if found == top { 0 } else { found };
    let mut path = std::path::absolute(path).map_err(at(path))?;
    for _ in 0..LINKS {
        let mut walked = PathBuf::new();
        let mut target = None;
        let mut names = path.components();
        while let Some(name) = names.next() {
            if !walked.as_os_str().is_empty() {
                let folder = fs::metadata(&walked).map_err(at(&walked))?;
                if let Some(fault) = folder_fault(owner(folder.uid()), user, folder.mode()) {
                    return Ok(Some(format!("{}: {fault}", walked.display())));
                }
            }
            walked.push(name);
            let found = fs::symlink_metadata(&walked).map_err(at(&walked))?;
            if found.is_symlink() {
                if let Some(fault) = owner_fault(owner(found.uid()), user) {
                    let advice = "use a link of this user, or the path that it leads to";
                    return Ok(Some(format!("{}: {fault}; {advice}", walked.display())));
                }
                // The kernel leads such a link to a file that is open.
                if walked.starts_with("/proc") {
                    return Ok(None);
                }
                let link = fs::read_link(&walked).map_err(at(&walked))?;
                walked.pop();
                target = Some(walked.join(link).join(names.as_path()));
                break;
            }
        }
        match target {
            Some(target) => path = target,
            None => return Ok(None),
        }
    }
    Ok(Some(format!("{}: it has too many links; use the path that they lead to", path.display())))
}

#[cfg(unix)]
fn fault(owner: u32, user: u32, mode: u32, mask: u32) -> Option<String> {
    let mode = mode & 0o7777;
    if owner != user {
        return Some(format!("it belongs to the user {owner} (mode {mode:o}), and this is the user {user}"));
    }
    (mode & mask != 0).then(|| format!("other users have access to it (mode {mode:o})"))
}

/// Returns the reason for which others can replace a file or a link: one of them owns it.
#[cfg(unix)]
fn owner_fault(owner: u32, user: u32) -> Option<String> {
    let is_trusted = owner == 0 || owner == user;
    (!is_trusted).then(|| format!("it belongs to the user {owner}, and this is the user {user}"))
}

/// Returns the reason for which others can replace what is in a folder, with the remedy.
#[cfg(unix)]
fn folder_fault(owner: u32, user: u32, mode: u32) -> Option<String> {
    /// All users can write.
    const ALL: u32 = 0o002;
    /// Users can rename only what is theirs.
    const STICKY: u32 = 0o1000;
    if let Some(fault) = owner_fault(owner, user) {
        return Some(format!("{fault}; use a folder of this user or of root"));
    }
    let mode = mode & 0o7777;
    (mode & (ALL | STICKY) == ALL).then(|| {
        format!("all users can rename what is in this folder (mode {mode:o}); use `chmod o-w` or `chmod +t`")
    })
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

    #[test]
    fn what_root_or_this_user_owns_is_not_replaced_by_others() {
        for owner in [0, 7] {
            assert_eq!(owner_fault(owner, 7), None);
            // In a sticky folder others rename only what is theirs. The last ones are for a group.
            for mode in [0o40_755, 0o40_700, 0o41_777, 0o43_777, 0o40_775, 0o42_770] {
                assert_eq!(folder_fault(owner, 7, mode), None, "{mode:o}");
            }
            for mode in [0o40_777, 0o40_702, 0o42_777] {
                let fault = folder_fault(owner, 7, mode).unwrap_or_default();
                assert!(fault.contains("use `chmod o-w` or `chmod +t`"), "{fault}");
            }
        }
        assert!(owner_fault(8, 7).is_some_and(|fault| fault.contains("the user 8, and this is the user 7")));
        assert!(owner_fault(7, 0).is_some());
        // The owner of a sticky folder renames everything in it.
        for mode in [0o40_755, 0o40_700, 0o41_777] {
            assert!(
                folder_fault(8, 7, mode).is_some_and(|fault| fault.contains("use a folder of this user"))
            );
        }
    }

    #[test]
    fn a_path_is_open_to_others_by_each_of_its_folders_and_links() {
        let base = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, base.path().join(name)).unwrap();
        };
        fs::create_dir_all(base.path().join("open/own")).unwrap();
        fs::write(base.path().join("open/own/file"), "").unwrap();
        link("open/own", "folder");
        link("folder/file", "twice");
        link("../twice", "open/link");
        for (mode, is_refused) in [(0o777, true), (0o1777, false), (0o775, false), (0o700, false)] {
            set(&base.path().join("open"), mode);
            for name in ["open/own/file", "open/own/../own/file", "folder/file", "twice", "open/link"] {
                let path = base.path().join(name);
                let fault = replaceable_by_others(&path, &fs::metadata(&path).unwrap()).unwrap();
                assert_eq!(fault.is_some(), is_refused, "{name} {mode:o}: {fault:?}");
                let at = base.path().join("open").canonicalize().unwrap();
                assert!(fault.is_none_or(|fault| fault.starts_with(&format!("{}: ", at.display()))));
            }
        }
        // A volume of secrets as containers have it: each update is another folder behind one link.
        let volume = base.path().join("volume");
        fs::create_dir_all(volume.join("..2026")).unwrap();
        fs::write(volume.join("..2026/key"), "").unwrap();
        link("..2026", "volume/..data");
        link("..data/key", "volume/key");
        set(&volume, 0o1777);
        let key = volume.join("key");
        assert_eq!(replaceable_by_others(&key, &fs::metadata(&key).unwrap()).unwrap(), None);
        set(&volume, 0o777);
        assert!(replaceable_by_others(&key, &fs::metadata(&key).unwrap()).unwrap().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_file_is_no_path_that_others_can_change() {
        use std::os::fd::AsRawFd as _;

        // It has no name, as the text that a shell passes on.
        let file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(replaceable_by_others(Path::new(&path), &file.metadata().unwrap()).unwrap(), None);
    }
}
