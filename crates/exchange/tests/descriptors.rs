//! Many artifacts, and few descriptors. A test program of its own: the limit is one for the whole process.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};

use duologue_exchange::work::{ApplyError, apply_artifacts};
use duologue_schema::Members;
use duologue_schema::work::{Artifact, Recommendation, WorkContext, WorkInput, WorkOutput, WorkTask};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than there may be descriptors.
const MANY: usize = 300;

#[test]
fn more_artifacts_and_folders_than_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum }).unwrap();

    let project = tempfile::tempdir().unwrap();
    let beside = |number: usize| format!("d{}/{number}", number % 10);
    let apart = |number: usize| format!("apart/{number}/deeper/file");
    let deep = "a/".repeat(100) + "file";
    let all = || (0..MANY).map(beside).chain((0..MANY).map(apart)).chain([deep.clone()]);

    apply(project.path(), all().map(|path| Artifact::create(path, "old"))).unwrap();
    assert_eq!(contents(project.path(), all()), ["old"]);
    apply(project.path(), all().map(|path| Artifact::update(path, "new"))).unwrap();
    assert_eq!(contents(project.path(), all()), ["new"]);

    // All are written when the last turns out to be none, whether new or not; and all are taken back.
    let before = tree(project.path());
    let none = || [Artifact::create("x".repeat(300), "")];
    let updates = all().map(|path| Artifact::update(path, "newer")).chain(none());
    let error = apply(project.path(), updates).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Artifact { index, left, .. } if *index == 2 * MANY + 1 && left.is_empty())
    );
    let creates = all().map(|path| Artifact::create(format!("more/{path}"), "newer")).chain(none());
    let error = apply(project.path(), creates).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Artifact { index, left, .. } if *index == 2 * MANY + 1 && left.is_empty())
    );
    assert_eq!(tree(project.path()), before);
    assert_eq!(contents(project.path(), all()), ["new"]);
}

fn apply(project: &Path, artifacts: impl Iterator<Item = Artifact>) -> Result<Vec<PathBuf>, ApplyError> {
    let task = WorkTask::new("write", Members::new());
    let input = WorkInput::new(WorkContext::new("many", "feature", 1), [("feature_root", "feature")], task);
    let artifacts: Vec<_> = artifacts.collect();
    apply_artifacts(project, &input, &WorkOutput::new(true, "", artifacts, Recommendation::Proceed))
}

/// Returns the distinct contents of the files.
fn contents(project: &Path, paths: impl Iterator<Item = String>) -> Vec<String> {
    let mut said: Vec<_> =
        paths.map(|path| fs::read_to_string(project.join("feature").join(path)).unwrap()).collect();
    said.sort();
    said.dedup();
    said
}

/// All files and folders.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.append(&mut tree(&path));
        }
        all.push(path);
    }
    all.sort();
    all
}
