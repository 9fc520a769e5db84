//! The folder of all logs: its owner, its mode, and other things in it than logs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use duologue_store::{Error, LogRoot, LogSettings};
use tempfile::tempdir;

use crate::support::{NAME, open, pipe, root, small};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_new_folder_and_its_new_parents_are_private() {
    let base = tempdir().expect("a folder");
    let folder = base.path().join("agents/writer/sessions");
    root(&folder, small());
    for folder in folder.ancestors().take(3) {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
}

#[test]
fn a_folder_that_others_can_change_is_refused() {
    let base = tempdir().expect("a folder");
    let folder = base.path().join("sessions");
    fs::create_dir(&folder).expect("a folder");
    let link = base.path().join("link");
    symlink(&folder, &link).expect("a link");
    let set = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("the mode");
    for mode in [0o777, 0o770, 0o702] {
        set(mode);
        for path in [&folder, &link] {
            let error = LogRoot::new(path, LogSettings::default()).expect_err("refused").to_string();
            for part in [&path.display().to_string(), &format!("(mode {mode:o})"), "`chmod go=`"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "nothing was written");
    set(0o700);
    root(&folder, small());
}

#[test]
fn what_is_named_as_a_removed_log_does_not_stop_the_start() {
    let base = tempdir().expect("a folder");
    let (folder, other) = (base.path().join("sessions"), base.path().join("other"));
    fs::create_dir_all(folder.join(".removed-0-s")).expect("a folder");
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("file"), "").expect("a file");
    fs::write(folder.join(".removed-x"), "").expect("a file");
    symlink(&other, folder.join(".removed-link")).expect("a link");
    pipe(&folder.join(".removed-pipe"));
    let logs = root(&folder, small());
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "the lock alone");
    assert!(other.join("file").exists(), "a link is not followed");
    drop(logs);
    fs::remove_file(folder.join("lock")).expect("removed");
    pipe(&folder.join("lock"));
    let error = LogRoot::new(&folder, small()).expect_err("no lock");
    assert!(error.to_string().contains("lock: "), "{error}");
}

/// A pipe is no segment, and a link leads to none.
#[test]
fn a_pipe_in_a_log_is_not_waited_for() {
    let base = tempdir().expect("a folder");
    drop(open(base.path(), small()));
    let log = base.path().join(NAME);
    pipe(&log.join("0000000000000002-2.jsonl"));
    pipe(&log.join(".new"));
    let opened = open(base.path(), small());
    assert_eq!(opened.recovery().removed_bytes, 0);
    let end = opened.recovery().end;
    drop(opened);
    assert_eq!(
        root(base.path(), small()).snapshot(NAME).expect("a snapshot").end().number(),
        end.number() + 1
    );
    let target = log.join("target");
    pipe(&target);
    symlink(&target, log.join("0000000000000009-9.jsonl")).expect("a link");
    let logs = root(base.path(), small());
    assert!(matches!(logs.open(NAME, &crate::support::header()), Err(Error::File { .. })));
    assert!(matches!(logs.snapshot(NAME), Err(Error::File { .. })));
}
