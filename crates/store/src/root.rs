//! A folder of logs, which one process has at a time.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use duologue_rpc::Lock as _;
use duologue_transcript::Header;
use duologue_transcript::private_file::{locked, no_links, private};

use crate::error::{Error, Result};
use crate::file::{FileLog, FileLogInner, sync_folder};
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
    /// Opens a folder, or creates it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process has it open, [`Error::File`].
    pub fn new(folder: impl Into<PathBuf>, settings: LogSettings) -> Result<Self> {
        let folder = folder.into();
        let failed = |error| Error::file(&folder, error);
        private_folder(&folder, true).map_err(failed)?;
        let path = folder.join("lock");
        let lock = no_links(private().create(true).truncate(false).write(true)).open(&path);
        let lock = lock.and_then(|file| locked(file, &path)).map_err(failed)?;
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(REMOVED) {
                fs::remove_dir_all(entry.path()).map_err(failed)?;
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
        };
        Ok(LogRoot { shared: Arc::new(shared) })
    }

    /// Opens a log and begins a life of it. A new log gets the header; an existing one keeps its own.
    ///
    /// The name is one folder: 1 to 128 of `a` to `z`, `A` to `Z`, `0` to `9`, `-` and `_`.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if the log is open already, [`Error::BadName`], [`Error::NoHeader`], [`Error::DiskFull`] and
    /// [`Error::File`].
    pub fn open(&self, name: &str, header: &Header) -> Result<FileLog> {
        let folder = self.log_folder(name)?;
        let guard = self.reserve(name)?;
        if private_folder(&folder, false).map_err(|error| Error::file(&folder, error))? {
            sync_folder(&self.shared.folder).map_err(|error| Error::file(&folder, error))?;
        }
        FileLog::open(self.shared.clone(), guard, folder, header)
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
    /// [`Error::InUse`] if the log is open, [`Error::BadName`], [`Error::File`].
    pub fn remove(&self, name: &str) -> Result<()> {
        let folder = self.log_folder(name)?;
        let _guard = self.reserve(name)?;
        let removed = self.shared.folder.join(format!("{REMOVED}{name}"));
        let remove = || {
            match fs::rename(&folder, &removed) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                renamed => renamed?,
            }
            // From here on a crash does not bring it back.
            sync_folder(&self.shared.folder)?;
            fs::remove_dir_all(&removed)
        };
        remove().map_err(|error| Error::file(&folder, error))
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

/// Creates a folder for its owner only. Returns false if it exists.
fn private_folder(path: &Path, with_parents: bool) -> io::Result<bool> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if with_parents && let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match builder.create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        created => created.map(|()| true),
    }
}
