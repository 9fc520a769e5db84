//! The open folders of a project, limited in number.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use cap_fs_ext::{DirExt, MetadataExt};
use cap_std::fs::Dir;

use super::artifacts::ArtifactError as Fault;

/// Maximum number of open folders. Some systems limit a process to 256 descriptors.
const OPEN: usize = 32;

/// A folder below the project root that was reached without following links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProjectFolder(usize);

/// The project root, which stays open.
pub(super) const PROJECT: ProjectFolder = ProjectFolder(0);

/// All folders that were reached. The most recently used ones are open. The others are opened again
/// on demand and must not have been replaced.
pub(super) struct ProjectFolders {
    project: Rc<Dir>,
    reached: Vec<Reached>,
    /// Ordered by use, the most recent one last.
    open: Vec<(ProjectFolder, Rc<Dir>)>,
}

struct Reached {
    parent: ProjectFolder,
    name: String,
    identity: Identity,
    children: HashMap<String, ProjectFolder>,
}

/// The device and inode of a folder: unchanged by a rename, and different for a replacement.
type Identity = (u64, u64);

impl ProjectFolders {
    pub(super) fn new(project: Dir) -> io::Result<Self> {
        let identity = identity(&project)?;
        let root = Reached { parent: PROJECT, name: String::new(), identity, children: HashMap::new() };
        Ok(ProjectFolders { project: Rc::new(project), reached: vec![root], open: Vec::new() })
    }

    /// Returns the folder at the end of a path, or `None` if it does not exist.
    pub(super) fn find(&mut self, way: &[&str]) -> Result<Option<ProjectFolder>, Fault> {
        let mut at = PROJECT;
        for name in way {
            match self.enter(at, name)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Returns the folder `name` in another one, or `None` if it does not exist. Links are
    /// rejected.
    pub(super) fn enter(
        &mut self,
        parent: ProjectFolder,
        name: &str,
    ) -> Result<Option<ProjectFolder>, Fault> {
        if let Some(known) = self.reached[parent.0].children.get(name) {
            return Ok(Some(*known));
        }
        let from = self.open(parent)?;
        let Some(dir) = self.step(&from, name)? else { return Ok(None) };
        let identity = identity(&dir)?;
        let folder = ProjectFolder(self.reached.len());
        self.reached.push(Reached { parent, name: name.to_owned(), identity, children: HashMap::new() });
        self.reached[parent.0].children.insert(name.to_owned(), folder);
        self.keep(folder, dir);
        Ok(Some(folder))
    }

    /// Returns an open folder. Drop it before the next call.
    pub(super) fn open(&mut self, folder: ProjectFolder) -> Result<Rc<Dir>, Fault> {
        // Up to the nearest open folder, and down from there.
        let (mut at, mut way) = (folder, Vec::new());
        let mut dir = loop {
            if at == PROJECT {
                break self.project.clone();
            }
            if let Some(place) = self.open.iter().position(|(open, _)| *open == at) {
                let used = self.open.remove(place);
                let dir = used.1.clone();
                self.open.push(used);
                break dir;
            }
            way.push(at);
            at = self.reached[at.0].parent;
        };
        while let Some(next) = way.pop() {
            let name = self.reached[next.0].name.clone();
            dir = match self.step(&dir, &name)? {
                Some(again) if identity(&again)? == self.reached[next.0].identity => self.keep(next, again),
                _ => return Err(Fault::Exchanged { name }),
            };
        }
        Ok(dir)
    }

    /// Opens the folder `name`. At the limit it closes another one first, so that a rollback needs
    /// no more descriptors than the changes did.
    fn step(&mut self, from: &Dir, name: &str) -> Result<Option<Dir>, Fault> {
        if self.open.len() >= OPEN {
            self.open.remove(0);
        }
        let error = match from.open_dir_nofollow(name) {
            Ok(next) => return Ok(Some(next)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => error,
        };
        // The system returns the same error for a link and for a file.
        match from.symlink_metadata(name) {
            Ok(metadata) if metadata.is_symlink() => Err(Fault::Link { name: name.to_owned() }),
            Ok(metadata) if !metadata.is_dir() => Err(Fault::NotAFolder { name: name.to_owned() }),
            _ => Err(error.into()),
        }
    }

    fn keep(&mut self, folder: ProjectFolder, dir: Dir) -> Rc<Dir> {
        let dir = Rc::new(dir);
        self.open.push((folder, dir.clone()));
        dir
    }
}

fn identity(dir: &Dir) -> io::Result<Identity> {
    let metadata = dir.dir_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;

    fn folders(path: &std::path::Path) -> ProjectFolders {
        ProjectFolders::new(Dir::open_ambient_dir(path, ambient_authority()).unwrap()).unwrap()
    }

    #[test]
    fn the_number_of_open_folders_is_limited() {
        let project = tempfile::tempdir().unwrap();
        let mut folders = folders(project.path());
        let mut reached = Vec::new();
        for number in 0..3 * OPEN {
            let name = number.to_string();
            fs::create_dir_all(project.path().join("deep").join(&name)).unwrap();
            reached.push(folders.find(&["deep", &name]).unwrap().unwrap());
            assert!(folders.open.len() <= OPEN);
        }
        for (number, folder) in reached.iter().enumerate() {
            folders.open(*folder).unwrap().write("number", number.to_string()).unwrap();
            assert!(folders.open.len() <= OPEN);
        }
        for number in 0..3 * OPEN {
            let written = fs::read_to_string(project.path().join(format!("deep/{number}/number"))).unwrap();
            assert_eq!(written, number.to_string());
        }
        // The parent of all of them is used all the time.
        let deep = folders.find(&["deep"]).unwrap().unwrap();
        assert!(folders.open.iter().any(|(open, _)| *open == deep));
    }

    #[test]
    fn open_folders_follow_renames_and_replacements_are_rejected() {
        let project = tempfile::tempdir().unwrap();
        let path = |name: &str| project.path().join(name);
        for name in ["a", "b"] {
            fs::create_dir(path(name)).unwrap();
        }
        let mut folders = folders(project.path());
        let a = folders.find(&["a"]).unwrap().unwrap();
        fs::rename(path("a"), path("moved")).unwrap();
        fs::rename(path("b"), path("a")).unwrap();
        folders.open(a).unwrap().write("mine", "").unwrap();
        assert!(path("moved/mine").exists());

        folders.open.clear();
        let fault = folders.open(a).unwrap_err();
        assert!(matches!(&fault, Fault::Exchanged { name } if name == "a"), "{fault}");
        fs::remove_dir(path("a")).unwrap();
        assert!(matches!(folders.open(a), Err(Fault::Exchanged { .. })));
        fs::rename(path("moved"), path("a")).unwrap();
        assert!(folders.open(a).unwrap().exists("mine"));
    }
}
