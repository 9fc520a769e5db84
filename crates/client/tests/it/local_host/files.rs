//! Reading and writing of files.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use duologue_client::LocalHost;
use duologue_client::schema::ReadTextFileRequest;
use rustix::fs::{FileType, Mode};
use serde_json::json;

use super::desk::{Agent, Desk, INTERNAL, INVALID, NOT_FOUND, Refused};
use duologue_test_support::in_time;

const MIB: usize = 1024 * 1024;

async fn lines(
    agent: &mut Agent,
    path: &std::path::Path,
    line: Option<u32>,
    limit: Option<u32>,
) -> Result<String, Refused> {
    let answer = agent.ask("fs/read_text_file", json!({"path": path, "line": line, "limit": limit})).await?;
    Ok(answer["content"].as_str().expect("a text").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_counted_from_one_and_kept_as_they_are() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let path = desk.at("file.txt");
        for (text, line, limit, expect) in [
            ("a\nb\nc\n", None, None, "a\nb\nc\n"),
            ("a\nb\nc\n", Some(0), None, "a\nb\nc\n"),
            ("a\nb\nc\n", Some(1), None, "a\nb\nc\n"),
            ("a\nb\nc\n", Some(2), None, "b\nc\n"),
            ("a\nb\nc\n", Some(2), Some(1), "b\n"),
            ("a\nb\nc\n", None, Some(2), "a\nb\n"),
            ("a\nb\nc\n", Some(3), Some(9), "c\n"),
            ("a\nb\nc\n", Some(4), None, ""),
            ("a\nb\nc\n", Some(u32::MAX), Some(u32::MAX), ""),
            ("a\nb\nc\n", Some(2), Some(0), ""),
            ("a\nb\nc", Some(3), None, "c"),
            ("a\nb\nc", Some(3), Some(1), "c"),
            ("a\r\nb\r\n", Some(2), Some(1), "b\r\n"),
            ("a\rb", Some(1), Some(1), "a\rb"),
            ("\n\n\n", Some(2), Some(1), "\n"),
            ("\u{feff}a\n", None, None, "\u{feff}a\n"),
            ("é€\u{1d11e}\0\u{1b}\nz", Some(1), Some(1), "é€\u{1d11e}\0\u{1b}\n"),
            ("", None, None, ""),
            ("", Some(1), Some(1), ""),
        ] {
            desk.put("file.txt", text);
            let read = lines(&mut agent, &path, line, limit).await;
            assert_eq!(read.as_deref(), Ok(expect), "{text:?} {line:?} {limit:?}");
            // An editor's own buffers are cut the same way.
            let mut request = ReadTextFileRequest::new("s0", &path);
            (request.line, request.limit) = (line, limit);
            assert_eq!(request.lines_of(text), expect, "{text:?} {line:?} {limit:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_file_is_an_error_with_a_reason() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host().max_read(100), desk.root()).await;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, desk.at("fifo"), FileType::Fifo, mode, 0).expect("a pipe");
        std::os::unix::net::UnixListener::bind(desk.at("socket")).expect("a socket");
        desk.put("latin.txt", b"first\nsecond caf\xe9\nthird\n");
        desk.put("large.txt", "0123456789\n".repeat(10));
        for (way, code, part) in [
            ("missing.txt", NOT_FOUND, "txt does not exist"),
            ("missing/deep.txt", NOT_FOUND, "txt does not exist"),
            ("file.txt/deep.txt", NOT_FOUND, "is not a folder"),
            ("dir", INVALID, "is a folder"),
            ("fifo", INVALID, "a pipe, a socket or a device"),
            ("socket", INVALID, "a pipe, a socket or a device"),
            ("latin.txt", INVALID, "is not UTF-8 text"),
            ("large.txt", INVALID, "has 110 bytes; at most 100 are read at once (max_read)"),
        ] {
            agent.read(desk.at(way)).await.expect_err(way).says(code, part);
        }
        // The lines that are fine can be had.
        let (latin, large) = (desk.at("latin.txt"), desk.at("large.txt"));
        assert_eq!(lines(&mut agent, &latin, None, Some(1)).await.as_deref(), Ok("first\n"));
        assert_eq!(lines(&mut agent, &latin, Some(3), None).await.as_deref(), Ok("third\n"));
        lines(&mut agent, &latin, Some(2), Some(1)).await.expect_err("refused").says(INVALID, "UTF-8");
        assert_eq!(lines(&mut agent, &large, Some(2), None).await.map(|text| text.len()), Ok(99));
        assert_eq!(lines(&mut agent, &large, None, Some(9)).await.map(|text| text.len()), Ok(99));
        let refused = lines(&mut agent, &large, None, Some(10)).await.expect_err("refused");
        refused.says(INVALID, "has more in these lines; at most 100 are read at once");
        for way in ["dir", "fifo", "socket"] {
            agent.write(desk.at(way), "").await.expect_err(way).says(INVALID, "is ");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_file_costs_its_answer_only() {
    in_time(async {
        let desk = Desk::new();
        // Without a limit on the scan, a busy machine cannot reach it before the cancellation.
        let mut agent = Agent::of(desk.host().max_scan(u64::MAX), desk.root()).await;
        let path = desk.at("huge");
        std::fs::write(&path, "first\nsecond\n").expect("a file");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("a file");
        file.set_len(1 << 40).expect("a hole");
        agent.read(&path).await.expect_err("refused").says(INVALID, "has 1099511627776 bytes");
        assert_eq!(lines(&mut agent, &path, Some(2), Some(1)).await.as_deref(), Ok("second\n"));
        lines(&mut agent, &path, Some(2), Some(2))
            .await
            .expect_err("refused")
            .says(INVALID, "ask for fewer lines");
        // A line that never comes is looked for as long as it is wanted. The end of this test waits for
        // all threads that go on.
        let params = json!({"sessionId": "s0", "path": path, "line": 4});
        let id = agent.script.send_request("fs/read_text_file", params).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        agent.script.notify("$/cancel_request", json!({"requestId": id})).await;
        assert_eq!(agent.script.next_message().await["error"]["code"], -32800);
        // Escaped, this does not fit a message. The connection does not mind.
        desk.put("bells", "\u{7}".repeat(4 * MIB));
        agent.read(desk.at("bells")).await.expect_err("refused").says(INTERNAL, "response too long (25");
        desk.put("large", "x".repeat(8 * MIB));
        assert_eq!(agent.read(desk.at("large")).await.map(|text| text.len()), Ok(8 * MIB));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_makes_what_is_missing_and_keeps_what_is_there() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        for way in ["new.txt", "dir/new.txt", "some/new/folders/new.txt", "dir/../other.txt"] {
            agent.write(desk.at(way), "new\r\n\0é").await.expect(way);
            assert_eq!(desk.get(way), "new\r\n\0é");
        }
        // A rejected write leaves nothing behind.
        for way in ["made/up/x/", "made/up/x/.", "made/up/.."] {
            let refused = agent.write(format!("{}/{way}", desk.root().display()), "").await;
            refused.expect_err("refused").says(INVALID, "folder");
            assert!(!desk.at("made").exists());
        }
        let umask = std::fs::metadata(desk.at("file.txt")).expect("a file").mode();
        assert_eq!(std::fs::metadata(desk.at("new.txt")).expect("a file").mode(), umask);
        // Permissions stay.
        for mode in [0o755, 0o600, 0o640] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(desk.at("file.txt"), permissions).expect("set");
            agent.write(desk.at("file.txt"), "changed").await.expect("written");
            assert_eq!(std::fs::metadata(desk.at("file.txt")).expect("a file").mode() & 0o7777, mode);
        }
        // So do the other names of a file, and links to it.
        std::fs::hard_link(desk.at("file.txt"), desk.at("second.txt")).expect("a name");
        desk.link("third.txt", "second.txt");
        for way in ["file.txt", "second.txt", "third.txt"] {
            agent.write(desk.at(way), way).await.expect(way);
            for other in ["file.txt", "second.txt", "third.txt"] {
                assert_eq!(desk.get(other), way);
            }
        }
        assert!(desk.at("third.txt").is_symlink());
        // Nothing is left of a longer text, and nothing beside the file.
        agent.write(desk.at("file.txt"), "").await.expect("written");
        assert_eq!(desk.get("file.txt"), "");
        let hidden = std::fs::read_dir(desk.root()).expect("a folder");
        let hidden =
            hidden.filter(|entry| entry.as_ref().is_ok_and(|e| e.file_name().as_encoded_bytes()[0] == b'.'));
        assert_eq!(hidden.count(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_seen_before_or_after_a_write() {
    const SIZE: usize = 64 * 1024;
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let path = desk.at("file.txt");
        let texts = ["a", "b"].map(|letter| letter.repeat(SIZE));
        std::fs::write(&path, &texts[0]).expect("a file");
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (stop, path) = (stop.clone(), path.clone());
            move || {
                let mut reads = 0;
                while !stop.load(SeqCst) {
                    let text = std::fs::read(&path).expect("a file");
                    assert!(text.len() == SIZE && text.iter().all(|byte| *byte == text[0]), "half a file");
                    reads += 1;
                }
                reads
            }
        });
        for round in 0..200 {
            agent.write(&path, &texts[round % 2]).await.expect("written");
        }
        stop.store(true, SeqCst);
        assert!(reader.join().expect("whole files") > 0);
    })
    .await;
}

/// Not even root may make files here.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_takes_no_files_says_so() {
    in_time(async {
        let mut agent = Agent::of(LocalHost::new("/sys"), "/sys").await;
        for path in ["/sys/new.txt", "/sys/new/deep.txt", "/sys/kernel/new.txt"] {
            let refused = agent.write(path, "").await.expect_err("refused");
            assert_eq!(refused.code, INTERNAL, "{refused:?}");
            assert!(refused.message.starts_with(path), "{refused:?}");
            assert!(
                ["denied", "not permitted", "Read-only"].iter().any(|why| refused.message.contains(why)),
                "{refused:?}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_the_rights_of_its_owner_is_not_rewritten() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        desk.link("link", "file.txt");
        for mode in [0o4755, 0o2755, 0o6755] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(desk.at("file.txt"), permissions).expect("set");
            for way in ["file.txt", "link"] {
                let refused = agent.write(desk.at(way), "changed").await;
                refused.expect_err("refused").says(INVALID, "set-user-id");
            }
            assert_eq!(std::fs::metadata(desk.at("file.txt")).expect("a file").mode() & 0o7777, mode);
            assert_eq!(desk.get("file.txt"), "inside");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_looks_for_its_lines_only_so_far() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host().max_scan(1000), desk.root()).await;
        desk.put("log.txt", "x\n".repeat(600));
        let mut read = async |line: u32| {
            agent
                .ask("fs/read_text_file", json!({"path": desk.at("log.txt"), "line": line, "limit": 1}))
                .await
        };
        assert_eq!(read(501).await, Ok(json!({"content": "x\n"})));
        read(502).await.expect_err("refused").says(INVALID, "has line 502 more than 1000 bytes");
    })
    .await;
}

/// A read of many slices gives the same text as a read in one.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_file_is_read_from_any_line() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        let lines: Vec<String> =
            (0..100).map(|number| format!("{number} {}\n", "é".repeat(150_000))).collect();
        desk.put("long.txt", lines.concat());
        for (line, limit) in [(1, 3), (30, 20), (99, 5), (101, 1)] {
            let params = json!({"path": desk.at("long.txt"), "line": line, "limit": limit});
            let read = agent.ask("fs/read_text_file", params).await.expect("read");
            let expect: String = lines.iter().skip(line - 1).take(limit).map(String::as_str).collect();
            assert!(read["content"] == expect, "{limit} lines from {line}");
        }
    })
    .await;
}

/// A file of exactly the limit is read, and so are lines of exactly the limit.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_read_is_exact() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host().max_read(8), desk.root()).await;
        let path = desk.at("file.txt");
        for (text, line, limit, is_read) in [
            ("1234567\n", None, None, true),
            ("12345678\n", None, None, false),
            ("1234567\nmore\n", Some(1), Some(1), true),
            ("12345678\nmore\n", Some(1), Some(1), false),
            ("more\n1234567\n", Some(2), None, true),
            ("more\n12345678\n", Some(2), None, false),
        ] {
            desk.put("file.txt", text);
            match lines(&mut agent, &path, line, limit).await {
                Ok(_) => assert!(is_read, "{text:?} {line:?}"),
                Err(refused) => {
                    assert!(!is_read, "{text:?} {line:?}");
                    refused.says(INVALID, "max_read");
                }
            }
        }
    })
    .await;
}

/// A link to a file with a single name stays a link.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_a_link_changes_its_target() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        desk.put("target.txt", "old");
        desk.link("link.txt", "target.txt");
        agent.write(desk.at("link.txt"), "new").await.expect("written");
        assert!(desk.at("link.txt").is_symlink());
        assert_eq!(desk.get("target.txt"), "new");
    })
    .await;
}
