//! Writes the artifacts of a work order: inside the feature root, all or none of them.

use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use duologue_schema::printable;
use duologue_schema::work::{Artifact, ArtifactOperation, WorkInput, WorkOutput};

use super::folders::ProjectFolders;
use super::tree::{Changes, Staged};

/// Writes the artifacts of `output` into the feature root of its order. Returns their paths
/// relative to the project, in the order of the artifacts.
///
/// A path that starts with the order's `paths.feature_root` is relative to `project_root`, any
/// other to the feature root. Missing folders are created, including the feature root. Symbolic
/// links below `project_root` are never followed, and nothing outside the feature root is touched.
///
/// The number of artifacts is not limited: few folders and one file are open at a time.
///
/// All artifacts are written to temporary files and checked before the first is put in place. If
/// one fails, the earlier ones are rolled back. An update is a new file with the group and
/// permissions of the old one; other hard links to the old file keep its content. A file of another
/// user is not updated, nor is one with a set-user-id, set-group-id or sticky bit: the new file
/// would belong to this process, and a program would run as another user. Only this user can read a
/// file before its text is complete.
///
/// Each file changes atomically, but not all files together: a concurrent reader may see some new
/// and some old files. A crash at that point leaves that state, together with files named
/// `.duologue-*.tmp`. These contain the old content of updated files and the new content of the
/// others.
///
/// Some artifacts are rejected although they are possible, since they are rarely meant; see
/// [`ArtifactWriter`], which has the settings.
///
/// A temporary file that cannot be removed is logged with `tracing`.
///
/// This function blocks on the disk; use `tokio::task::spawn_blocking` in asynchronous code.
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
/// Returns an error if an artifact is rejected or the disk fails. Nothing has changed then, except
/// for the paths in `left` of [`ApplyError::Artifact`].
pub fn apply_artifacts(
    project_root: impl AsRef<Path>,
    input: &WorkInput,
    output: &WorkOutput,
) -> Result<Vec<PathBuf>, ApplyError> {
    ArtifactWriter::new().apply(project_root, input, output)
}

/// Settings for writing artifacts. By default three kinds of artifacts are rejected:
///
/// - a path through a folder of version control (`.git`, `.hg`, `.svn`, `.jj` and others), since a
///   hook or a setting there runs a program later,
/// - a path with control characters or invisible ones, which looks like another path,
/// - an update of a file that nobody may write.
///
/// ```
/// use duologue_exchange::work::ArtifactWriter;
/// # use duologue_schema::Members;
/// # use duologue_schema::work::{Artifact, WorkContext, WorkInput, WorkOutput, Recommendation, WorkTask};
///
/// # let folder = tempfile::tempdir()?;
/// # let project = folder.path();
/// # let task = WorkTask::new("guard", Members::new());
/// # let input = WorkInput::new(WorkContext::new("hooks", "feature", 1), [("feature_root", ".")], task);
/// let hook = [Artifact::create(".git/hooks/pre-commit", "#!/bin/sh\n")];
/// # let output = |artifacts: [Artifact; 1]| WorkOutput::new(true, "", artifacts, Recommendation::Proceed);
/// # let output = output(hook);
/// assert!(ArtifactWriter::new().apply(project, &input, &output).is_err());
/// ArtifactWriter::new().allow_version_control(true).apply(project, &input, &output)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "call `apply`, or pass it to a workflow"]
pub struct ArtifactWriter {
    version_control: bool,
    unprintable_names: bool,
    read_only_files: bool,
}

impl ArtifactWriter {
    /// Creates the default settings, those of [`apply_artifacts`].
    pub fn new() -> Self {
        ArtifactWriter::default()
    }

    /// Allows paths through the folders of version control.
    pub fn allow_version_control(mut self, yes: bool) -> Self {
        self.version_control = yes;
        self
    }

    /// Allows control characters and invisible characters in paths.
    pub fn allow_unprintable_names(mut self, yes: bool) -> Self {
        self.unprintable_names = yes;
        self
    }

    /// Allows updates of files that nobody may write. The new file is read-only too.
    pub fn allow_read_only_files(mut self, yes: bool) -> Self {
        self.read_only_files = yes;
        self
    }

    /// Writes the artifacts; see [`apply_artifacts`].
    ///
    /// # Errors
    ///
    /// The errors of [`apply_artifacts`].
    pub fn apply(
        &self,
        project_root: impl AsRef<Path>,
        input: &WorkInput,
        output: &WorkOutput,
    ) -> Result<Vec<PathBuf>, ApplyError> {
        write_all(self, project_root.as_ref(), input, output)
    }

    /// Checks one name of a path.
    fn check_name(&self, name: &str) -> Result<(), ArtifactError> {
        if !self.version_control && is_version_control(name) {
            return Err(ArtifactError::VersionControl { name: name.to_owned() });
        }
        let is_shown = |c: &char| !c.is_control() && printable(c.encode_utf8(&mut [0; 4])) == *c.to_string();
        match name.chars().find(|c| !is_shown(c)) {
            Some(character) if !self.unprintable_names => Err(ArtifactError::Unprintable { character }),
            _ => Ok(()),
        }
    }
}

/// Returns true for the folder of a version control system, in every spelling that some file system
/// takes for it.
fn is_version_control(name: &str) -> bool {
    const FOLDERS: [&str; 9] = [".git", ".hg", ".svn", ".bzr", ".jj", ".pijul", "_darcs", "CVS", "git~1"];
    // Windows ignores the end of such names: `.git.`, `.git `, `.git::$INDEX_ALLOCATION`.
    // HFS+ ignores some invisible characters: `.g\u{200c}it` is `.git` there.
    let is_ignored = |c: char| matches!(c, '\u{200C}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{206A}'..='\u{206F}' | '\u{FEFF}');
    let name = name.replace(is_ignored, "");
    let stem = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    FOLDERS.iter().any(|folder| folder.eq_ignore_ascii_case(stem))
}

fn write_all(
    writer: &ArtifactWriter,
    path: &Path,
    input: &WorkInput,
    output: &WorkOutput,
) -> Result<Vec<PathBuf>, ApplyError> {
    if output.artifacts.is_empty() {
        return Ok(Vec::new());
    }
    let named = input.paths.feature_root().ok_or(ApplyError::NoFeatureRoot)?;
    let about_root = |fault| ApplyError::FeatureRoot { path: named.to_owned(), fault };
    let feature_root = folder(writer, named).map_err(about_root)?;
    let places = places(writer, &feature_root, &output.artifacts)?;

    let mut folders = Dir::open_ambient_dir(path, ambient_authority())
        .and_then(ProjectFolders::new)
        .map_err(|error| ApplyError::Project { path: path.to_owned(), error })?;
    folders.find(&feature_root).map_err(about_root)?;

    let mut changes = Changes::new(folders, writer.read_only_files);
    match write(&output.artifacts, &places, &mut changes) {
        Ok(()) => {
            let left = changes.keep();
            if !left.is_empty() {
                tracing::warn!(
                    ?left,
                    "temporary files of work orders could not be removed; remove them by hand"
                );
            }
        }
        Err((index, fault)) => {
            let path = output.artifacts[index].path.clone();
            return Err(ApplyError::Artifact { index, path, fault, left: changes.undo() });
        }
    }
    Ok(places.iter().map(|place| place.iter().collect()).collect())
}

/// Checks all artifacts, stages all, then puts all in place. An error has the index of its
/// artifact.
fn write(
    artifacts: &[Artifact],
    places: &[Vec<&str>],
    changes: &mut Changes,
) -> Result<(), (usize, ArtifactError)> {
    let each = || artifacts.iter().zip(places).enumerate();
    // Before a folder is created for any of them.
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

/// Returns the path of each artifact from the project root, as names.
fn places<'a>(
    writer: &ArtifactWriter,
    feature_root: &[&'a str],
    artifacts: &'a [Artifact],
) -> Result<Vec<Vec<&'a str>>, ApplyError> {
    let about = |index: usize, fault| {
        let path = artifacts[index].path.clone();
        ApplyError::Artifact { index, path, fault, left: Vec::new() }
    };
    let mut places = Vec::new();
    for (index, artifact) in artifacts.iter().enumerate() {
        if let ArtifactOperation::Unknown(name) = &artifact.operation {
            return Err(about(index, ArtifactError::UnknownOperation(name.to_string())));
        }
        let place = place(writer, feature_root, &artifact.path).map_err(|fault| about(index, fault))?;
        places.push(place);
    }
    // In sorted order a path directly precedes those that start with it.
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

fn place<'a>(
    writer: &ArtifactWriter,
    feature_root: &[&'a str],
    path: &'a str,
) -> Result<Vec<&'a str>, ArtifactError> {
    let names = names(writer, path)?;
    if matches!(path.rsplit('/').next(), Some("" | ".")) {
        return Err(ArtifactError::NotAFile);
    }
    let place = match names.strip_prefix(feature_root) {
        Some(_) => names,
        None => [feature_root, &names].concat(),
    };
    // The feature root itself cannot be a file.
    if place.len() > feature_root.len() { Ok(place) } else { Err(ArtifactError::NotAFile) }
}

/// Returns the names in the path of a folder; `.` has none.
fn folder<'a>(writer: &ArtifactWriter, path: &'a str) -> Result<Vec<&'a str>, ArtifactError> {
    if path.is_empty() { Err(ArtifactError::Empty) } else { names(writer, path) }
}

/// Returns the names in a path that does not lead up.
fn names<'a>(writer: &ArtifactWriter, path: &'a str) -> Result<Vec<&'a str>, ArtifactError> {
    if path.is_empty() {
        return Err(ArtifactError::Empty);
    }
    // A backslash is a separator on some systems and part of a name on others.
    if path.contains(['\0', '\\']) {
        return Err(ArtifactError::BadCharacter);
    }
    if path.starts_with('/') {
        return Err(ArtifactError::Absolute);
    }
    let mut names = Vec::new();
    for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
        match Path::new(name).components().next() {
            Some(Component::Normal(normal)) if normal == name => {
                writer.check_name(name)?;
                names.push(name);
            }
            Some(Component::ParentDir) => return Err(ArtifactError::LeadsUp),
            // The remaining prefixes name a drive.
            _ => return Err(ArtifactError::Absolute),
        }
    }
    if names.len() > MAX_DEPTH { Err(ArtifactError::TooDeep) } else { Ok(names) }
}

/// Maximum number of names in a path. Deeper trees are impractical, and slow to walk.
const MAX_DEPTH: usize = 128;

/// Errors of [`apply_artifacts`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The project folder cannot be opened.
    #[error("cannot open the project {}: {error}", path.display())]
    Project {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The order names no folder for its artifacts.
    #[error("the order has artifacts but no paths.feature_root; name their folder")]
    NoFeatureRoot,
    /// The feature root is invalid.
    #[error("feature_root {path:?} {fault}")]
    FeatureRoot {
        /// The path in the order.
        path: String,
        /// The reason.
        fault: ArtifactError,
    },
    /// An artifact is invalid or could not be written. None of them was written.
    #[error("artifact {path:?} {fault}{}", left_behind(left))]
    Artifact {
        /// The index in the output's artifacts, from 0.
        index: usize,
        /// The path in the output.
        path: String,
        /// The reason.
        fault: ArtifactError,
        /// The changes that could not be rolled back, because the disk failed again. Usually empty.
        left: Vec<String>,
    },
}

fn left_behind(left: &[String]) -> String {
    if left.is_empty() { String::new() } else { format!("; not rolled back: {}", left.join(", ")) }
}

/// The reason why an artifact or a feature root is rejected. Its text continues a sentence that
/// begins with the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The path is empty.
    #[error("is empty")]
    Empty,
    /// The path is absolute.
    #[error("is absolute; begin at the root of the project or of the feature")]
    Absolute,
    /// The path contains `..`.
    #[error("leads up by `..`; name the place itself")]
    LeadsUp,
    /// The path contains a backslash or a NUL.
    #[error("has a backslash or a NUL; separate its parts by `/`")]
    BadCharacter,
    /// The path leads through a folder of version control.
    #[error(
        "leads into {name:?}, which belongs to version control; `ArtifactWriter::allow_version_control` allows it"
    )]
    VersionControl {
        /// The folder.
        name: String,
    },
    /// The path contains a control character or an invisible one.
    #[error(
        "has the control or invisible character {character:?}; `ArtifactWriter::allow_unprintable_names` allows it"
    )]
    Unprintable {
        /// The character.
        character: char,
    },
    /// The file to update is read-only.
    #[error("is read-only; change its mode first, or use `ArtifactWriter::allow_read_only_files`")]
    ReadOnly,
    /// The path has too many names.
    #[error("has more than {MAX_DEPTH} names")]
    TooDeep,
    /// The path names a folder, or something else that is not a file.
    #[error("names no file")]
    NotAFile,
    /// A file is in the place of a folder.
    #[error("leads through {name:?}, which is not a folder")]
    NotAFolder {
        /// The file.
        name: String,
    },
    /// The path contains a symbolic link.
    #[error("leads through the symbolic link {name:?}")]
    Link {
        /// The link.
        name: String,
    },
    /// A folder or the file was replaced, or its permissions changed, during the call.
    #[error("leads to {name:?}, which was changed while the artifacts were written")]
    Exchanged {
        /// The folder or file.
        name: String,
    },
    /// The file to update has a set-user-id, set-group-id or sticky bit.
    #[error("has the mode {mode:o}, with a set-user-id, set-group-id or sticky bit; remove that bit first")]
    SpecialBits {
        /// The file's mode.
        mode: u32,
    },
    /// The file to update belongs to another user. Its replacement would belong to this one.
    #[error("belongs to the user {owner}, and this process runs as {ours}; change its owner first")]
    ForeignOwner {
        /// The id of the file's owner.
        owner: u32,
        /// The id of this process's user.
        ours: u32,
    },
    /// The file to update belongs to a group that its replacement cannot be given.
    #[error("belongs to the group {group}, which this process is not in; change its group first")]
    ForeignGroup {
        /// The id of the file's group.
        group: u32,
    },
    /// Another artifact has the same path, or needs a folder there.
    #[error("is in the way of the artifact {with:?}")]
    Clash {
        /// The path of the other artifact.
        with: String,
    },
    /// The file to create already exists.
    #[error("is to be created but exists; update it instead")]
    Exists,
    /// The file to update does not exist.
    #[error("is to be updated but does not exist; create it instead")]
    Missing,
    /// The operation is neither `create` nor `update`.
    #[error("asks for the operation {0:?}; known are create and update")]
    UnknownOperation(String),
    /// The error of the system.
    #[error("cannot be written: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ArtifactError {
    fn from(error: io::Error) -> Self {
        ArtifactError::Io(error)
    }
}
