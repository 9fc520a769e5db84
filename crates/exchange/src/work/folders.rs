//! The folders of a project, and how few of them have to be open at once.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use cap_fs_ext::{DirExt, MetadataExt};
use cap_std::fs::Dir;

use super::artifacts::ArtifactError as Fault;

/// How many folders are open at once. Some systems give a program 256 descriptors for all it does.
const OPEN: usize = 32;

/// A folder that was reached, without following a link, from the root of the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProjectFolder(usize);

/// The root of the project, which stays open.
pub(super) const PROJECT: ProjectFolder = ProjectFolder(0);

/// All folders that were reached. Those that were used last are open; the others are opened again when they
/// are needed, and have to be what they were.
pub(super) struct ProjectFolders {
    project: Rc<Dir>,
    reached: Vec<Reached>,
    /// The one used last at the end.
    open: Vec<(ProjectFolder, Rc<Dir>)>,
}

struct Reached {
    parent: ProjectFolder,
    name: String,
    identity: Identity,
    children: HashMap<String, ProjectFolder>,
}

/// What a folder keeps when it is renamed, and another of its name does not have.
type Identity = (u64, u64);

impl ProjectFolders {
    pub(super) fn new(project: Dir) -> io::Result<Self> {
        let identity = identity(&project)?;
        let root = Reached { parent: PROJECT, name: String::new(), identity, children: HashMap::new() };
        Ok(ProjectFolders { project: Rc::new(project), reached: vec![root], open: Vec::new() })
    }

    /// The folder at the end of the way, or `None` if it ends before.
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

    /// The folder `name` in another one, which must not be a link. `None` if there is nothing.
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

    /// Hands out an open folder. Drop it before the next.
    pub(super) fn open(&mut self, folder: ProjectFolder) -> Result<Rc<Dir>, Fault> {
        // Up to the nearest that is open, and down from there.
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

    /// Opens the folder `name`. Before that it closes one, where there are enough: so taking changes back
    /// needs no more descriptors than making them did.
    fn step(&mut self, from: &Dir, name: &str) -> Result<Option<Dir>, Fault> {
        if self.open.len() >= OPEN {
            self.open.remove(0);
        }
        let error = match from.open_dir_nofollow(name) {
            Ok(next) => return Ok(Some(next)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => error,
        };
        // The system says the same of a link and of a file.
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
    fn few_are_open_at_once() {
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
        // The way to all of them is used all the time.
        let deep = folders.find(&["deep"]).unwrap().unwrap();
        assert!(folders.open.iter().any(|(open, _)| *open == deep));
    }

    #[test]
    fn one_that_is_open_stays_what_it_was_and_no_other_takes_its_place() {
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
