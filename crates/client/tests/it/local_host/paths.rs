//! Ways out of the project, each tried for reading, for writing and as the folder of a program.

use std::os::unix::net::UnixListener;

use rustix::fs::{FileType, Mode};
use serde_json::json;

use super::desk::{Agent, Desk, INVALID, SECRET};
use duologue_test_support::{Reproduction, in_time, measured, runs, seed};

/// Names for the folder `outside` or others that are not the project. `@` is the project, `^` the
/// folder around it.
const FOLDERS: [&str; 52] = [
    "^/outside",
    "^//outside",
    "/.^/outside",
    "/^/outside",
    "^/./outside",
    "^/projec",
    "^/project-sibling",
    "@-sibling",
    "^",
    "^/project/..",
    "@/..",
    "@/../outside",
    "@/./../outside",
    "@//..//outside",
    "@/.././outside",
    "@/../project-sibling",
    "@/../project/../outside",
    "@/../project/dir/../../outside",
    "@/dir/../../outside",
    "@/dir/../dir/../../outside",
    "@/dir/../../project/../outside",
    "@/empty/../../outside",
    "@/missing/../../outside",
    "@/file.txt/../../outside",
    "@/../../../../../../../../..^/outside",
    "@/out",
    "@/./out",
    "@/out/.",
    "@/out/../outside",
    "@/out/dir/..",
    "@/out-absolute",
    "@/chain",
    "@/chain-absolute",
    "@/dir/back",
    "@/inner/back",
    "@/inner/../../outside",
    "@/dir/back/../outside",
    "@/up",
    "@/up/outside",
    "@/up/project/../outside",
    "@/up/project/up/outside",
    "@/slash^/outside",
    "@/slash/proc/self/root^/outside",
    "@/self^/outside",
    "@/self/../root^/outside",
    "@/here/../../../../../../../../..^/outside",
    "/proc/self/root^/outside",
    "/proc/thread-self/root^/outside",
    "/proc/self/cwd/../../../../../../../..^/outside",
    "/proc/self/fd/../root^/outside",
    "/dev/fd/../root^/outside",
    "/../../..^/outside",
];

/// Names of files, there and not there, behind each of these.
const FILES: [&str; 8] = [
    "/secret.txt",
    "//secret.txt",
    "/./secret.txt",
    "/dir/secret.txt",
    "/dir/../secret.txt",
    "/new.txt",
    "/new/deep/new.txt",
    "",
];

/// More that is no file of the project.
const SINGLE: [&str; 44] = [
    "@/out-file",
    "@/out-file-absolute",
    "@/chain-file",
    "@/new-out",
    "@/new-out-absolute",
    "@/dir/new-out",
    "@/loop",
    "@/loop/x",
    "@/ping",
    "@",
    "@/",
    "@/.",
    "@/dir",
    "@/dir/",
    "@/dir/..",
    "@/file.txt/",
    "@/file.txt/.",
    "@/file.txt/x",
    "@/new.txt/",
    "@/fifo",
    "@/fifo-link",
    "@/socket",
    "@/zero",
    "@/tty",
    "@/environ",
    "@/memory",
    "@/stdin",
    "@/fd/0",
    "@/fd/2",
    "@/here",
    "/",
    "/dev/zero",
    "/dev/tty",
    "/dev/stdin",
    "/dev/shm/new.txt",
    "/proc/self/environ",
    "/proc/self/mem",
    "/proc/self/fd/0",
    "/etc/passwd",
    "/etc/shadow",
    "/root/.ssh/authorized_keys",
    "@\0",
    "@/file.txt\0",
    "@/\0/../../outside/secret.txt",
];

/// Paths that are not absolute.
const RELATIVE: [&str; 12] = [
    "",
    ".",
    "..",
    "file.txt",
    "./file.txt",
    "../outside/secret.txt",
    "~/secret.txt",
    "file://^/outside/secret.txt",
    "\\^\\outside",
    "C:\\secret.txt",
    " ^/outside/secret.txt",
    "\0/etc/passwd",
];

/// Looks like a way out and is a plain name: whatever comes of it stays inside.
const LITERAL: [&str; 12] = [
    "@/%2e%2e/outside/secret.txt",
    "@/..%2foutside",
    "@/%00",
    "@/..\\outside\\secret.txt",
    "@/.../outside/secret.txt",
    "@/.. /outside/secret.txt",
    "@/ ../outside/secret.txt",
    "@/\u{2024}\u{2024}/outside/secret.txt",
    "@/\u{ff0e}\u{ff0e}/outside/secret.txt",
    "@/\u{2215}etc\u{2215}passwd",
    "@/~/secret.txt",
    "@/$HOME/`id`/;id\n",
];

fn desk() -> Desk {
    let desk = Desk::new();
    for (name, target) in [
        ("out", "../outside"),
        ("out-file", "../outside/secret.txt"),
        ("new-out", "../outside/new.txt"),
        ("dir/new-out", "../../outside/new.txt"),
        ("chain", "chain-2"),
        ("chain-2", "dir/../chain-3"),
        ("chain-3", "out"),
        ("chain-file", "chain/secret.txt"),
        ("dir/back", "../out"),
        ("inner", "dir"),
        ("up", ".."),
        ("loop", "loop"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("slash", "/"),
        ("self", "/proc/self/root"),
        ("here", "/proc/self/cwd"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("zero", "/dev/zero"),
        ("tty", "/dev/tty"),
        ("environ", "/proc/self/environ"),
        ("memory", "/proc/self/mem"),
        ("fifo-link", "fifo"),
    ] {
        desk.link(name, target);
    }
    desk.link("out-absolute", desk.path("outside"));
    desk.link("out-file-absolute", desk.path("outside/secret.txt"));
    desk.link("new-out-absolute", desk.path("outside/new.txt"));
    desk.link("chain-absolute", desk.at("out"));
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, desk.at("fifo"), FileType::Fifo, mode, 0).expect("a pipe");
    UnixListener::bind(desk.at("socket")).expect("a socket");
    desk
}

/// Everything of the tables, spelled out.
fn attacks(desk: &Desk) -> Vec<String> {
    let (root, top) = (desk.root().display().to_string(), desk.path("").display().to_string());
    let top = top.trim_end_matches('/');
    let behind = FOLDERS.iter().flat_map(|folder| FILES.iter().map(move |file| format!("{folder}{file}")));
    let single = SINGLE.iter().chain(&RELATIVE).map(|path| (*path).to_owned());
    let long = ["@/", "@/../", "@/out/"].map(|start| format!("{start}{}", "n".repeat(300)));
    let deep = [format!("@{}", "/dir/..".repeat(400)), format!("@/{}", "../".repeat(1000))];
    let endless = [format!("@/{}", "d/".repeat(2500))];
    let attacks = behind.chain(single).chain(long).chain(deep).chain(endless);
    let attacks = attacks.map(|path| path.replace('@', &root).replace('^', top));
    // Another case is another name.
    attacks.chain([format!("{}/file.txt", root.to_uppercase())]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out_of_the_project() {
    in_time(async {
        let desk = desk();
        let before = desk.outside();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let attacks = attacks(&desk);
        assert!(attacks.len() > 450, "{}", attacks.len());
        for path in &attacks {
            let read = agent.read(path).await;
            assert!(read.is_err(), "read {path}: {read:?}");
            let written = agent.write(path, "changed").await;
            assert!(written.is_err(), "wrote {path}");
            for refused in [read.expect_err("above"), written.expect_err("above")] {
                assert!(
                    !refused.message.contains(SECRET) && !refused.message.contains("root:"),
                    "{refused:?}"
                );
                // Nothing of the other side shows, not even that it is there.
                assert!(!refused.message.contains("duologue-"), "{refused:?}");
            }
            let params = json!({"command": "cat", "args": ["secret.txt"], "cwd": path});
            let inside = ["", "/", "/.", "/dir", "/dir/", "/dir/..", &"/dir/..".repeat(400)]
                .iter()
                .any(|way| *path == format!("{}{way}", desk.root().display()));
            let started = agent.ask("terminal/create", params).await;
            assert_eq!(started.is_ok(), inside, "a program in {path}: {started:?}");
        }
        assert!(desk.outside() == before, "something outside was changed");
        // And it still works.
        assert_eq!(agent.read(desk.at("file.txt")).await.as_deref(), Ok("inside"));
        measured(format_args!(
            "0 escapes by {} paths, each read, written and as a program's folder",
            attacks.len()
        ));
    })
    .await;
}

/// Parts of paths: ways back and nowhere, names on both sides, and every kind of link.
const PARTS: [&str; 36] = [
    "..",
    "..",
    "..",
    ".",
    "",
    "dir",
    "empty",
    "missing",
    "file.txt",
    "inner.txt",
    "secret.txt",
    "out",
    "out-file",
    "out-absolute",
    "out-file-absolute",
    "new-out",
    "chain",
    "chain-file",
    "chain-absolute",
    "back",
    "inner",
    "up",
    "slash",
    "self",
    "here",
    "fd",
    "loop",
    "ping",
    "outside",
    "project",
    "project-sibling",
    "projec",
    "PROJECT",
    "fifo",
    "zero",
    "...",
];

/// Beginnings of paths.
const STARTS: [&str; 8] =
    ["@", "@", "@", "^", "@-sibling", "/proc/self/root@", "/proc/thread-self/root^", "/proc/self/cwd/../.."];

/// The system resolves each path, and no path that it resolves to the outside is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn no_path_of_any_parts_leads_out_of_the_project() {
    let (seed, count) = (seed(), runs(1_500));
    let desk = desk();
    let before = desk.outside();
    let (root, top) = (desk.root().display().to_string(), desk.path("").display().to_string());
    let real = desk.root().canonicalize().expect("the project");
    let is_inside =
        |path: &str| std::fs::canonicalize(path).is_ok_and(|end| end.starts_with(&real) && end.is_file());
    let mut agent = Agent::of(desk.host(), desk.root()).await;
    let mut random = fastrand::Rng::with_seed(seed);
    let test =
        "-p duologue-client --test it local_host::paths::no_path_of_any_parts_leads_out_of_the_project";
    let mut reproduction = Reproduction::of(test, seed, count);
    let mut passed = 0;
    for number in 1..=count {
        let start = STARTS[random.usize(..STARTS.len())];
        let parts: String =
            (0..random.usize(1..8)).map(|_| format!("/{}", PARTS[random.usize(..PARTS.len())])).collect();
        let path = format!("{start}{parts}").replace('@', &root).replace('^', top.trim_end_matches('/'));
        reproduction.runs = number;
        if random.bool() {
            // Only then: a pipe or a device would keep us for ever.
            let there = is_inside(&path).then(|| std::fs::read_to_string(&path).expect("a text"));
            if let Ok(text) = agent.read(&path).await {
                assert!(there.as_ref() == Some(&text) && text != SECRET, "{path}: {text}");
                passed += 1;
            }
        } else if agent.write(&path, "written").await.is_ok() {
            assert!(is_inside(&path), "{path}");
            passed += 1;
        }
    }
    assert!(desk.outside() == before, "something outside was changed");
    assert!(passed > count / 500, "only {passed} of {count} lead to a file");
    measured(format_args!(
        "0 escapes by {count} paths put together at random, {passed} of them to a file inside"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_and_missing_files_get_the_same_error() {
    in_time(async {
        let desk = desk();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        for folder in FOLDERS {
            let folder = folder
                .replace('@', desk.root().to_str().expect("text"))
                .replace('^', desk.path("").to_str().expect("text"));
            for method in ["fs/read_text_file", "fs/write_text_file"] {
                let mut said = Vec::new();
                for name in ["secret.txt", "missing", "dir", "missing/deep"] {
                    let path = format!("{folder}/{name}");
                    let params = json!({"path": path, "content": ""});
                    let refused = agent.ask(method, params).await.expect_err("refused");
                    said.push((refused.code, refused.message.replace(&path, "")));
                }
                said.dedup();
                assert_eq!(said.len(), 1, "{method} {folder}: {said:?}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_a_way_out_are_names() {
    in_time(async {
        let desk = desk();
        let before = desk.outside();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        for path in LITERAL {
            let path = path.replace('@', desk.root().to_str().expect("text"));
            assert!(agent.read(&path).await.is_err(), "{path}");
            agent.write(&path, "a file of its own").await.expect("written");
            assert_eq!(agent.read(&path).await.as_deref(), Ok("a file of its own"));
        }
        assert!(desk.outside() == before, "something outside was changed");
        // JSON can spell what is no text at all.
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file",
            "params": {"sessionId": "s0", "path": "/tmp/HERE"}});
        for bad in [r"\ud800", r"\udfff", r"\ud800\ud800"] {
            agent.script.send(line.to_string().replace("HERE", bad)).await;
            assert!(agent.script.next_message().await["error"]["code"].is_number());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_dots_that_stay_inside_are_followed() {
    in_time(async {
        let desk = desk();
        desk.link("file", "file.txt");
        desk.link("file-absolute", desk.at("file.txt"));
        desk.link("dir-absolute", desk.at("dir"));
        desk.link("dir/up", "..");
        desk.link("new", "dir/new.txt");
        desk.link("new-absolute", desk.at("dir/new-2.txt"));
        std::fs::hard_link(desk.path("outside/secret.txt"), desk.at("hard")).expect("a hard link");
        std::os::unix::fs::symlink(desk.root(), desk.path("alias")).expect("a link");
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        for (way, text) in [
            ("file.txt", "inside"),
            ("./file.txt", "inside"),
            ("/file.txt", "inside"),
            ("dir/../file.txt", "inside"),
            ("../project/file.txt", "inside"),
            ("up/project/file.txt", "inside"),
            ("slash/proc/self/root/../file.txt", ""),
            ("file", "inside"),
            ("file-absolute", "inside"),
            ("inner/inner.txt", "inner"),
            ("dir-absolute/inner.txt", "inner"),
            ("dir-absolute/up/dir/up/file", "inside"),
            // A hard link is the file's name as much as the first: no check can distinguish them.
            ("hard", SECRET),
        ] {
            let read = agent.read(format!("{}/{way}", desk.root().display())).await;
            match text {
                "" => assert!(read.is_err(), "{way}"),
                text => assert_eq!(read.as_deref(), Ok(text), "{way}"),
            }
        }
        for way in ["dir-absolute/x.txt", "inner/y.txt", "../project/dir/z.txt", "new", "file-absolute"] {
            agent.write(format!("{}/{way}", desk.root().display()), way).await.expect(way);
        }
        for (way, text) in [("x.txt", "dir-absolute/x.txt"), ("y.txt", "inner/y.txt"), ("new.txt", "new")] {
            assert_eq!(desk.get(&format!("dir/{way}")), text);
        }
        assert_eq!(desk.get("file.txt"), "file-absolute");
        // Links stay links.
        for way in ["new", "file-absolute"] {
            assert!(desk.at(way).is_symlink(), "{way}");
        }
        // A link to nothing tells its end to nobody.
        let refused = agent.write(desk.at("new-absolute"), "x").await.expect_err("refused");
        refused.says(INVALID, "is outside of the session's folders");
        // A root behind a link goes by both names, and by the name the session has for it.
        for (root, cwd) in [("alias", "alias"), ("alias", "project"), ("project", "alias")] {
            let host = duologue_client::LocalHost::new(desk.path(root));
            let mut agent = Agent::of(host, desk.path(cwd)).await;
            for name in [root, cwd, "project"] {
                let path = desk.path(name).join("dir/inner.txt");
                assert_eq!(agent.read(&path).await.as_deref(), Ok("inner"), "{root} {cwd} {name}");
            }
        }
    })
    .await;
}
