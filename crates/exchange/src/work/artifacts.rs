//! Writing what an agent proposes: inside the feature root, and all of it or nothing.

use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use duologue_schema::work::{Artifact, ArtifactOperation, WorkInput, WorkOutput};

use super::folders::ProjectFolders;
use super::tree::{Changes, Staged};

/// Writes the artifacts of `output` into the feature root of the order it answers. Returns their paths,
/// from the root of the project, in the order of the artifacts.
///
/// A path that starts with the order's `paths.feature_root` begins at `project_root`, any other at the
/// feature root. ProjectFolders that are missing are made, the feature root too. Nothing is read or written
/// through a symbolic link below `project_root`, and nothing outside the feature root.
///
/// There may be any number of artifacts: few folders and one file are open at once.
///
/// All artifacts are written beside their places and checked before the first takes its place. If one
/// cannot, those before it are taken back, so that the tree is as it was. An update is a new file with the
/// old one's group and permissions: where the old one had other names, those keep the old content. A file of another
/// user is not updated, nor is one with a set-user-id, set-group-id or sticky bit: the new file would belong to this
/// process, and a program that ran as one user would run as another. Until a text is complete, only this user can read it.
///
/// Each file changes in one step, all files together do not: whoever reads meanwhile may see some new and
/// some old. A crash in that moment leaves it so, and files named `.duologue-*.tmp` beside them: the old
/// content of what was updated, the new content of what was not.
///
/// This waits for the disk; in asynchronous code put it into `tokio::task::spawn_blocking`.
///
/// ```
/// use duologue_exchange::work::apply_artifacts;
/// use duologue_schema::Members;
/// use duologue_schema::work::{Artifact, WorkContext, WorkInput, WorkOutput, Recommendation, WorkTask};
///
/// # let folder = tempfile::tempdir()?;
/// # let project = folder.path();
/// let task = WorkTask::new("specify", Members::new());
/// let input = WorkInput::new(WorkContext::new("login", "feature", 1), [("feature_root", "features/login")], task);
/// let artifacts = [Artifact::create("spec.md", "# Login\n")];
/// let output = WorkOutput::new(true, "Wrote the specification.", artifacts, Recommendation::Proceed);
///
/// apply_artifacts(project, &input, &output)?;
/// assert_eq!(std::fs::read_to_string(project.join("features/login/spec.md"))?, "# Login\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// When an artifact is refused or the disk is against it. Nothing has changed then, but for what
/// [`ApplyError::Artifact`] lists as `left`.
pub fn apply_artifacts(
    project_root: impl AsRef<Path>,
    input: &WorkInput,
    output: &WorkOutput,
) -> Result<Vec<PathBuf>, ApplyError> {
    if output.artifacts.is_empty() {
        return Ok(Vec::new());
    }
    let named = input.paths.feature_root().ok_or(ApplyError::NoFeatureRoot)?;
    let about_root = |fault| ApplyError::FeatureRoot { path: named.to_owned(), fault };
    let feature_root = folder(named).map_err(about_root)?;
    let places = places(&feature_root, &output.artifacts)?;

    let path = project_root.as_ref();
    let mut folders = Dir::open_ambient_dir(path, ambient_authority())
        .and_then(ProjectFolders::new)
        .map_err(|error| ApplyError::Project { path: path.to_owned(), error })?;
    folders.find(&feature_root).map_err(about_root)?;

    let mut changes = Changes::new(folders);
    match write(&output.artifacts, &places, &mut changes) {
        Ok(()) => changes.keep(),
        Err((index, fault)) => {
            let path = output.artifacts[index].path.clone();
            return Err(ApplyError::Artifact { index, path, fault, left: changes.undo() });
        }
    }
    Ok(places.iter().map(|place| place.iter().collect()).collect())
}

/// Checks all, stages all, then puts all in their places. An error says which artifact it is about.
fn write(
    artifacts: &[Artifact],
    places: &[Vec<&str>],
    changes: &mut Changes,
) -> Result<(), (usize, ArtifactError)> {
    let each = || artifacts.iter().zip(places).enumerate();
    // Before a folder is made for any of them.
    for (index, (artifact, place)) in each() {
        changes.check(place, &artifact.operation).map_err(|fault| (index, fault))?;
    }
    let mut staged: Vec<Staged> = Vec::new();
    for (index, (artifact, place)) in each() {
        let file = Staged::new(place, artifact, changes).map_err(|fault| (index, fault))?;
        staged.push(file);
    }
    for (index, file) in staged.iter().enumerate() {
        file.place(changes).map_err(|fault| (index, fault))?;
    }
    Ok(())
}

/// Where each artifact goes, as the names that lead there from the root of the project.
fn places<'a>(feature_root: &[&'a str], artifacts: &'a [Artifact]) -> Result<Vec<Vec<&'a str>>, ApplyError> {
    let about = |index: usize, fault| {
        let path = artifacts[index].path.clone();
        ApplyError::Artifact { index, path, fault, left: Vec::new() }
    };
    let mut places = Vec::new();
    for (index, artifact) in artifacts.iter().enumerate() {
        if let ArtifactOperation::Unknown(name) = &artifact.operation {
            return Err(about(index, ArtifactError::UnknownOperation(name.to_string())));
        }
        let place = place(feature_root, &artifact.path).map_err(|fault| about(index, fault))?;
        places.push(place);
    }
    // Sorted, a path comes right before those that begin with it.
    let mut sorted: Vec<usize> = (0..places.len()).collect();
    sorted.sort_by(|left, right| places[*left].cmp(&places[*right]));
    for pair in sorted.windows(2) {
        if places[pair[1]].starts_with(&places[pair[0]]) {
            let (first, second) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            return Err(about(second, ArtifactError::Clash { with: artifacts[first].path.clone() }));
        }
    }
    Ok(places)
}

fn place<'a>(feature_root: &[&'a str], path: &'a str) -> Result<Vec<&'a str>, ArtifactError> {
    let names = names(path)?;
    if matches!(path.rsplit('/').next(), Some("" | ".")) {
        return Err(ArtifactError::NotAFile);
    }
    let place = match names.strip_prefix(feature_root) {
        Some(_) => names,
        None => [feature_root, &names].concat(),
    };
    // The feature root itself is no place for a file.
    if place.len() > feature_root.len() { Ok(place) } else { Err(ArtifactError::NotAFile) }
}

/// The names in the path of a folder; `.` has none.
fn folder(path: &str) -> Result<Vec<&str>, ArtifactError> {
    if path.is_empty() { Err(ArtifactError::Empty) } else { names(path) }
}

/// The names in a path, if it is one that only leads down.
fn names(path: &str) -> Result<Vec<&str>, ArtifactError> {
    if path.is_empty() {
        return Err(ArtifactError::Empty);
    }
    // A backslash separates on one system and is part of a name on the next.
    if path.contains(['\0', '\\']) {
        return Err(ArtifactError::BadCharacter);
    }
    if path.starts_with('/') {
        return Err(ArtifactError::Absolute);
    }
    let mut names = Vec::new();
    for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
        match Path::new(name).components().next() {
            Some(Component::Normal(normal)) if normal == name => names.push(name),
            Some(Component::ParentDir) => return Err(ArtifactError::LeadsUp),
            // What else begins a path is a drive's letter.
            _ => return Err(ArtifactError::Absolute),
        }
    }
    if names.len() > MAX_DEPTH { Err(ArtifactError::TooDeep) } else { Ok(names) }
}

/// The most names in a path. Deeper trees can hardly be used, and take long to walk.
const MAX_DEPTH: usize = 128;

/// Why artifacts were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The project's own folder.
    #[error("cannot open the project {}: {error}", path.display())]
    Project {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The order does not say where its artifacts may be written.
    #[error("the order has artifacts but no paths.feature_root; name the folder they belong into")]
    NoFeatureRoot,
    /// The folder the order names cannot be one for artifacts.
    #[error("feature_root {path:?} {fault}")]
    FeatureRoot {
        /// What the order says.
        path: String,
        /// What is wrong with it.
        fault: ArtifactError,
    },
    /// One of the artifacts. None of them was written.
    #[error("artifact {path:?} {fault}{}", left_behind(left))]
    Artifact {
        /// Its place among the output's artifacts, from 0.
        index: usize,
        /// Its path, as the output says it.
        path: String,
        /// What is wrong with it.
        fault: ArtifactError,
        /// What could not be taken back, because the disk was against that as well. Mostly empty.
        left: Vec<String>,
    },
}

fn left_behind(left: &[String]) -> String {
    if left.is_empty() { String::new() } else { format!("; not taken back: {}", left.join(", ")) }
}

/// What is wrong with an artifact or a feature root. Each reads on after its path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// It has no path.
    #[error("is empty")]
    Empty,
    /// Paths begin in the project.
    #[error("is absolute; begin at the root of the project or of the feature")]
    Absolute,
    /// It has a `..`.
    #[error("leads up by `..`; name the place itself")]
    LeadsUp,
    /// It has a backslash or a NUL.
    #[error("has a backslash or a NUL; separate its parts by `/`")]
    BadCharacter,
    /// It has too many names.
    #[error("has more than {MAX_DEPTH} names")]
    TooDeep,
    /// It names a folder, or something else that is no file.
    #[error("names no file")]
    NotAFile,
    /// A file stands where a folder must be.
    #[error("leads through {name:?}, which is no folder")]
    NotAFolder {
        /// The file.
        name: String,
    },
    /// A symbolic link is on the way or at its end.
    #[error("leads through the symbolic link {name:?}")]
    Link {
        /// The link.
        name: String,
    },
    /// A folder on the way, or the file itself, is another one than a moment ago, or its permissions are others.
    #[error("leads to {name:?}, which was changed while the artifacts were written")]
    Exchanged {
        /// The folder or file.
        name: String,
    },
    /// To be updated, but a set-user-id, set-group-id or sticky bit is set.
    #[error("has the mode {mode:o}, with a set-user-id, set-group-id or sticky bit; remove that bit first")]
    SpecialBits {
        /// The file's mode.
        mode: u32,
    },
    /// To be updated, but it belongs to another user: its replacement would belong to this one.
    #[error("belongs to the user {owner}, and this process runs as {ours}; change its owner first")]
    ForeignOwner {
        /// The file's owner, as a number.
        owner: u32,
        /// The user of this process.
        ours: u32,
    },
    /// To be updated, but it belongs to a group that its replacement cannot be given.
    #[error("belongs to the group {group}, which this process is not in; change its group first")]
    ForeignGroup {
        /// The file's group, as a number.
        group: u32,
    },
    /// Another artifact has the same path, or needs a folder there.
    #[error("is in the way of the artifact {with:?}")]
    Clash {
        /// The other's path.
        with: String,
    },
    /// To be created, but there.
    #[error("is to be created but exists; update it instead")]
    Exists,
    /// To be updated, but not there.
    #[error("is to be updated but does not exist; create it instead")]
    Missing,
    /// Neither `create` nor `update`.
    #[error("asks for the operation {0:?}; known are create and update")]
    UnknownOperation(String),
    /// What the system says.
    #[error("cannot be written: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ArtifactError {
    fn from(error: io::Error) -> Self {
        ArtifactError::Io(error)
    }
}
