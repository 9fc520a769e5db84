//! Links that come and go under an agent's hands.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::desk::{Agent, Desk, SECRET, outcome};
use duologue_test_support::{measured, runs};

/// So many requests are on their way together.
const AT_ONCE: usize = 64;

/// Does something to the files again and again, as fast as it can, until it is dropped.
struct Racer {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Racer {
    fn of(turn: impl Fn() + Send + 'static) -> Self {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (stop, turns) = (stop.clone(), turns.clone());
            move || {
                while !stop.load(SeqCst) {
                    turn();
                    turns.fetch_add(1, SeqCst);
                }
            }
        });
        Racer { stop, turns, thread: Some(thread) }
    }
}

/// Exchanges two names.
fn exchange(left: &Path, right: &Path) {
    renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE).expect("exchanged");
}

/// Makes `path` a link, and then a file, by way of the name `other`.
fn replace(path: &Path, other: &Path, target: &Path) {
    symlink(target, other).expect("a link");
    std::fs::rename(other, path).expect("renamed");
    std::fs::write(other, "inside").expect("a file");
    std::fs::rename(other, path).expect("renamed");
}

impl Drop for Racer {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the racer");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_exchange_of_folders_and_links_lets_anything_out() {
    let rounds = runs(500);
    let desk = Desk::new();
    // Files outside have the same names as files inside.
    for name in ["file.txt", "dir/file.txt"] {
        std::fs::write(desk.path("outside").join(name), SECRET).expect("a file");
    }
    // A folder against a link, the middle of a way against a link, a file against a link.
    std::fs::create_dir_all(desk.at("swap/dir")).expect("a folder");
    std::fs::create_dir_all(desk.at("way/middle/dir")).expect("a folder");
    for way in ["swap", "swap/dir", "way/middle", "way/middle/dir"] {
        desk.put(&format!("{way}/file.txt"), "inside");
    }
    desk.put("one.txt", "inside");
    desk.put("two.txt", "inside");
    desk.link("swap-link", "../outside");
    desk.link("way/middle-link", desk.path("outside"));
    desk.link("one-link.txt", "../outside/secret.txt");
    let before = desk.outside();
    let mut agent = Agent::of(desk.host(), desk.root()).await;
    // One thread for all of them leaves the requests a core.
    let racer = Racer::of({
        let pairs = [("swap", "swap-link"), ("way/middle", "way/middle-link"), ("one.txt", "one-link.txt")];
        let pairs = pairs.map(|(left, right)| (desk.at(left), desk.at(right)));
        let (two, other) = (desk.at("two.txt"), desk.at("two-other.txt"));
        let secret = desk.path("outside/secret.txt");
        move || {
            for (left, right) in &pairs {
                exchange(left, right);
            }
            replace(&two, &other, &secret);
        }
    });
    let both = [
        "swap/file.txt",
        "swap/dir/file.txt",
        "swap/new/new.txt",
        "way/middle/dir/../file.txt",
        "way/middle/new.txt",
        "two.txt",
    ];
    let requests: Vec<(&str, PathBuf)> = both
        .iter()
        .flat_map(|way| ["fs/read_text_file", "fs/write_text_file"].map(|method| (method, desk.at(way))))
        // A write would end this one, as it takes the place of the link.
        .chain([("fs/read_text_file", desk.at("one.txt"))])
        .collect();
    let (mut inside, mut refused) = ([0, 0], 0);
    let mut left = rounds;
    while left > 0 {
        let batch: Vec<_> = requests.iter().cycle().take(AT_ONCE.min(left as usize)).collect();
        left -= batch.len() as u64;
        for (method, path) in &batch {
            agent
                .script
                .send_request(method, json!({"sessionId": "s0", "path": path, "content": "inside"}))
                .await;
        }
        for _ in &batch {
            match outcome(&mut agent.script.next_message().await) {
                Ok(result) => {
                    let read = result["content"].as_str();
                    inside[usize::from(read.is_none())] += 1;
                    // Written in place, a file may be seen without its text.
                    assert!(["inside", ""].contains(&read.unwrap_or_default()), "{read:?}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.message.contains(SECRET), "{error:?}");
                }
            }
        }
    }
    let turns = racer.turns.load(SeqCst);
    drop(racer);
    assert!(desk.outside() == before, "something outside was changed");
    // Both happened, so there was something to win.
    let [read, written] = inside;
    assert!(read > 0 && written > 0 && refused > 0 && turns > rounds / 100, "{inside:?} {refused} {turns}");
    assert_eq!(left_behind(&desk.root()), Vec::<PathBuf>::new());
    measured(format_args!(
        "0 escapes in {rounds} requests ({read} read, {written} written, {refused} refused) and {} swaps",
        5 * turns
    ));
}

/// Files that should have got another name.
fn left_behind(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let (folders, files): (Vec<_>, Vec<_>) =
        entries.partition(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut left: Vec<_> = files.iter().map(std::fs::DirEntry::path).collect();
    left.retain(|path| path.extension().is_some_and(|extension| extension == "tmp"));
    left.extend(folders.iter().flat_map(|folder| left_behind(&folder.path())));
    left
}
