//! The files of `LocalHost`: whatever a path looks like, it stays in the root.

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Once};

use duologue_client::{Host, HostContext, LocalHost};
use duologue_schema::{ReadTextFileRequest, SessionId, WriteTextFileRequest};

/// The content of every file inside, and of no other file.
const INSIDE: &str = "a file inside of the root";
const OUTSIDE: &str = "a file outside of the root";

/// A folder with a root in it and what is not in the root, and links from here to there.
struct Ground {
    base: PathBuf,
    root: PathBuf,
    host: LocalHost,
    context: HostContext,
    runtime: tokio::runtime::Runtime,
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| prepared().expect("a folder to play in"));

fn prepared() -> std::io::Result<Ground> {
    // Each write is brought to its disk, so it is best none.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    let folder = memory.unwrap_or_else(std::env::temp_dir);
    // The folder stays, for the analysis of a crash.
    let base = tempfile::Builder::new().prefix("duologue-fuzz-").tempdir_in(folder)?.keep().canonicalize()?;
    let root = base.join("root");
    for folder in ["root/d/e", "outside/d"] {
        std::fs::create_dir_all(base.join(folder))?;
    }
    for (file, text) in
        [("root/a", INSIDE), ("root/d/a", INSIDE), ("outside/a", OUTSIDE), ("outside/d/a", OUTSIDE)]
    {
        std::fs::write(base.join(file), text)?;
    }
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, root.join(name));
    link("..".as_ref(), "up")?;
    link("../outside".as_ref(), "out")?;
    link("../outside/a".as_ref(), "file")?;
    link("../outside/new".as_ref(), "new")?;
    link(&base.join("outside"), "far")?;
    link("d".as_ref(), "in")?;
    link(&root.join("d"), "here")?;
    link("loop".as_ref(), "loop")?;
    link("d/../../outside".as_ref(), "around")?;
    link("../../up".as_ref(), "d/e/up")?;
    let host = LocalHost::new(&root);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let context = {
        let _guard = runtime.enter();
        HostContext::detached()
    };
    host.session_started(&context, &SessionId::from("s"), std::slice::from_ref(&root));
    Ok(Ground { base, root, host, context, runtime })
}

/// A way to spell a path: each byte below 32 is a part, everything else stands for itself.
fn path(input: &[u8]) -> PathBuf {
    let parts: [&str; 16] = [
        "/", "..", "/../", "/./", "//", "a", "d", "e", "up", "out", "file", "new", "far", "in", "around",
        "loop",
    ];
    let (base, root) = (GROUND.base.to_string_lossy(), GROUND.root.to_string_lossy());
    let mut path = Vec::new();
    for byte in input {
        match usize::from(*byte) {
            part @ 0..16 => path.extend_from_slice(parts[part].as_bytes()),
            16 => path.extend_from_slice(root.as_bytes()),
            17 => path.extend_from_slice(base.as_bytes()),
            18 => path.extend_from_slice(b"here"),
            19 => path.extend_from_slice(b"/proc/self/root"),
            20 => path.extend_from_slice(b"/proc/self/cwd"),
            21 => path.extend_from_slice(b"\0"),
            _ => path.push(*byte),
        }
    }
    String::from_utf8_lossy(&path).into_owned().into()
}

/// A path, behind the root unless the first byte is odd.
pub fn check(input: &[u8]) {
    static REPORT: Once = Once::new();
    REPORT.call_once(|| {
        // A host that refuses everything would pass everything below.
        let request = ReadTextFileRequest::new("s", GROUND.root.join("a"));
        let read = GROUND.runtime.block_on(GROUND.host.read_text_file(&GROUND.context, request));
        assert_eq!(read.map(|read| read.content), Ok(INSIDE.to_owned()));
    });
    let Some((first, rest)) = input.split_first() else { return };
    let rest = path(rest);
    let path =
        if first % 2 == 1 { rest } else { format!("{}/{}", GROUND.root.display(), rest.display()).into() };

    let read = GROUND
        .runtime
        .block_on(GROUND.host.read_text_file(&GROUND.context, ReadTextFileRequest::new("s", &path)));
    if let Ok(read) = read {
        assert_eq!(read.content, INSIDE, "{} was read", path.display());
    }
    // A resolver that is broken must not break the machine it is tried on.
    let near = path.parent().and_then(|parent| parent.canonicalize().ok());
    if near.is_some_and(|near| near.starts_with(&GROUND.base)) {
        let write = WriteTextFileRequest::new("s", &path, INSIDE);
        if GROUND.runtime.block_on(GROUND.host.write_text_file(&GROUND.context, write)).is_ok() {
            let written = path.canonicalize().expect("what was written is there");
            assert!(written.starts_with(&GROUND.root), "{} was written", path.display());
            assert_eq!(std::fs::read_to_string(&written).ok().as_deref(), Some(INSIDE));
            tidy(&written);
        }
    }
    for file in ["outside/a", "outside/d/a"] {
        assert_eq!(std::fs::read_to_string(GROUND.base.join(file)).ok().as_deref(), Some(OUTSIDE));
    }
    assert!(!GROUND.base.join("outside/new").exists(), "a file was made outside");
}

/// Takes new files away, so that every input finds the same.
fn tidy(written: &Path) {
    let kept = ["a", "d/a"].map(|file| GROUND.root.join(file));
    if !kept.iter().any(|file| file == written) {
        let _ = std::fs::remove_file(written);
        let folders = written.ancestors().skip(1).take_while(|folder| **folder != GROUND.root);
        for folder in folders {
            // One that holds something stays.
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}
