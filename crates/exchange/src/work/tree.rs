//! Changes to a file tree that can be rolled back.
//!
//! Every operation starts at an open folder and takes one name, which is not followed if it is a
//! link. Renaming folders meanwhile has no effect, because an open folder stays the same.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cap_std::fs::{Dir, Metadata, OpenOptions};
use duologue_schema::work::{Artifact, ArtifactOperation};

use super::artifacts::ArtifactError as Fault;
use super::folders::{PROJECT, ProjectFolder, ProjectFolders};
use super::system::{self, FileAccess};

/// Checks that the operation is possible in this folder now. Returns the metadata of the old file.
fn check_name(
    dir: &Dir,
    name: &str,
    operation: &ArtifactOperation,
    read_only_files: bool,
) -> Result<Option<Metadata>, Fault> {
    match (dir.symlink_metadata(name), operation) {
        (Ok(metadata), _) if metadata.is_symlink() => Err(Fault::Link { name: name.to_owned() }),
        (Ok(_), ArtifactOperation::Create) => Err(Fault::Exists),
        (Ok(metadata), _) if !metadata.is_file() => Err(Fault::NotAFile),
        (Ok(metadata), _) if metadata.permissions().readonly() && !read_only_files => Err(Fault::ReadOnly),
        (Ok(metadata), _) => match system::special_bits(&metadata) {
            Some(mode) => Err(Fault::SpecialBits { mode }),
            None => Ok(Some(metadata)),
        },
        (Err(error), operation) if error.kind() == ErrorKind::NotFound => match operation {
            ArtifactOperation::Create => Ok(None),
            _ => Err(Fault::Missing),
        },
        (Err(error), _) => Err(error.into()),
    }
}

/// The changes made so far, and the information to roll them back. Dropping it rolls them back.
pub(super) struct Changes {
    folders: ProjectFolders,
    /// True if files that nobody may write are updated.
    read_only_files: bool,
    /// The created folders.
    made: Vec<(ProjectFolder, String)>,
    /// Temporary files, removed at the end.
    scratch: Vec<(ProjectFolder, String)>,
    /// The artifacts that are in place.
    placed: Vec<Placed>,
}

struct Placed {
    folder: ProjectFolder,
    name: String,
    /// For error messages.
    path: String,
    /// The temporary name of the old file.
    old: Option<String>,
}

impl Changes {
    pub(super) fn new(folders: ProjectFolders, read_only_files: bool) -> Self {
        let (made, scratch, placed) = (Vec::new(), Vec::new(), Vec::new());
        Changes { folders, read_only_files, made, scratch, placed }
    }

    /// Keeps all changes. Returns the temporary files that could not be removed.
    pub(super) fn keep(mut self) -> Vec<String> {
        self.made.clear();
        self.placed.clear();
        self.take_back()
    }

    /// Rolls back all changes. Returns those that failed.
    pub(super) fn undo(mut self) -> Vec<String> {
        self.take_back()
    }

    fn take_back(&mut self) -> Vec<String> {
        let (folders, mut left) = (&mut self.folders, Vec::new());
        for Placed { folder, name, path, old } in self.placed.drain(..).rev() {
            let done = at(folders, folder, |dir| match &old {
                Some(old) => dir.rename(old, dir, &name),
                None => dir.remove_file(&name),
            });
            if let Err(error) = done {
                // This file is the only copy of the old content.
                self.scratch.retain(|(_, scratch)| Some(scratch) != old.as_ref());
                let kept = old.map(|old| format!(", its old content is in {old}"));
                left.push(format!("{path} ({error}{})", kept.unwrap_or_default()));
            }
        }
        for (folder, name) in self.scratch.drain(..).rev() {
            match at(folders, folder, |dir| dir.remove_file(&name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => left.push(format!("{name} ({error})")),
                _ => {}
            }
        }
        for (folder, name) in self.made.drain(..).rev() {
            // Files that another process put into the folder stay.
            if let Err(error) = at(folders, folder, |dir| dir.remove_dir(&name)) {
                left.push(format!("{name} ({error})"));
            }
        }
        left
    }

    /// Checks that the operation is possible at this path now.
    pub(super) fn check(&mut self, place: &[&str], operation: &ArtifactOperation) -> Result<(), Fault> {
        let Some((name, way)) = place.split_last() else { return Err(Fault::NotAFile) };
        match self.folders.find(way)? {
            Some(folder) => {
                let dir = self.folders.open(folder)?;
                check_name(&dir, name, operation, self.read_only_files).map(drop)
            }
            None if *operation == ArtifactOperation::Update => Err(Fault::Missing),
            None => Ok(()),
        }
    }

    /// Returns the folder at the end of a path, and creates missing ones.
    fn make(&mut self, way: &[&str]) -> Result<ProjectFolder, Fault> {
        let mut at = PROJECT;
        for name in way {
            at = match self.folders.enter(at, name)? {
                Some(next) => next,
                None => {
                    match self.folders.open(at)?.create_dir(name) {
                        Ok(()) => self.made.push((at, (*name).to_owned())),
                        // Another process created it first.
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                        Err(error) => return Err(error.into()),
                    }
                    self.folders.enter(at, name)?.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?
                }
            };
        }
        Ok(at)
    }

    /// Returns the access of a new file in this folder. It depends on the umask and on the folder's
    /// own rules, so it is read from an empty file that is created there and removed again.
    fn usual_access(&mut self, folder: ProjectFolder) -> Result<FileAccess, Fault> {
        let probe = self.scratch(folder)?;
        let dir = self.folders.open(folder)?;
        let metadata = dir.open_with(&probe, OpenOptions::new().write(true).create_new(true))?.metadata()?;
        // If it cannot be removed now, it is removed with the other temporary files.
        let _ = dir.remove_file(&probe);
        Ok(FileAccess::of(&metadata))
    }

    /// Returns the name of a temporary file, which is removed at the end.
    fn scratch(&mut self, folder: ProjectFolder) -> Result<String, Fault> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let dir = self.folders.open(folder)?;
        loop {
            let number = NUMBER.fetch_add(1, Relaxed);
            let name = format!(".duologue-{}-{number}.tmp", std::process::id());
            match dir.symlink_metadata(&name) {
                // Left behind by a process with the same id.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.scratch.push((folder, name.clone()));
                    return Ok(name);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Runs a function in a folder.
fn at<T>(
    folders: &mut ProjectFolders,
    folder: ProjectFolder,
    act: impl FnOnce(&Dir) -> io::Result<T>,
) -> io::Result<T> {
    match folders.open(folder) {
        Ok(dir) => act(&dir),
        Err(Fault::Io(error)) => Err(error),
        Err(fault) => Err(io::Error::other(fault)),
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// An artifact in a temporary file.
pub(super) struct Staged {
    folder: ProjectFolder,
    beside: String,
    name: String,
    path: String,
    operation: ArtifactOperation,
    /// The access of the old file, if there is one.
    old: Option<FileAccess>,
}

impl Staged {
    pub(super) fn new(place: &[&str], artifact: &Artifact, changes: &mut Changes) -> Result<Self, Fault> {
        let Some((name, way)) = place.split_last() else { return Err(Fault::NotAFile) };
        let folder = match artifact.operation {
            ArtifactOperation::Create => changes.make(way)?,
            _ => changes.folders.find(way)?.ok_or(Fault::Missing)?,
        };
        let dir = changes.folders.open(folder)?;
        let old = check_name(&dir, name, &artifact.operation, changes.read_only_files)?;
        let access = match &old {
            Some(old) => FileAccess::of(old),
            None => changes.usual_access(folder)?,
        };
        let beside = changes.scratch(folder)?;
        // Other users may not open the file before its text is complete: an open file can be read
        // later.
        let mut file =
            dir.open_with(&beside, &system::private(OpenOptions::new().write(true).create_new(true)))?;
        #[cfg(test)]
        tests::look_at(&file);
        if old.is_some() {
            access.check_owner(&file.metadata()?)?;
        }
        file.write_all(artifact.content.as_bytes())?;
        #[cfg(test)]
        tests::look_at(&file);
        access.give_to(&file)?;
        // A name can reach the disk before the text does.
        file.sync_data()?;
        let (name, path, operation) = ((*name).to_owned(), place.join("/"), artifact.operation.clone());
        Ok(Staged { folder, beside, name, path, operation, old: old.is_some().then_some(access) })
    }

    /// Puts the artifact in place.
    pub(super) fn place(&self, changes: &mut Changes) -> Result<(), Fault> {
        let (folder, name, path) = (self.folder, self.name.clone(), self.path.clone());
        let dir = changes.folders.open(folder)?;
        if self.operation == ArtifactOperation::Create {
            self.create(&dir)?;
            changes.placed.push(Placed { folder, name, path, old: None });
            return Ok(());
        }
        let old = changes.scratch(folder)?;
        self.set_aside(&dir, &old)?;
        changes.placed.push(Placed { folder, name, path, old: Some(old.clone()) });
        // The file can no longer be replaced, but it may not be the one that was checked.
        let found =
            check_name(&dir, &old, &ArtifactOperation::Update, true).map_err(|fault| match fault {
                Fault::Link { .. } => Fault::Link { name: self.name.clone() },
                other => other,
            })?;
        if found.as_ref().map(FileAccess::of) != self.old {
            return Err(Fault::Exchanged { name: self.name.clone() });
        }
        Ok(dir.rename(&self.beside, &dir, &self.name)?)
    }

    /// Creates the file by a hard link, which fails if the name is taken. A rename would replace
    /// it.
    fn create(&self, dir: &Dir) -> Result<(), Fault> {
        match dir.hard_link(&self.beside, dir, &self.name) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Fault::Exists),
            // The file system does not support hard links.
            Err(_) => {
                check_name(dir, &self.name, &ArtifactOperation::Create, true)?;
                Ok(dir.rename(&self.beside, dir, &self.name)?)
            }
        }
    }

    /// Gives the old file the name `old`, as a hard link if possible: then its place is never
    /// empty.
    fn set_aside(&self, dir: &Dir, old: &str) -> Result<(), Fault> {
        match dir.hard_link(&self.name, dir, old).or_else(|error| match error.kind() {
            ErrorKind::NotFound => Err(error),
            _ => dir.rename(&self.name, dir, old),
        }) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Fault::Missing),
            done => Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::path::Path;

    use cap_std::ambient_authority;
    use cap_std::fs::File;

    use super::*;

    thread_local! {
        /// The temporary files of this thread: after creation, and with their complete text.
        static LOOKED_AT: RefCell<Vec<Metadata>> = const { RefCell::new(Vec::new()) };
    }

    /// Called for each temporary file before it has its final mode.
    pub(super) fn look_at(file: &File) {
        LOOKED_AT.with_borrow_mut(|all| all.push(file.metadata().unwrap()));
    }

    fn changes(project: &Path) -> Changes {
        let project = Dir::open_ambient_dir(project, ambient_authority()).unwrap();
        Changes::new(ProjectFolders::new(project).unwrap(), false)
    }

    fn staged(artifacts: &[Artifact], changes: &mut Changes) -> Vec<Staged> {
        let stage = |artifact: &Artifact| {
            let place: Vec<&str> = artifact.path.split('/').collect();
            Staged::new(&place, artifact, changes).unwrap()
        };
        artifacts.iter().map(stage).collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Stages three artifacts in a project with the file `old`, and calls `meddle` before the last
    /// is put in place.
    fn fails_last(meddle: impl Fn(&Path)) -> (tempfile::TempDir, Fault, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "old").unwrap();
        fs::write(folder.path().join("last"), "last").unwrap();
        let artifacts =
            [Artifact::create("a/b", "new"), Artifact::update("old", "new"), Artifact::update("last", "new")];
        let mut changes = changes(folder.path());
        let files = staged(&artifacts, &mut changes);
        files[0].place(&mut changes).unwrap();
        files[1].place(&mut changes).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a/b")).unwrap(), "new");
        assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "new");
        meddle(folder.path());
        let fault = files[2].place(&mut changes).unwrap_err();
        let left = changes.undo();
        (folder, fault, left)
    }

    #[test]
    fn placed_files_are_rolled_back() {
        let (folder, fault, left) = fails_last(|folder| fs::remove_file(folder.join("last")).unwrap());
        assert!(matches!(fault, Fault::Missing), "{fault}");
        assert_eq!((left, names(folder.path())), (vec![], vec!["old".to_owned()]));
        assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "old");
    }

    #[cfg(unix)]
    #[test]
    fn new_links_are_not_followed() {
        let (folder, fault, left) = fails_last(|folder| {
            fs::remove_file(folder.join("last")).unwrap();
            std::os::unix::fs::symlink("old", folder.join("last")).unwrap();
        });
        assert!(matches!(&fault, Fault::Link { name } if name == "last"), "{fault}");
        assert_eq!((left, names(folder.path())), (vec![], vec!["last".to_owned(), "old".to_owned()]));
        assert_eq!(fs::read_link(folder.path().join("last")).unwrap(), Path::new("old"));
        assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "old");
    }

    #[test]
    fn failed_rollbacks_are_reported_and_keep_the_old_content() {
        let (folder, _, left) = fails_last(|folder| {
            fs::remove_file(folder.join("last")).unwrap();
            // A file cannot replace a folder.
            fs::remove_file(folder.join("old")).unwrap();
            fs::create_dir(folder.join("old")).unwrap();
            // A folder with files stays.
            fs::write(folder.join("a/theirs"), "").unwrap();
        });
        assert_eq!(left.len(), 2, "{left:?}");
        let (_, kept) = left[0].trim_end_matches(')').split_once("its old content is in ").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(kept)).unwrap(), "old");
        assert!(left[1].starts_with("a ("), "{left:?}");
        assert_eq!(names(&folder.path().join("a")), ["theirs"]);
    }

    #[test]
    fn existing_files_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = changes(folder.path());
        let files = staged(&[Artifact::create("a", "ours")], &mut changes);
        fs::write(folder.path().join("a"), "theirs").unwrap();
        assert!(matches!(files[0].place(&mut changes), Err(Fault::Exists)));
        assert_eq!(changes.undo(), Vec::<String>::new());
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "theirs");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[cfg(unix)]
    #[test]
    fn incomplete_files_are_private() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, mode) in [("secret", 0o600), ("open", 0o666), ("tool", 0o755)] {
            fs::write(path(name), "old").unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(path("usual"), "").unwrap();
        let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o7777;
        let artifacts = [
            Artifact::update("secret", "new"),
            Artifact::update("open", "new"),
            Artifact::update("tool", "new"),
            Artifact::create("made", "new"),
        ];
        let mut changes = changes(folder.path());
        let files = staged(&artifacts, &mut changes);
        let seen: Vec<_> = LOOKED_AT.with_borrow(|all| {
            let mode = |file: &Metadata| cap_std::fs::MetadataExt::mode(file) & 0o7777;
            all.iter().map(|file| (file.len(), mode(file))).collect()
        });
        assert_eq!(seen, [(0, 0o600), (3, 0o600)].repeat(4));
        // The file that showed the usual access has been removed.
        assert_eq!(names(folder.path()).len(), 4 + 4);
        files.iter().for_each(|file| file.place(&mut changes).unwrap());
        assert_eq!(changes.keep(), Vec::<String>::new());
        assert_eq!((mode("secret"), mode("open"), mode("tool")), (0o600, 0o666, 0o755));
        assert_eq!(mode("made"), mode("usual"));
        assert_eq!(names(folder.path()), ["made", "open", "secret", "tool", "usual"]);
    }

    #[cfg(unix)]
    #[test]
    fn files_with_changed_permissions_are_rejected() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let mut changes = changes(folder.path());
        let files = staged(&[Artifact::update("a", "new")], &mut changes);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let fault = files[0].place(&mut changes).unwrap_err();
        assert!(matches!(&fault, Fault::Exchanged { name } if name == "a"), "{fault}");
        assert_eq!(changes.undo(), Vec::<String>::new());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("old", 1));
    }

    #[test]
    fn temporary_files_that_stay_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = changes(folder.path());
        let files = staged(&[Artifact::create("a", "new")], &mut changes);
        files[0].place(&mut changes).unwrap();
        // A folder cannot be removed as a file.
        let beside = files[0].beside.clone();
        fs::remove_file(folder.path().join(&beside)).unwrap();
        fs::create_dir(folder.path().join(&beside)).unwrap();
        let left = changes.keep();
        assert_eq!(left.len(), 1);
        assert!(left[0].starts_with(&beside), "{left:?}");
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "new");
    }

    #[test]
    fn dropped_changes_are_rolled_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = changes(folder.path());
        let files = staged(&[Artifact::create("a/b/c", "")], &mut changes);
        files[0].place(&mut changes).unwrap();
        drop(changes);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn kept_changes_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = changes(folder.path());
        let files = staged(&[Artifact::create("a/b/c", "new")], &mut changes);
        files[0].place(&mut changes).unwrap();
        assert_eq!(changes.keep(), Vec::<String>::new());
        assert_eq!(
            (names(folder.path()), names(&folder.path().join("a/b"))),
            (vec!["a".into()], vec!["c".into()])
        );
    }

    #[test]
    fn more_folders_than_the_limit_can_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: usize| format!("{number}/file");
        for number in (0..200).step_by(2) {
            fs::create_dir(folder.path().join(number.to_string())).unwrap();
            fs::write(folder.path().join(path(number)), "old").unwrap();
        }
        let before = names(folder.path());
        let artifacts: Vec<_> = (0..200)
            .map(|number| match number % 2 {
                0 => Artifact::update(path(number), "new"),
                _ => Artifact::create(path(number), "new"),
            })
            .collect();
        let mut changes = changes(folder.path());
        for file in staged(&artifacts, &mut changes) {
            file.place(&mut changes).unwrap();
        }
        let read = |number| fs::read_to_string(folder.path().join(path(number)));
        assert!((0..200).all(|number| read(number).unwrap() == "new"));
        assert_eq!(changes.undo(), Vec::<String>::new());
        assert_eq!(names(folder.path()), before);
        assert!((0..200).step_by(2).all(|number| read(number).unwrap() == "old"));
    }
}
