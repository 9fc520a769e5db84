//! A folder of logs, which one process has at a time.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use duologue_rpc::Lock as _;
use duologue_transcript::Header;
use duologue_transcript::private_file::{locked, private};

use crate::disk::{check_owner, free_bytes, open_ordinary, private_folder, sync_folder};
use crate::error::{Error, Result};
use crate::file::{FileLog, FileLogInner, LogSnapshot};
use crate::settings::LogSettings;

/// A folder with a subfolder for each log. Folders have mode 0700, files 0600.
///
/// Clones are the same folder. It is locked until the last clone and the last log are dropped.
#[derive(Clone, Debug)]
pub struct LogRoot {
    shared: Arc<RootShared>,
}

#[derive(Debug)]
pub(crate) struct RootShared {
    folder: PathBuf,
    pub(crate) settings: LogSettings,
    _lock: File,
    started: Instant,
    /// The open logs. A name without a log is being opened or removed.
    logs: Mutex<HashMap<String, Weak<FileLogInner>>>,
    /// The number of files that are open for writing.
    files: AtomicUsize,
    /// The memory of the newest records of all logs.
    tails: AtomicUsize,
    /// The bytes that were appended since the room on the disk was looked up.
    unchecked: AtomicU64,
}

/// The bytes after which the room on the disk is looked up again.
const CHECK_BYTES: u64 = 1024 * 1024;

impl RootShared {
    /// Refuses to append so many bytes while the disk has little room left.
    pub(crate) fn require_room(&self, more: u64) -> Result<()> {
        if self.unchecked.fetch_add(more, Ordering::Relaxed).saturating_add(more) < CHECK_BYTES {
            return Ok(());
        }
        let reserved = self.settings.reserved_bytes;
        match free_bytes(&self.folder) {
            // The next append looks it up again.
            Some(free) if free < reserved => {
                let setting = "`limits.reserved_disk_bytes` of a hub (`LogSettings::reserved_bytes`)";
                Err(Error::DiskReserve { free, reserved, setting })
            }
            _ => {
                self.unchecked.store(0, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

/// A name that is in use until this is dropped.
#[derive(Debug)]
pub(crate) struct NameGuard {
    root: Weak<RootShared>,
    name: String,
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        if let Some(root) = self.root.upgrade() {
            root.logs.lock_unpoisoned().remove(&self.name);
        }
    }
}

/// The start of the name of a log that is being removed.
const REMOVED: &str = ".removed-";

impl LogRoot {
    /// Opens a folder, or creates it and its parents.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process has it open, [`Error::File`] also if another user owns it or can write to it.
    pub fn new(folder: impl Into<PathBuf>, settings: LogSettings) -> Result<Self> {
        let folder = folder.into();
        let failed = |error| Error::file(&folder, error);
        for changed in create_folders(&folder).map_err(failed)? {
            sync_if_allowed(&changed).map_err(failed)?;
        }
        check_owner(&folder).map_err(failed)?;
        let path = folder.join("lock");
        let lock = open_ordinary(&path, private().create(true).truncate(false).write(true));
        let lock = lock.and_then(|file| locked(file, &path)).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => failed(error),
            _ => Error::file(&path, error),
        })?;
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(REMOVED)
                && let Err(error) = remove_rest(&entry)
            {
                tracing::warn!(path = %entry.path().display(), %error, "the rest of a removed log stays");
            }
        }
        let shared = RootShared {
            folder,
            settings,
            _lock: lock,
            started: Instant::now(),
            logs: Mutex::default(),
            files: AtomicUsize::new(0),
            tails: AtomicUsize::new(0),
            unchecked: AtomicU64::new(CHECK_BYTES),
        };
        Ok(LogRoot { shared: Arc::new(shared) })
    }

    /// Opens a log and begins a life of it. A new log gets the header; an existing one keeps its own.
    ///
    /// The name is one folder: 1 to 128 of `a` to `z`, `A` to `Z`, `0` to `9`, `-` and `_`.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if the log is open already, [`Error::BadName`], [`Error::LaterVersion`], [`Error::DiskFull`] and
    /// [`Error::File`].
    pub fn open(&self, name: &str, header: &Header) -> Result<FileLog> {
        let folder = self.log_folder(name)?;
        let guard = self.reserve(name)?;
        let create = || {
            create_private(&folder)?;
            // A folder without a segment may have been created without a sync before a crash.
            if is_empty(&folder)? { sync_folder(&self.shared.folder) } else { Ok(()) }
        };
        create().map_err(|error| Error::file(&folder, error))?;
        FileLog::open(self.shared.clone(), guard, folder, header)
    }

    /// Reads a log as it is now, without opening it. It can be open at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`], [`Error::File`] also for a log that does not exist.
    pub fn snapshot(&self, name: &str) -> Result<LogSnapshot> {
        LogSnapshot::of(self.log_folder(name)?)
    }

    /// Returns the names of the logs, in no order.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn names(&self) -> Result<Vec<String>> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.shared.folder)? {
                let entry = entry?;
                let name = entry.file_name();
                if let Some(name) = name.to_str().filter(|name| is_name(name))
                    && entry.file_type()?.is_dir()
                {
                    names.push(name.to_owned());
                }
            }
            Ok(names)
        };
        list().map_err(|error| Error::file(&self.shared.folder, error))
    }

    /// Removes a log that is not open, with its files. Removing one that does not exist does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if the log is open, [`Error::BadName`], [`Error::File`]. If the error names a folder `.removed-…`, the
    /// log is gone, and the next start removes that folder.
    pub fn remove(&self, name: &str) -> Result<()> {
        let folder = self.log_folder(name)?;
        let _guard = self.reserve(name)?;
        // The rest of an earlier attempt that failed stays until the next start.
        let mut names =
            (0..=u32::MAX).map(|number| self.shared.folder.join(format!("{REMOVED}{number}-{name}")));
        let removed = names.find(|path| !path.exists()).unwrap_or_default();
        let remove = || {
            match fs::rename(&folder, &removed) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                renamed => renamed?,
            }
            // From here on a crash does not bring it back.
            sync_folder(&self.shared.folder)
        };
        remove().map_err(|error| Error::file(&folder, error))?;
        match fs::remove_dir_all(&removed) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(removed, error)),
            _ => Ok(()),
        }
    }

    /// Closes the files of logs that have not been used for some time, and frees their memory. Returns their number.
    /// They stay open as logs.
    pub fn close_idle(&self, unused_for: Duration) -> usize {
        let since = self.shared.now().checked_sub(u64::try_from(unused_for.as_millis()).unwrap_or(u64::MAX));
        let Some(since) = since else { return 0 };
        let idle: Vec<_> =
            self.shared.open_logs().into_iter().filter(|log| log.last_use() <= since).collect();
        for log in &idle {
            log.close_file();
            log.free_memory();
        }
        idle.len()
    }

    /// Returns the number of files that are open for writing.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.shared.files.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all logs on the disk. It reads the sizes of all files.
    ///
    /// # Errors
    ///
    /// [`Error::File`].
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(self.names()?.iter().map(|name| self.log_bytes(name)).sum())
    }

    /// Returns the bytes of a log on the disk. They are zero for one that is absent or is being removed.
    #[must_use]
    pub fn log_bytes(&self, name: &str) -> u64 {
        let Some(files) = self.log_folder(name).ok().and_then(|folder| fs::read_dir(folder).ok()) else {
            return 0;
        };
        files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum()
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Returns the folder of a log, which may not exist.
    pub(crate) fn log_folder(&self, name: &str) -> Result<PathBuf> {
        if !is_name(name) {
            return Err(Error::BadName { name: name.into() });
        }
        Ok(self.shared.folder.join(name))
    }

    fn reserve(&self, name: &str) -> Result<NameGuard> {
        let mut logs = self.shared.logs.lock_unpoisoned();
        if logs.contains_key(name) {
            return Err(Error::InUse { path: self.shared.folder.join(name) });
        }
        logs.insert(name.into(), Weak::new());
        Ok(NameGuard { root: Arc::downgrade(&self.shared), name: name.into() })
    }
}

impl NameGuard {
    fn name(&self) -> &str {
        &self.name
    }
}

impl RootShared {
    /// Returns the milliseconds since the folder was opened.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds a log that has been opened under its name.
    pub(crate) fn register(&self, name: &NameGuard, log: &Arc<FileLogInner>) {
        self.logs.lock_unpoisoned().insert(name.name().into(), Arc::downgrade(log));
    }

    fn open_logs(&self) -> Vec<Arc<FileLogInner>> {
        self.logs.lock_unpoisoned().values().filter_map(Weak::upgrade).collect()
    }

    /// Counts a file that was opened. If there are too many, closes an eighth of them, those that were not used
    /// for the longest time.
    pub(crate) fn file_opened(&self, log: &FileLogInner) {
        let most = self.settings.open_files.max(1);
        if self.files.fetch_add(1, Ordering::Relaxed) < most {
            return;
        }
        let mut open: Vec<_> = self
            .open_logs()
            .into_iter()
            .filter(|other| !std::ptr::eq(&**other, log))
            .filter_map(|other| Some((other.open_since()?, other)))
            .collect();
        open.sort_by_key(|(used, _)| *used);
        let mut count = most.div_ceil(8);
        for (_, other) in open {
            if count == 0 {
                break;
            }
            count -= usize::from(other.close_file());
        }
    }

    pub(crate) fn file_closed(&self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts the memory of newest records. Returns true if it is more than allowed.
    pub(crate) fn tails_changed(&self, before: usize, after: usize) -> bool {
        let others = self.tails.fetch_add(after, Ordering::Relaxed);
        self.tails.fetch_sub(before, Ordering::Relaxed);
        (others + after).saturating_sub(before) > self.settings.all_tails_bytes
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=128).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// Creates a folder for its owner only, and its parents. Returns the folders to sync, so that their new entries survive a
/// power cut. The parent of the folder is one of them each time, because an earlier start may have crashed before its sync.
fn create_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    for folder in path.ancestors() {
        let parent = folder.parent().map(|parent| match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        });
        let Some(parent) = parent else { break };
        changed.push(parent.to_owned());
        if parent.exists() {
            break;
        }
    }
    private_folder().recursive(true).create(path)?;
    Ok(changed)
}

/// Creates a folder for its owner only, unless it exists.
fn create_private(path: &Path) -> io::Result<()> {
    match private_folder().create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Removes what is left of a log, or the file or link in its place.
fn remove_rest(entry: &DirEntry) -> io::Result<()> {
    if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }
}

/// Syncs a folder, unless this account may not read it. Such a folder is another account's, and is not new.
fn sync_if_allowed(folder: &Path) -> io::Result<()> {
    match sync_folder(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parents_of_new_folders_are_synced() {
        let base = tempfile::tempdir().expect("a folder");
        let base = base.path();
        let folder = base.join("a/b/sessions");
        let changed = create_folders(&folder).expect("created");
        assert_eq!(changed, [base.join("a/b"), base.join("a"), base.to_owned()]);
        assert!(folder.is_dir());
        // The next start does not know if the first one came so far.
        assert_eq!(create_folders(&folder).expect("there"), [base.join("a/b")]);
        let relative = create_folders(Path::new(".")).expect("there");
        assert!(relative.len() <= 1, "{relative:?}");
    }

    #[test]
    fn a_log_is_removed_beside_the_rest_of_an_earlier_one() {
        let base = tempfile::tempdir().expect("a folder");
        let root = LogRoot::new(base.path().join("sessions"), LogSettings::default()).expect("a root");
        let rest = root.folder().join(format!("{REMOVED}0-s"));
        fs::create_dir(&rest).expect("a folder");
        fs::write(rest.join("file"), "").expect("a file");
        drop(root.open("s", &Header::new("test")).expect("a log"));
        root.remove("s").expect("removed");
        assert!(rest.exists() && root.names().expect("names").is_empty());
        let folder = root.folder().to_owned();
        drop(root);
        LogRoot::new(&folder, LogSettings::default()).expect("a root");
        assert!(!rest.exists());
    }

    #[test]
    fn a_log_without_a_segment_may_lack_its_entry() {
        let base = tempfile::tempdir().expect("a folder");
        let root = LogRoot::new(base.path().join("sessions"), LogSettings::default()).expect("a root");
        let folder = root.log_folder("s").expect("a name");
        create_private(&folder).expect("created");
        assert!(is_empty(&folder).expect("a folder"));
        drop(root.open("s", &Header::new("test")).expect("a log"));
        assert!(!is_empty(&folder).expect("a folder"));
    }
}
