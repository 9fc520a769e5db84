//! Changes to files that a tool call made.

use duologue_schema_derive::wire;

use super::{AbsolutePath, MediaType};

/// Changes to files.
#[wire]
pub struct Diff {
    /// The changed files.
    #[wire(skip_items)]
    pub changes: Vec<DiffChange>,
    /// The text of the changes, as far as the agent has it.
    #[wire(lenient)]
    pub patch: Option<DiffPatch>,
}

impl Diff {
    /// Returns the paths of all changes, also those before a move or a copy.
    pub fn paths(&self) -> impl Iterator<Item = &AbsolutePath> {
        self.changes.iter().flat_map(|change| {
            let (old, new) = match &change.operation {
                DiffOperation::Add(file) | DiffOperation::Delete(file) | DiffOperation::Modify(file) => {
                    (None, Some(&file.path))
                }
                DiffOperation::Move(files) | DiffOperation::Copy(files) => {
                    (Some(&files.old_path), Some(&files.path))
                }
                DiffOperation::Unknown(_) => (None, None),
            };
            old.into_iter().chain(new)
        })
    }
}

/// A change to one file.
#[wire]
pub struct DiffChange {
    /// The type of the file.
    #[wire(lenient)]
    pub file_type: Option<DiffFileType>,
    /// The media type of the file.
    #[wire(lenient)]
    pub mime_type: Option<MediaType>,
    /// The operation, with its paths.
    #[wire(flatten)]
    pub operation: DiffOperation,
}

/// The operation on a file.
#[wire(tag = "operation", open)]
pub enum DiffOperation {
    /// Creates a file.
    Add(DiffPathChange),
    /// Deletes a file.
    Delete(DiffPathChange),
    /// Changes a file.
    Modify(DiffPathChange),
    /// Moves a file.
    Move(DiffPathPairChange),
    /// Copies a file.
    Copy(DiffPathPairChange),
}

/// The path of an operation on one file.
#[wire(no_meta)]
pub struct DiffPathChange {
    /// The file.
    pub path: AbsolutePath,
}

/// The paths of an operation that has two.
#[wire(no_meta)]
pub struct DiffPathPairChange {
    /// The file before the operation.
    pub old_path: AbsolutePath,
    /// The file after the operation.
    pub path: AbsolutePath,
}

/// The type of a file.
#[wire(open)]
pub enum DiffFileType {
    /// Text.
    Text,
    /// Bytes.
    Binary,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// The text of changes.
#[wire]
pub struct DiffPatch {
    /// The format of the text.
    pub format: DiffPatchFormat,
    /// The text.
    pub text: String,
}

/// The format of the text of changes.
#[wire(open)]
pub enum DiffPatchFormat {
    /// A unified diff with the headers of git.
    GitPatch,
}
