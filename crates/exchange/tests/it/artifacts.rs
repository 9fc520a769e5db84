//! Writing of artifacts, and rejections that leave no trace.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duologue_exchange::work::{ApplyError, ArtifactError as Fault, ArtifactWriter, apply_artifacts};
use duologue_schema::Members;
use duologue_schema::work::{
    Artifact, Recommendation, WorkContext, WorkInput, WorkOutput, WorkPaths, WorkTask,
};
use proptest::prelude::*;

/// A project whose feature root is `features/login`, beside files that are none of its business.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("project/README.md", "read me"),
            ("project/features/other/spec.md", "other"),
            ("project/features/login/old.md", "old"),
            ("project/features/login/deep/old.md", "deep"),
            ("outside.md", "outside"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Project { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn feature(&self, path: &str) -> PathBuf {
        self.root().join("features/login").join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.feature(path)).unwrap()
    }

    fn apply(&self, artifacts: &[Artifact]) -> Result<Vec<PathBuf>, ApplyError> {
        self.apply_to("features/login", artifacts)
    }

    fn apply_to(&self, feature_root: &str, artifacts: &[Artifact]) -> Result<Vec<PathBuf>, ApplyError> {
        self.apply_with(&ArtifactWriter::new(), feature_root, artifacts)
    }

    fn apply_with(
        &self,
        writer: &ArtifactWriter,
        feature_root: &str,
        artifacts: &[Artifact],
    ) -> Result<Vec<PathBuf>, ApplyError> {
        let input = input([(WorkPaths::FEATURE_ROOT, feature_root)].into());
        writer.apply(self.root(), &input, &output(artifacts))
    }

    /// Every file, folder and link, what it is and what is in it.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut tree = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let content = if metadata.is_symlink() {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                } else if metadata.is_file() {
                    fs::read(&path).unwrap()
                } else {
                    Vec::new()
                };
                if metadata.is_dir() {
                    folders.push(path.clone());
                }
                tree.insert(path, (metadata.mode(), content));
            }
        }
        tree
    }

    /// Returns the index and the error of a rejected artifact. The files must be unchanged.
    fn refuses(&self, artifacts: &[Artifact]) -> (usize, Fault) {
        let before = self.tree();
        let error = self.apply(artifacts).expect_err("refused");
        assert_eq!(self.tree(), before, "{error}");
        match error {
            ApplyError::Artifact { index, fault, left, .. } => {
                assert_eq!(left, Vec::<String>::new());
                (index, fault)
            }
            other => panic!("{other}"),
        }
    }
}

fn input(paths: WorkPaths) -> WorkInput {
    WorkInput::new(WorkContext::new("login", "feature", 1), paths, WorkTask::new("specify", Members::new()))
}

fn output(artifacts: &[Artifact]) -> WorkOutput {
    WorkOutput::new(true, "", artifacts, Recommendation::Proceed)
}

fn create(path: &str) -> Artifact {
    Artifact::create(path, "new")
}

fn update(path: &str) -> Artifact {
    Artifact::update(path, "new")
}

#[test]
fn paths_begin_at_the_project_or_at_the_feature() {
    let project = Project::new();
    let written = project
        .apply(&[
            create("features/login/a.md"),
            create("b.md"),
            create("./new/deep//c.md"),
            create("features/other/d.md"),
            create("features/login2/e.md"),
            Artifact::create("ünï/\u{1f600}.md", ""),
            update("old.md"),
        ])
        .unwrap();
    let expected = ["a.md", "b.md", "new/deep/c.md", "features/other/d.md", "features/login2/e.md"];
    for (path, written) in expected.iter().zip(&written) {
        assert_eq!(*written, Path::new("features/login").join(path));
        assert_eq!(project.read(path), "new");
    }
    assert_eq!((project.read("ünï/\u{1f600}.md"), project.read("old.md")), (String::new(), "new".to_owned()));
    assert!(!project.tree().keys().any(|path| path.to_string_lossy().contains(".duologue-")));
}

#[test]
fn a_feature_root_that_is_not_there_is_made() {
    let project = Project::new();
    let written =
        project.apply_to("./features/new/", &[create("features/new/a.md"), create("b.md")]).unwrap();
    assert_eq!(written, [Path::new("features/new/a.md"), Path::new("features/new/b.md")]);
    // The project itself can be one.
    project.apply_to(".", &[update("README.md")]).unwrap();
    assert_eq!(fs::read_to_string(project.root().join("README.md")).unwrap(), "new");
}

#[test]
fn nothing_to_write_asks_for_nothing() {
    assert_eq!(apply_artifacts("/nowhere", &input(WorkPaths::new()), &output(&[])).unwrap().len(), 0);
}

#[test]
fn the_feature_root_is_a_folder_of_the_project() {
    let project = Project::new();
    symlink("other", project.root().join("features/link")).unwrap();
    let before = project.tree();
    let fault = |root: &str| match project.apply_to(root, &[create("a.md")]) {
        Err(ApplyError::FeatureRoot { path, fault }) if path == root => fault,
        other => panic!("{root}: {other:?}"),
    };
    let absolute = project.root().join("features/login");
    assert!(matches!(fault(absolute.to_str().unwrap()), Fault::Absolute));
    assert!(matches!(fault("/"), Fault::Absolute));
    assert!(matches!(fault("features/../.."), Fault::LeadsUp));
    assert!(matches!(fault(".."), Fault::LeadsUp));
    assert!(matches!(fault(""), Fault::Empty));
    assert!(matches!(fault("features\\login"), Fault::BadCharacter));
    // A feature root is no way around the rules for artifacts.
    for root in [".git", "features/.git", ".GIT/hooks", ".hg"] {
        assert!(matches!(fault(root), Fault::VersionControl { .. }), "{root}");
    }
    assert!(matches!(fault("features/a\u{202e}b"), Fault::Unprintable { .. }));
    assert!(matches!(fault(&"a/".repeat(129)), Fault::TooDeep));
    assert!(matches!(fault("features/link"), Fault::Link { name } if name == "link"));
    assert!(matches!(fault("features/link/deeper"), Fault::Link { .. }));
    assert!(matches!(fault("README.md"), Fault::NotAFolder { name } if name == "README.md"));

    let nowhere = apply_artifacts(project.root(), &input(WorkPaths::new()), &output(&[create("a.md")]));
    assert!(matches!(nowhere, Err(ApplyError::NoFeatureRoot)));
    let paths = WorkPaths::from([(WorkPaths::FEATURE_ROOT, "features")]);
    let gone = apply_artifacts(project.root().join("gone"), &input(paths), &output(&[create("a.md")]));
    assert!(matches!(gone, Err(ApplyError::Project { .. })));
    assert_eq!(project.tree(), before);
}

#[test]
fn paths_that_are_none() {
    let project = Project::new();
    for (path, expected) in [
        ("", "Empty"),
        ("/etc/passwd", "Absolute"),
        ("//x", "Absolute"),
        ("../spec.md", "LeadsUp"),
        ("a/../../../x", "LeadsUp"),
        ("features/login/../other/spec.md", "LeadsUp"),
        ("..", "LeadsUp"),
        ("a/..", "LeadsUp"),
        ("..\\x", "BadCharacter"),
        ("a\0b", "BadCharacter"),
        (&"a/".repeat(129), "TooDeep"),
        ("deep/", "NotAFile"),
        ("new/.", "NotAFile"),
        (".", "NotAFile"),
        ("features/login", "NotAFile"),
        ("features/login/", "NotAFile"),
    ] {
        for artifact in [create(path), update(path)] {
            // One that is fine comes before it, and another after it.
            let (index, fault) = project.refuses(&[create("fine.md"), artifact, update("old.md")]);
            assert_eq!((index, format!("{fault:?}").as_str()), (1, expected), "{path:?}");
        }
    }
}

/// Calls `change` while another thread calls `look` again and again.
fn while_looking(look: impl Fn() + Send + 'static, mut change: impl FnMut()) {
    let stop = Arc::new(AtomicBool::new(false));
    let looker = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::SeqCst) {
                look();
            }
        }
    });
    for _ in 0..300 {
        change();
    }
    stop.store(true, Ordering::SeqCst);
    looker.join().unwrap();
}

/// Nothing is put in place before all artifacts are written: nobody sees a part of a change that fails.
#[test]
fn a_change_that_fails_is_never_visible() {
    let project = Project::new();
    let (file, made) = (project.feature("old.md"), project.feature("new/a.md"));
    let look = move || {
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert!(!made.exists());
    };
    // The folders of the last one are missing, so its name is found to be too long when it is written.
    let artifacts = [update("old.md"), create("new/a.md"), create(&format!("b/c/{}", "x".repeat(300)))];
    while_looking(look, || drop(project.apply(&artifacts).unwrap_err()));
}

/// An update replaces the file in one step.
#[test]
fn an_updated_file_is_always_there() {
    let project = Project::new();
    let file = project.feature("old.md");
    let look = move || assert!(["old", "new"].contains(&fs::read_to_string(&file).unwrap().as_str()));
    while_looking(look, || drop(project.apply(&[update("old.md")]).unwrap()));
}

/// A change that is impossible from the start does not even make a folder for a moment.
#[test]
fn an_impossible_change_touches_nothing() {
    let project = Project::new();
    let touched = || fs::metadata(project.feature("")).unwrap().modified().unwrap();
    let before = touched();
    std::thread::sleep(Duration::from_millis(20));
    for artifact in [update("none.md"), create("old.md"), update("deep")] {
        project.refuses(&[create("new/a.md"), update("old.md"), artifact]);
        assert_eq!(touched(), before);
    }
}

/// The longest path has 128 names, with those of the feature root.
#[test]
fn a_path_may_have_128_names() {
    let project = Project::new();
    let deep = |names: usize| format!("features/login/{}a.md", "d/".repeat(names - 3));
    project.apply(&[create(&deep(128))]).unwrap();
    assert!(project.root().join(deep(128)).exists());
    assert!(matches!(project.refuses(&[create(&deep(129))]), (0, Fault::TooDeep)));
}

#[test]
fn a_half_failed_change_is_undone() {
    let project = Project::new();
    let long = "x".repeat(300);
    // No name may be that long; the folders before it are made by then, and the first file is written.
    let (index, fault) =
        project.refuses(&[create("new/a.md"), update("old.md"), create(&format!("b/c/{long}"))]);
    assert!(index == 2 && matches!(fault, Fault::Io(_)), "{fault}");
    // A folder that takes no new files. Root may write anywhere.
    fs::set_permissions(project.feature("deep"), PermissionsExt::from_mode(0o555)).unwrap();
    if fs::write(project.feature("deep/probe"), "").is_err() {
        let (index, fault) = project.refuses(&[create("new/a.md"), update("deep/old.md")]);
        assert!(index == 1 && matches!(fault, Fault::Io(_)), "{fault}");
    }
}

#[test]
fn create_and_update_want_what_they_say() {
    let project = Project::new();
    fs::create_dir(project.feature("folder")).unwrap();
    let refused =
        |artifact: Artifact| match project.refuses(&[update("old.md"), create("new/a.md"), artifact]) {
            (2, fault) => fault,
            other => panic!("{other:?}"),
        };
    assert!(matches!(refused(create("deep/old.md")), Fault::Exists));
    assert!(matches!(refused(create("folder")), Fault::Exists));
    assert!(matches!(refused(update("none.md")), Fault::Missing));
    assert!(matches!(refused(update("none/none.md")), Fault::Missing));
    assert!(matches!(refused(update("folder")), Fault::NotAFile));
    assert!(matches!(refused(create("deep/old.md/x")), Fault::NotAFolder { name } if name == "old.md"));
    for operation in ["append", "Create", ""] {
        let fault = refused(Artifact::new("x.md", operation, "new"));
        assert!(matches!(fault, Fault::UnknownOperation(name) if name == operation));
    }
}

#[test]
fn artifacts_do_not_stand_in_each_others_way() {
    let project = Project::new();
    let refused = |one: Artifact, other: Artifact| {
        let first = one.path.clone();
        match project.refuses(&[one, create("between.md"), other]) {
            (2, Fault::Clash { with }) if with == first => {}
            other => panic!("{other:?}"),
        }
    };
    refused(create("a.md"), create("a.md"));
    refused(create("a.md"), create("./a.md"));
    refused(create("a.md"), create("features/login/a.md"));
    refused(create("a.md"), update("a.md"));
    refused(update("old.md"), update("old.md"));
    refused(create("a"), create("a/b"));
    refused(create("a/b/c"), create("a"));
    // Names that only begin alike are other names.
    project.apply(&[create("a"), create("ab"), create("a.b/c"), create("a b")]).unwrap();
}

#[test]
fn links_are_not_followed() {
    let project = Project::new();
    symlink("../../../outside.md", project.feature("file.md")).unwrap();
    symlink("old.md", project.feature("inside.md")).unwrap();
    symlink("nowhere", project.feature("dangling.md")).unwrap();
    symlink("../..", project.feature("up")).unwrap();
    symlink("deep", project.feature("down")).unwrap();
    symlink("/etc", project.feature("etc")).unwrap();
    symlink("around", project.feature("around")).unwrap();
    for name in ["file.md", "inside.md", "dangling.md", "around", "etc"] {
        for artifact in [create(name), update(name)] {
            let (index, fault) = project.refuses(&[create("fine.md"), artifact]);
            assert!(index == 1 && matches!(&fault, Fault::Link { name: link } if link == name), "{fault}");
        }
    }
    for way in ["up/x.md", "up/README.md", "down/old.md", "down/new.md", "etc/x", "around/x", "dangling.md/x"]
    {
        for artifact in [create(way), update(way)] {
            assert!(matches!(project.refuses(&[artifact]), (0, Fault::Link { .. })), "{way}");
        }
    }
}

#[test]
fn other_names_of_a_file_keep_its_content() {
    let project = Project::new();
    let outside = project.folder.path().join("outside.md");
    fs::hard_link(&outside, project.feature("also.md")).unwrap();
    project.apply(&[update("also.md")]).unwrap();
    assert_eq!(
        (project.read("also.md"), fs::read_to_string(outside).unwrap()),
        ("new".into(), "outside".into())
    );
}

#[test]
fn an_update_keeps_the_permissions() {
    let project = Project::new();
    let writer = ArtifactWriter::new().allow_read_only_files(true);
    for mode in [0o755, 0o600, 0o444] {
        fs::set_permissions(project.feature("old.md"), PermissionsExt::from_mode(mode)).unwrap();
        project.apply_with(&writer, "features/login", &[update("old.md")]).unwrap();
        assert_eq!(fs::metadata(project.feature("old.md")).unwrap().mode() & 0o777, mode);
    }
}

#[test]
fn a_read_only_file_is_not_updated() {
    let project = Project::new();
    for mode in [0o444, 0o555, 0o400, 0o000] {
        fs::set_permissions(project.feature("old.md"), PermissionsExt::from_mode(mode)).unwrap();
        // The comparison of the files reads them.
        if rustix::process::geteuid().is_root() || mode & 0o400 != 0 {
            let (index, fault) = project.refuses(&[create("new.md"), update("old.md")]);
            assert!(index == 1 && matches!(fault, Fault::ReadOnly), "{fault}");
        }
    }
}

#[test]
fn version_control_is_out_of_reach() {
    let project = Project::new();
    let allow = ArtifactWriter::new().allow_version_control(true);
    let is_rejected =
        |fault: &Fault, folder: &str| matches!(fault, Fault::VersionControl { name } if name == folder);
    for (path, folder) in [
        (".git/hooks/pre-commit", ".git"),
        ("deep/.git/config", ".git"),
        (".GIT/config", ".GIT"),
        // A file of this name points to the real folder.
        ("sub/.git", ".git"),
        (".git. /config", ".git. "),
        (".git::$INDEX_ALLOCATION/config", ".git::$INDEX_ALLOCATION"),
        ("GIT~1/config", "GIT~1"),
        (".hg/hgrc", ".hg"),
        (".svn/x", ".svn"),
        (".jj/repo", ".jj"),
        ("_darcs/prefs", "_darcs"),
        ("cvs/Root", "cvs"),
        // HFS+ ignores these characters.
        (".g\u{200c}it/hooks/pre-commit", ".g\u{200c}it"),
        ("\u{200d}.git/config", "\u{200d}.git"),
        (".git\u{feff}\u{202e}/config", ".git\u{feff}\u{202e}"),
        (".gi\u{206f}t\u{200f}./config", ".gi\u{206f}t\u{200f}."),
    ] {
        let (index, fault) = project.refuses(&[create("fine.md"), create(path)]);
        assert!(index == 1 && is_rejected(&fault, folder), "{path}: {fault}");
        let other = Project::new();
        other.apply_with(&allow.clone().allow_unprintable_names(true), ".", &[create(path)]).unwrap();
        assert!(other.root().join(path).exists(), "{path}");
        // The two settings are independent.
        let unprintable = ArtifactWriter::new().allow_unprintable_names(true);
        other.apply_with(&unprintable, ".", &[create(&format!("other/{path}"))]).unwrap_err();
    }
    let root = project.apply_to(".git/hooks", &[create("pre-commit")]).unwrap_err();
    assert!(matches!(&root, ApplyError::FeatureRoot { fault, .. } if is_rejected(fault, ".git")), "{root}");
    project.apply(&[create(".gitignore"), create("git/a"), create("my.git/a"), create(".github/a")]).unwrap();
}

#[test]
fn names_are_printable() {
    let project = Project::new();
    let allow = ArtifactWriter::new().allow_unprintable_names(true);
    for odd in
        ['\n', '\r', '\t', '\u{1b}', '\u{7f}', '\u{85}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']
    {
        let path = format!("a{odd}b/c.md");
        let (index, fault) = project.refuses(&[create("fine.md"), create(&path)]);
        assert!(
            index == 1 && matches!(fault, Fault::Unprintable { character } if character == odd),
            "{fault}"
        );
        assert!(!fault.to_string().contains(odd), "{fault}");
        project.apply_with(&allow, "features/login", &[create(&path)]).unwrap();
    }
    project.apply(&[create("grüße.md"), create("\u{1f469}\u{200d}\u{1f4bb}.md"), create("a b.md")]).unwrap();
}

#[test]
fn a_file_with_special_bits_is_not_updated() {
    let project = Project::new();
    for special in [0o6755, 0o4755, 0o2755, 0o1644] {
        fs::set_permissions(project.feature("old.md"), PermissionsExt::from_mode(special)).unwrap();
        let (index, fault) = project.refuses(&[create("new.md"), update("old.md")]);
        assert!(index == 1 && matches!(fault, Fault::SpecialBits { mode } if mode == special), "{fault}");
    }
}

/// Returns false, and says so, where this process cannot give files away.
fn may_give_files_away(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        duologue_test_support::skipped(test, "only root can give a file to another user");
    }
    root
}

#[test]
fn a_file_of_another_user_is_not_updated() {
    if !may_give_files_away("a_file_of_another_user_is_not_updated") {
        return;
    }
    let project = Project::new();
    for mode in [0o644, 0o666, 0o6755] {
        chown(project.feature("old.md"), Some(65_534), Some(65_534)).unwrap();
        fs::set_permissions(project.feature("old.md"), PermissionsExt::from_mode(mode)).unwrap();
        let (index, fault) = project.refuses(&[create("new.md"), update("old.md")]);
        match fault {
            Fault::ForeignOwner { owner, ours } => assert_eq!((index, owner, ours), (1, 65_534, 0)),
            Fault::SpecialBits { .. } if mode == 0o6755 => {}
            other => panic!("{other}"),
        }
        assert_eq!(fs::metadata(project.feature("old.md")).unwrap().uid(), 65_534);
    }
}

/// Else the permissions of the old file's group would be those of this process's group.
#[test]
fn an_update_keeps_the_group() {
    if !may_give_files_away("an_update_keeps_the_group") {
        return;
    }
    let project = Project::new();
    chown(project.feature("old.md"), None, Some(65_534)).unwrap();
    fs::set_permissions(project.feature("old.md"), PermissionsExt::from_mode(0o660)).unwrap();
    project.apply(&[update("old.md")]).unwrap();
    let metadata = fs::metadata(project.feature("old.md")).unwrap();
    assert_eq!((metadata.gid(), metadata.mode() & 0o7777), (65_534, 0o660));
    assert_eq!(project.read("old.md"), "new");
}

#[test]
fn errors_say_what_to_do() {
    let project = Project::new();
    let says = |artifact: Artifact| project.apply(&[artifact]).unwrap_err().to_string();
    assert_eq!(says(create("old.md")), r#"artifact "old.md" is to be created but exists; update it instead"#);
    assert_eq!(says(create("../x")), r#"artifact "../x" leads up by `..`; name the place itself"#);
    assert_eq!(
        project.apply_to("/x", &[create("a")]).unwrap_err().to_string(),
        r#"feature_root "/x" is absolute; begin at the root of the project or of the feature"#
    );
}

/// Whatever is exchanged for a link meanwhile, nothing outside changes, and what is refused leaves nothing.
#[test]
fn links_that_come_and_go() {
    let project = Project::new();
    let outside = project.folder.path().join("elsewhere");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("old.md"), "outside").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let racer = std::thread::spawn({
        let (folder, parked, file) =
            (project.feature("deep"), project.feature("parked"), project.feature("old.md"));
        let (stop, target) = (stop.clone(), outside.clone());
        let mut turns = [0, 100, 1000, 3000, 20_000].into_iter().cycle();
        move || {
            while !stop.load(Ordering::SeqCst) {
                fs::rename(&folder, &parked).unwrap();
                symlink(&target, &folder).unwrap();
                fs::remove_file(&folder).unwrap();
                fs::rename(&parked, &folder).unwrap();
                let beside = file.with_extension("beside");
                symlink(target.join("old.md"), &beside).unwrap();
                fs::rename(&beside, &file).unwrap();
                fs::write(&beside, "old").unwrap();
                fs::rename(&beside, &file).unwrap();
                // Long enough for some to get through.
                std::thread::sleep(Duration::from_micros(turns.next().unwrap()));
            }
        }
    });
    let (mut written, mut refused) = (0, 0);
    // On a busy machine it takes longer until one gets through.
    while written + refused < 2000 || (written.min(refused) == 0 && written + refused < 100_000) {
        match project.apply(&[update("deep/old.md"), update("old.md"), create("other.md")]) {
            Ok(_) => {
                written += 1;
                fs::remove_file(project.feature("other.md")).unwrap();
            }
            Err(_) => refused += 1,
        }
        assert!(!project.feature("other.md").exists());
    }
    stop.store(true, Ordering::SeqCst);
    racer.join().unwrap();
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused");
    assert_eq!(fs::read_to_string(outside.join("old.md")).unwrap(), "outside");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!project.tree().keys().any(|path| path.to_string_lossy().contains(".duologue-")));
}

fn some_artifact() -> impl Strategy<Value = Artifact> {
    let part = proptest::sample::select(vec![
        "a", "b", "old.md", "deep", "link", "features", "login", ".", "", "..", "é",
    ]);
    let operation = prop_oneof![4 => Just("create"), 4 => Just("update"), 1 => Just("delete")];
    (proptest::collection::vec(part, 1..4), operation, "[a-z]{0,3}")
        .prop_map(|(parts, operation, content)| Artifact::new(parts.join("/"), operation, content))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Either every artifact is where it belongs and nothing else has changed, or nothing has.
    #[test]
    fn all_or_nothing(artifacts in proptest::collection::vec(some_artifact(), 1..5)) {
        let project = Project::new();
        symlink("../../README.md", project.feature("link")).unwrap();
        let before = project.tree();
        match project.apply(&artifacts) {
            Err(_) => prop_assert_eq!(project.tree(), before),
            Ok(written) => {
                let mut after = project.tree();
                let feature = project.root().join("features/login");
                for (path, artifact) in written.iter().zip(&artifacts) {
                    let path = project.root().join(path);
                    prop_assert!(path.starts_with(&feature) && path != feature);
                    let (_, content) = after.remove(&path).expect("written");
                    prop_assert_eq!(content, artifact.content.as_bytes());
                    prop_assert_eq!(before.contains_key(&path), artifact.operation.as_str() == "update");
                }
                for (path, what) in &after {
                    let made = written.iter().any(|file| project.root().join(file).starts_with(path));
                    prop_assert!(before.get(path) == Some(what) || (made && path.starts_with(&feature)));
                }
                for path in before.keys() {
                    prop_assert!(path.symlink_metadata().is_ok());
                }
            }
        }
    }
}
