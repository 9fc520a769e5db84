//! Changes to a tree of files that can be taken back.
//!
//! Every step begins at an open folder and takes one name, which is not followed if it is a link. Whoever
//! exchanges names meanwhile gains nothing by it: what was opened stays what it was.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, OpenOptions, Permissions};
use duologue_schema::work::{Artifact, Operation};

use super::artifacts::ArtifactFault as Fault;

/// The folder at the end of the way, or `None` if it ends before.
pub(super) fn open(from: &Dir, way: &[&str]) -> Result<Option<Dir>, Fault> {
    let mut dir = from.try_clone()?;
    for name in way {
        match enter(&dir, name)? {
            Some(next) => dir = next,
            None => return Ok(None),
        }
    }
    Ok(Some(dir))
}

/// Opens the folder `name`, which must not be a link. `None` if there is nothing.
fn enter(dir: &Dir, name: &str) -> Result<Option<Dir>, Fault> {
    let error = match dir.open_dir_nofollow(name) {
        Ok(next) => return Ok(Some(next)),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => error,
    };
    // The system says the same of a link and of a file.
    match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_symlink() => Err(Fault::Link { name: name.to_owned() }),
        Ok(metadata) if !metadata.is_dir() => Err(Fault::NotAFolder { name: name.to_owned() }),
        _ => Err(error.into()),
    }
}

/// Whether the operation can be done at this place, as things are. Returns the permissions of the old file.
pub(super) fn check(
    project: &Dir,
    place: &[&str],
    operation: &Operation,
) -> Result<Option<Permissions>, Fault> {
    let Some((name, way)) = place.split_last() else { return Err(Fault::NotAFile) };
    match open(project, way)? {
        Some(dir) => check_name(&dir, name, operation),
        None if *operation == Operation::Update => Err(Fault::Missing),
        None => Ok(None),
    }
}

fn check_name(dir: &Dir, name: &str, operation: &Operation) -> Result<Option<Permissions>, Fault> {
    match (dir.symlink_metadata(name), operation) {
        (Ok(metadata), _) if metadata.is_symlink() => Err(Fault::Link { name: name.to_owned() }),
        (Ok(_), Operation::Create) => Err(Fault::Exists),
        (Ok(metadata), _) if !metadata.is_file() => Err(Fault::NotAFile),
        (Ok(metadata), _) => Ok(Some(metadata.permissions())),
        (Err(error), operation) if error.kind() == ErrorKind::NotFound => match operation {
            Operation::Create => Ok(None),
            _ => Err(Fault::Missing),
        },
        (Err(error), _) => Err(error.into()),
    }
}

/// What was changed, and how to take it back. Dropped, it is taken back.
#[derive(Default)]
pub(super) struct Changes {
    /// Folders that were made.
    folders: Vec<(Dir, String)>,
    /// Files of ours that nobody needs in the end.
    scratch: Vec<(Dir, String)>,
    /// What took its place.
    placed: Vec<Placed>,
}

struct Placed {
    dir: Dir,
    name: String,
    /// For a person.
    path: String,
    /// The name under which the old file still is.
    old: Option<String>,
}

impl Changes {
    /// Leaves everything as it is now.
    pub(super) fn keep(mut self) {
        self.folders.clear();
        self.placed.clear();
    }

    /// Takes everything back. Returns what could not be.
    pub(super) fn undo(mut self) -> Vec<String> {
        self.take_back()
    }

    fn take_back(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for Placed { dir, name, path, old } in self.placed.drain(..).rev() {
            let done = match &old {
                Some(old) => dir.rename(old, &dir, &name),
                None => dir.remove_file(&name),
            };
            if let Err(error) = done {
                // The only place where the old content is.
                self.scratch.retain(|(_, scratch)| Some(scratch) != old.as_ref());
                let kept = old.map(|old| format!(", its old content is in {old}"));
                left.push(format!("{path} ({error}{})", kept.unwrap_or_default()));
            }
        }
        for (dir, name) in self.scratch.drain(..).rev() {
            match dir.remove_file(&name) {
                Err(error) if error.kind() != ErrorKind::NotFound => left.push(format!("{name} ({error})")),
                _ => {}
            }
        }
        for (dir, name) in self.folders.drain(..).rev() {
            // What somebody else put into it meanwhile stays.
            if let Err(error) = dir.remove_dir(&name) {
                left.push(format!("{name} ({error})"));
            }
        }
        left
    }

    /// The folder at the end of the way; what is missing is made.
    fn make(&mut self, from: &Dir, way: &[&str]) -> Result<Dir, Fault> {
        let mut dir = from.try_clone()?;
        for name in way {
            dir = match enter(&dir, name)? {
                Some(next) => next,
                None => {
                    let parent = dir.try_clone()?;
                    match dir.create_dir(name) {
                        Ok(()) => self.folders.push((parent, (*name).to_owned())),
                        // Somebody else was faster.
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                        Err(error) => return Err(error.into()),
                    }
                    enter(&dir, name)?.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?
                }
            };
        }
        Ok(dir)
    }

    /// A name for a file of ours, which is removed in the end.
    fn scratch(&mut self, dir: &Dir) -> io::Result<String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Relaxed);
            let name = format!(".duologue-{}-{number}.tmp", std::process::id());
            match dir.symlink_metadata(&name) {
                // Left behind by a program of the same number.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.scratch.push((dir.try_clone()?, name.clone()));
                    return Ok(name);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// An artifact that is written, beside its place.
pub(super) struct Staged {
    dir: Dir,
    beside: String,
    name: String,
    path: String,
    operation: Operation,
}

impl Staged {
    pub(super) fn new(
        project: &Dir,
        place: &[&str],
        artifact: &Artifact,
        changes: &mut Changes,
    ) -> Result<Self, Fault> {
        let Some((name, way)) = place.split_last() else { return Err(Fault::NotAFile) };
        let dir = match artifact.operation {
            Operation::Create => changes.make(project, way)?,
            _ => open(project, way)?.ok_or(Fault::Missing)?,
        };
        let permissions = check_name(&dir, name, &artifact.operation)?;
        let beside = changes.scratch(&dir)?;
        let mut file = dir.open_with(&beside, OpenOptions::new().write(true).create_new(true))?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.write_all(artifact.content.as_bytes())?;
        // A name can reach the disk before the text does.
        file.sync_data()?;
        let (name, path, operation) = ((*name).to_owned(), place.join("/"), artifact.operation.clone());
        Ok(Staged { dir, beside, name, path, operation })
    }

    /// Puts it in its place.
    pub(super) fn place(&self, changes: &mut Changes) -> Result<(), Fault> {
        let (dir, name, path) = (self.dir.try_clone()?, self.name.clone(), self.path.clone());
        if self.operation == Operation::Create {
            self.create()?;
            changes.placed.push(Placed { dir, name, path, old: None });
            return Ok(());
        }
        let old = changes.scratch(&dir)?;
        self.set_aside(&old)?;
        changes.placed.push(Placed { dir, name, path, old: Some(old.clone()) });
        // Now that nobody can exchange it any more: it may not be what was checked.
        check_name(&self.dir, &old, &Operation::Update).map_err(|fault| match fault {
            Fault::Link { .. } => Fault::Link { name: self.name.clone() },
            other => other,
        })?;
        Ok(self.dir.rename(&self.beside, &self.dir, &self.name)?)
    }

    /// A second name fails where the first is taken, which renaming would not.
    fn create(&self) -> Result<(), Fault> {
        match self.dir.hard_link(&self.beside, &self.dir, &self.name) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Fault::Exists),
            // A file system without second names.
            Err(_) => {
                check_name(&self.dir, &self.name, &Operation::Create)?;
                Ok(self.dir.rename(&self.beside, &self.dir, &self.name)?)
            }
        }
    }

    /// Gives the old file the name `old`, as a second one where that can be had: then its place is never
    /// empty.
    fn set_aside(&self, old: &str) -> Result<(), Fault> {
        match self.dir.hard_link(&self.name, &self.dir, old).or_else(|error| match error.kind() {
            ErrorKind::NotFound => Err(error),
            _ => self.dir.rename(&self.name, &self.dir, old),
        }) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Fault::Missing),
            done => Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use cap_std::ambient_authority;

    use super::*;

    fn staged(project: &Dir, artifacts: &[Artifact], changes: &mut Changes) -> Vec<Staged> {
        let stage = |artifact: &Artifact| {
            let place: Vec<&str> = artifact.path.split('/').collect();
            Staged::new(project, &place, artifact, changes).unwrap()
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

    /// A project with the file `old`, three artifacts staged, and what happens before the last is placed.
    fn fails_last(meddle: impl Fn(&Path)) -> (tempfile::TempDir, Fault, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "old").unwrap();
        fs::write(folder.path().join("last"), "last").unwrap();
        let project = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let artifacts =
            [Artifact::create("a/b", "new"), Artifact::update("old", "new"), Artifact::update("last", "new")];
        let mut changes = Changes::default();
        let files = staged(&project, &artifacts, &mut changes);
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
    fn what_was_placed_is_taken_back() {
        let (folder, fault, left) = fails_last(|folder| fs::remove_file(folder.join("last")).unwrap());
        assert!(matches!(fault, Fault::Missing), "{fault}");
        assert_eq!((left, names(folder.path())), (vec![], vec!["old".to_owned()]));
        assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "old");
    }

    #[cfg(unix)]
    #[test]
    fn what_became_a_link_stays_one_and_is_not_followed() {
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
    fn what_cannot_be_taken_back_is_told_and_the_old_content_kept() {
        let (folder, _, left) = fails_last(|folder| {
            fs::remove_file(folder.join("last")).unwrap();
            // No file can take the name of a folder.
            fs::remove_file(folder.join("old")).unwrap();
            fs::create_dir(folder.join("old")).unwrap();
            // And a folder that is used stays.
            fs::write(folder.join("a/theirs"), "").unwrap();
        });
        assert_eq!(left.len(), 2, "{left:?}");
        let (_, kept) = left[0].trim_end_matches(')').split_once("its old content is in ").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(kept)).unwrap(), "old");
        assert!(left[1].starts_with("a ("), "{left:?}");
        assert_eq!(names(&folder.path().join("a")), ["theirs"]);
    }

    #[test]
    fn a_file_that_came_first_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let project = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let mut changes = Changes::default();
        let files = staged(&project, &[Artifact::create("a", "ours")], &mut changes);
        fs::write(folder.path().join("a"), "theirs").unwrap();
        assert!(matches!(files[0].place(&mut changes), Err(Fault::Exists)));
        assert_eq!(changes.undo(), Vec::<String>::new());
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "theirs");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn what_is_dropped_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let project = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let mut changes = Changes::default();
        let files = staged(&project, &[Artifact::create("a/b/c", "")], &mut changes);
        files[0].place(&mut changes).unwrap();
        drop(changes);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
