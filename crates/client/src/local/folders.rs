//! The folders of sessions, and access to files in them.
//!
//! Every access begins at the open handle of a root and stays beneath it. The system enforces this (`openat2`
//! on Linux). A check of names is not enough, because a folder can be replaced by a link between the check and
//! the access. Names only choose the root.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use duologue_rpc::Lock;
use duologue_schema::{Error as WireError, SessionId};

use crate::context::{ConnectionId, HostContext};

/// The roots of a host and the folders of its sessions.
#[derive(Debug, Default)]
pub(super) struct AllowedFolders {
    roots: Vec<Root>,
    sessions: Mutex<BTreeMap<SessionKey, Vec<PathBuf>>>,
}

/// A session and its connection. Sessions of two connections can have the same id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) id: SessionId,
    pub(super) connection: ConnectionId,
}

impl SessionKey {
    /// Returns the key of the session that a call names.
    pub(super) fn of(context: &HostContext, id: &SessionId) -> Self {
        SessionKey { id: id.clone(), connection: context.connection_id() }
    }
}

/// A root folder. Sessions cannot leave the roots.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// The path without links and the handle. They are opened once, so that replacing the folder later has
    /// no effect.
    opened: OnceLock<(PathBuf, Dir)>,
}

/// A folder of a session with its absolute paths.
struct Area {
    names: Vec<PathBuf>,
    dir: Dir,
}

/// An error of an access to a file.
pub(super) enum FileError {
    /// An error of the system.
    Io(io::Error),
    /// An error for the agent.
    Wire(WireError),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        FileError::Io(error)
    }
}

impl FileError {
    /// Creates an error whose message is the path and `problem`.
    pub(super) fn about(path: &Path, problem: impl std::fmt::Display) -> Self {
        FileError::Wire(WireError::invalid_params(format!("{} {problem}", path.display())))
    }

    /// Converts the error to the response to a request for `path`.
    pub(super) fn into_wire(self, path: &Path) -> WireError {
        let path = path.display();
        match self {
            FileError::Wire(error) => error,
            FileError::Io(error) => match error.kind() {
                io::ErrorKind::NotFound => WireError::resource_not_found(format!("{path} does not exist")),
                io::ErrorKind::NotADirectory => {
                    WireError::resource_not_found(format!("a part of {path} is not a folder"))
                }
                _ => WireError::internal(format!("{path}: {error}")),
            },
        }
    }

    /// Returns true if the path left the folder in which it began. The system has no code for this, so
    /// cap-std creates the error itself.
    fn is_escape(&self) -> bool {
        matches!(self, FileError::Io(error)
            if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none())
    }
}

impl AllowedFolders {
    pub(super) fn add(&mut self, path: PathBuf) {
        let root = Root { path, opened: OnceLock::new() };
        // A missing root is opened by a later request.
        let _ = root.open();
        self.roots.push(root);
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Vec<PathBuf>>> {
        self.sessions.lock_unpoisoned()
    }

    pub(super) fn session_started(&self, session: SessionKey, folders: &[PathBuf]) {
        self.sessions().insert(session, folders.to_owned());
    }

    pub(super) fn session_ended(&self, session: &SessionKey) {
        self.sessions().remove(session);
    }

    /// Forgets the sessions of a connection.
    pub(super) fn forget(&self, connection: ConnectionId) {
        self.sessions().retain(|session, _| session.connection != connection);
    }

    /// Returns the folders of a session that has started.
    pub(super) fn of(&self, session: &SessionKey) -> Option<Vec<PathBuf>> {
        self.sessions().get(session).cloned()
    }

    /// Returns the folders of a session within the roots. A session that has not started for this host has none,
    /// because its folders are unknown.
    fn areas(&self, of: &SessionKey) -> Result<Vec<Area>, WireError> {
        let folders = self.of(of);
        let folders = folders.ok_or_else(|| {
            WireError::invalid_params("this session has not started, or has ended").data(
                "session/new has no response yet, the session was closed, or Host::session_started was not forwarded",
            )
        })?;
        let mut areas = Vec::new();
        for root in &self.roots {
            // A missing root does not affect the others.
            let Ok((real, dir)) = root.open() else { continue };
            areas.extend(folders.iter().filter_map(|folder| root.meet(real, dir, folder)));
        }
        if areas.is_empty() {
            return Err(WireError::invalid_params("no folder of this session is open to agents"));
        }
        Ok(areas)
    }

    /// Returns the default folder of a session.
    pub(super) fn home(&self, session: &SessionKey) -> Result<PathBuf, WireError> {
        let area = self.areas(session)?.into_iter().next();
        Ok(area.and_then(|area| area.names.into_iter().next()).unwrap_or_default())
    }

    /// Calls `open` with a folder of the session and the relative path in it. cap-std ensures that the access
    /// stays in the folder.
    pub(super) fn open<T>(
        &self,
        session: &SessionKey,
        path: &Path,
        open: impl Fn(&Dir, &Path) -> Result<T, FileError>,
    ) -> Result<T, WireError> {
        let areas = self.areas(session)?;
        let attempt = |path: &Path| {
            let mut attempt = Attempt::Elsewhere;
            for area in &areas {
                let Some(way) = area.way_to(path) else { continue };
                match open(&area.dir, &way) {
                    Err(fault) if fault.is_escape() => attempt = Attempt::Escaped,
                    result => return Attempt::Done(result),
                }
            }
            attempt
        };
        let mut done = attempt(path);
        // An absolute link, or a link from one folder of the session to another, leaves its folder and may end
        // in a folder of the session. Its target is looked up and tried. Other paths are not looked up, because
        // the error must not reveal which files exist outside.
        if matches!(done, Attempt::Escaped)
            && let Some(real) = real_path(path)
        {
            done = attempt(&real);
        }
        match done {
            Attempt::Done(result) => result.map_err(|fault| fault.into_wire(path)),
            Attempt::Escaped | Attempt::Elsewhere => {
                let folders: Vec<_> = areas.iter().filter_map(|area| area.names.first()?.to_str()).collect();
                Err(WireError::invalid_params(format!(
                    "{} is outside of the session's folders: {}",
                    path.display(),
                    folders.join(", ")
                )))
            }
        }
    }
}

enum Attempt<T> {
    Done(Result<T, FileError>),
    /// The path left every folder in which it began.
    Escaped,
    /// The name of the path is in no folder.
    Elsewhere,
}

impl Root {
    fn open(&self) -> io::Result<&(PathBuf, Dir)> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let real = self.path.canonicalize()?;
        let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
        Ok(self.opened.get_or_init(|| (real, dir)))
    }

    fn whole(&self, real: &Path, dir: &Dir) -> Option<Area> {
        Some(Area { names: vec![self.path.clone(), real.to_owned()], dir: dir.try_clone().ok()? })
    }

    /// Returns the common part of this root and `folder`.
    fn meet(&self, real: &Path, dir: &Dir, folder: &Path) -> Option<Area> {
        let known = [Some(folder.to_owned()), folder.canonicalize().ok()];
        for folder in known.iter().flatten() {
            for root in [&self.path, real] {
                if let Ok(way) = folder.strip_prefix(root)
                    && let Ok(dir) = dir.open_dir(or_here(way))
                {
                    let mut names: Vec<_> = known.iter().flatten().cloned().collect();
                    names.extend([self.path.join(way), real.join(way)]);
                    return Some(Area { names, dir });
                }
                if root.starts_with(folder) {
                    return self.whole(real, dir);
                }
            }
        }
        None
    }
}

impl Area {
    /// Returns the path relative to this folder, if it begins with one of the folder's paths.
    fn way_to(&self, path: &Path) -> Option<PathBuf> {
        let way = self.names.iter().find_map(|name| path.strip_prefix(name).ok())?;
        Some(or_here(way).to_owned())
    }
}

fn or_here(way: &Path) -> &Path {
    if way.as_os_str().is_empty() { Path::new(".") } else { way }
}

/// Resolves the links of a path, or those of its folder if the file does not exist.
fn real_path(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
}
