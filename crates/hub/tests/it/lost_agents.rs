//! Agents, sessions and logs that are not there any more.
#![cfg(unix)]

mod opened_again;
mod second_life;

use std::path::{Path, PathBuf};
use std::time::Duration;

use duologue_client::Command;
use duologue_hub::{Error, Hub, HubSettings};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::faults::{new_session, script, text_prompt};
use crate::hub::{RawClient, connect, load, open_when_free, opened, prompt, reopened, settings};
use crate::shared::shared_script;

#[tokio::test]
async fn two_sessions_of_a_shared_process_have_two_ids() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        while read -r line; do
            case "$line" in *session/new*)
                n=${line#*\"id\":\"}; n=${n%%:*}
                printf '{"jsonrpc":"2.0","id":"%s:\\"hub:session/new\\"","result":{"sessionId":"same"}}\n' $n;;
            esac
        done
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, first) = opened(shared_script(data.path(), AGENT)).await;
        assert!(first["result"].is_object(), "{first}");
        let refused = client.request(2, "session/new", new_session()).await;
        assert!(refused["error"]["message"].to_string().contains("the id of another one"), "{refused}");
        hub.shut_down().await;
    })
    .await;
}

/// A descendant of the agent keeps its output open.
#[tokio::test]
async fn an_agent_that_has_exited_has_ended_whoever_has_its_output() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1,"agentCapabilities":{}}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"a"}}'
        read -r line; setsid sleep 60 & exit 3
    "#;
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let (hub, mut client, new) = opened(script(data.path(), AGENT)).await;
        let ended = client.request(2, "session/prompt", text_prompt(&new["result"]["sessionId"], "go")).await;
        assert!(ended["error"]["message"].to_string().contains("exit status: 3"), "{ended}");
        hub.shut_down().await;
    })
    .await;
}

/// The first process leaves one that reads and writes in its place, and exits. The pipe of the session names it.
#[cfg(target_os = "linux")]
const LEFT_BEHIND: &str = r#"
    say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
    id() { printf '%s\n' "$line" | sed -E 's/.*"id":([^,]*),"method".*/\1/'; }
    turns() { while read -r line; do say "$(id)" "{\"stopReason\":\"$1\"}"; done; }
    read -r line; say "$(id)" '{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}'
    read -r line; say "$(id)" '{"sessionId":"s"}'
    case "$line" in
        *session/new*) exec 3<&0; turns refusal <&3 3<&- & exec 3<&-; echo $$ > process;;
        *) turns end_turn;;
    esac
"#;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_prompt_behind_the_exit_of_an_agent_goes_to_the_next_one() {
    in_time(async {
        let (data, hub, mut client) = with_pipe(LEFT_BEHIND);
        client.initialize().await;
        let new = client.request(1, "session/new", new_session()).await;
        let process = process_of(data.path()).await;
        // The hub has noticed the exit.
        while process.exists() {
            tokio::task::yield_now().await;
        }
        let answer =
            client.request(2, "session/prompt", text_prompt(&new["result"]["sessionId"], "go")).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        hub.shut_down().await;
    })
    .await;
}

/// The descendant of the agent writes as fast as it is read.
#[tokio::test]
async fn an_agent_that_has_exited_has_ended_though_its_output_is_flooded() {
    const AGENT: &str = r#"
        line=$(head -c 1000 /dev/zero | tr '\0' x)
        read -r request; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r request; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"a"}}'
        read -r request; setsid yes $line 2>/dev/null & exit 3
    "#;
    const SHARED: &str = r#"
        line=$(head -c 1000 /dev/zero | tr '\0' x)
        read -r request; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r request; lane=${request#*\"id\":\"}; lane=${lane%%:*}
        printf '{"jsonrpc":"2.0","id":"%s:\\"hub:session/new\\"","result":{"sessionId":"a"}}\n' $lane
        read -r request; setsid yes $line 2>/dev/null & exit 3
    "#;
    for shared_process in [false, true] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let mut settings = script(data.path(), if shared_process { SHARED } else { AGENT });
            settings.shared_process = shared_process;
            let (hub, mut client, new) = opened(settings).await;
            let prompt = text_prompt(&new["result"]["sessionId"], "go");
            let ended = client.request(2, "session/prompt", prompt).await;
            assert!(ended["error"]["message"].to_string().contains("exit status: 3"), "{ended}");
            hub.shut_down().await;
        })
        .await;
    }
}

/// The first process ends in the first prompt, and the second one never restores the session. Both ignore SIGTERM.
#[cfg(target_os = "linux")]
const STUCK_RESTART: &str = r#"
    trap '' TERM
    read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}'
    read -r line
    case "$line" in
        *session/new*) echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'; read -r line;;
        *) echo $$ > process; while :; do sleep 0.1; done;;
    esac
"#;

/// The process shows a question, closes its output and goes on.
#[cfg(target_os = "linux")]
const CLOSED_OUTPUT: &str = r#"
    trap '' TERM
    read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}'
    read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
    echo '{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[{"optionId":"y","name":"y","kind":"allow_once"}]}}'
    exec 1>&-; echo $$ > process; while :; do sleep 0.1; done
"#;

/// A hub whose agent writes the number of its process to a pipe, which is read when the agent has come so far.
#[cfg(target_os = "linux")]
fn with_pipe(agent: &'static str) -> (TempDir, Hub, RawClient) {
    let data = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(data.path().join("process")).status();
    assert!(made.unwrap().success());
    let folder = data.path().to_owned();
    let mut settings =
        HubSettings::new(move || Command::new("sh").args(["-c", agent]).cwd(&folder), data.path());
    // Each write begins a segment, and fails without the folder.
    settings.logs.segment_bytes = 1;
    let hub = Hub::open(settings).unwrap();
    let client = RawClient::new(&hub);
    (data, hub, client)
}

/// Returns the folder of the process that has written to the pipe. It is there until the hub knows its end.
#[cfg(target_os = "linux")]
async fn process_of(data: &Path) -> PathBuf {
    let pipe = data.join("process");
    let number = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe)).await;
    Path::new("/proc").join(number.unwrap().unwrap().trim())
}

/// Returns the folder of the process that has written to the pipe and goes on.
#[cfg(target_os = "linux")]
async fn running_process_of(data: &Path) -> PathBuf {
    let process = process_of(data).await;
    assert!(process.is_dir(), "{}", process.display());
    process
}

/// A session that ends while its agent is started again: another task may open it from then on.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_is_being_started_ends_with_its_session() {
    let ends_with = async |end: &str| {
        let (data, hub, mut client) = with_pipe(STUCK_RESTART);
        client.initialize().await;
        let new = client.request(1, "session/new", new_session()).await;
        let session = json!({"sessionId": new["result"]["sessionId"]});
        let prompt = text_prompt(&session["sessionId"], "hello");
        let ended = client.request(2, "session/prompt", prompt.clone()).await;
        assert_eq!(ended["error"]["data"]["code"], "interrupted", "{ended}");
        client.send(3, "session/prompt", prompt).await;
        let process = running_process_of(data.path()).await;
        if end == "failure" {
            let folder = data.path().join("sessions").join(session["sessionId"].as_str().unwrap());
            std::fs::rename(folder, data.path().join("moved")).unwrap();
            let mode: Value = json!({"sessionId": session["sessionId"], "modeId": "m"});
            client.send(4, "session/set_mode", mode).await;
            assert_eq!(client.response(3).await["error"]["data"]["code"], "log_failed");
            let mut load = new_session();
            load["sessionId"] = session["sessionId"].clone();
            // It waits for the end of the former task.
            assert_eq!(client.request(5, "session/load", load).await["error"]["data"]["code"], "log_failed");
        } else {
            let ended = client.request(4, end, session).await;
            assert!(ended["result"].is_object(), "{ended}");
        }
        assert!(!process.exists(), "{end}: the process goes on");
        hub.shut_down().await;
    };
    in_time(async {
        tokio::join!(ends_with("session/close"), ends_with("session/delete"), ends_with("failure"))
    })
    .await;
}

/// A session that is closed while the start of the next process waits for the end of this one.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_former_process_ends_with_its_session() {
    in_time(async {
        let (data, hub, mut client) = with_pipe(CLOSED_OUTPUT);
        client.initialize().await;
        let new = client.request(1, "session/new", new_session()).await;
        let session = json!({"sessionId": new["result"]["sessionId"]});
        let process = running_process_of(data.path()).await;
        // The end of the output is known when the question is withdrawn.
        while client.next().await["method"] != "$/cancel_request" {}
        client.send(2, "session/prompt", text_prompt(&session["sessionId"], "hello")).await;
        let closed = client.request(3, "session/close", session).await;
        assert!(closed["result"].is_object(), "{closed}");
        assert!(!process.exists(), "the process goes on");
        hub.shut_down().await;
    })
    .await;
}

/// Replaces the first segment of a log, and returns the number of the segments.
fn damage(folder: &Path, damage: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut segments: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).collect();
    segments.sort();
    match damage(std::fs::read(&segments[0]).unwrap()) {
        Some(text) => std::fs::write(&segments[0], text).unwrap(),
        None => std::fs::remove_file(&segments[0]).unwrap(),
    }
    segments.len()
}

#[tokio::test]
async fn a_session_whose_log_is_lost_is_no_empty_conversation() {
    type Damage = (&'static str, usize, fn(Vec<u8>) -> Option<Vec<u8>>);
    const DAMAGES: [Damage; 6] = [
        ("no file", 1, |_| None),
        ("no bytes", 1, |_| Some(Vec::new())),
        ("zeros", 1, |text| Some(vec![0; text.len()])),
        ("one line of garbage", 1, |text| Some(vec![b'x'; text.len()])),
        ("lines of garbage", 1, |mut text| {
            text.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b'x');
            Some(text)
        }),
        // The second segment has no record but that of its beginning.
        ("zeros in the first of two segments", 2, |text| Some(vec![0; text.len()])),
    ];
    for (name, segments, change) in DAMAGES {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let settings = || {
                let mut settings = settings(data.path(), 0);
                if segments > 1 {
                    settings.logs.segment_bytes = 16_000;
                }
                settings
            };
            let (hub, mut client, new) = opened(settings()).await;
            let id = new["result"]["sessionId"].as_str().unwrap();
            let mut load = new_session();
            load["sessionId"] = json!(id);
            for number in 2..=segments as u32 {
                client.request(10 * number, "session/close", json!({"sessionId": id})).await;
                let loaded = client.request(10 * number + 1, "session/load", load.clone()).await;
                assert!(loaded["result"].is_object(), "{loaded}");
            }
            hub.shut_down().await;
            drop((client, hub));
            let folder = data.path().join("sessions").join(id);
            assert_eq!(damage(&folder, change), segments, "{name}");
            let files = || {
                let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
                let mut files: Vec<_> = files.map(|path| (std::fs::read(&path).unwrap(), path)).collect();
                files.sort();
                files
            };
            let before = files();
            let (hub, mut client) = reopened(settings).await;
            for number in 1..3 {
                let refused = client.request(number, "session/load", load.clone()).await;
                let data = json!({"code": "log_failed", "retryable": false});
                assert_eq!(refused["error"]["data"], data, "{name}: {refused}");
                assert!(refused["error"]["message"].to_string().contains("is empty, damaged"), "{refused}");
            }
            let read = hub.read_log("local", id, 0, 1000, Duration::ZERO).await;
            assert!(matches!(read, Err(Error::LogLost)), "{name}: {read:?}");
            assert!(files() == before, "{name}: the files were changed");
            hub.shut_down().await;
        })
        .await;
    }
}

/// The other segments have records of the conversation.
#[tokio::test]
async fn a_session_whose_first_segment_is_lost_is_loaded_with_a_notice() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let settings = || {
            let mut settings = settings(data.path(), 0);
            settings.logs.segment_bytes = 1;
            settings
        };
        let hub = Hub::open(settings()).unwrap();
        let client = connect(&hub).await;
        let session = client.new_session("/tmp").await.unwrap();
        prompt(&session, "hello").await;
        let id = session.id().clone();
        hub.shut_down().await;
        drop((session, client, hub));
        let folder = data.path().join("sessions").join(id.as_str());
        assert!(damage(&folder, |text| Some(vec![0; text.len()])) > 2);
        let hub = open_when_free(settings).await;
        let (_session, texts) = load(&connect(&hub).await, &id).await;
        assert!(texts[0].contains("damaged and w") && texts.len() > 1, "{texts:?}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn zeros_in_a_log_cost_no_other_records() {
    type Place = fn(&[u8]) -> std::ops::Range<usize>;
    fn line_with(text: &[u8], part: &str) -> usize {
        let place = text.windows(part.len()).position(|window| window == part.as_bytes()).unwrap();
        text[..place].iter().rposition(|byte| *byte == b'\n').unwrap() + 1
    }
    // The header with the records that open the session, and the first turn.
    let places: [Place; 2] = [
        |text| 0..line_with(text, "alpha"),
        |text| line_with(text, "alpha") + 5..line_with(text, "omega") - 5,
    ];
    for (place, is_first_kept) in places.into_iter().zip([true, false]) {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let hub = Hub::open(settings(data.path(), 0)).unwrap();
            let client = connect(&hub).await;
            let session = client.new_session("/tmp").await.unwrap();
            prompt(&session, "alpha").await;
            prompt(&session, "omega").await;
            let id = session.id().clone();
            hub.shut_down().await;
            drop((session, client, hub));
            let folder = data.path().join("sessions").join(id.as_str());
            let change = |mut text: Vec<u8>| {
                let place = place(&text);
                text[place].fill(0);
                Some(text)
            };
            assert_eq!(damage(&folder, change), 1);
            let hub = open_when_free(|| settings(data.path(), 0)).await;
            let read = hub.read_log("local", id.as_str(), 0, 1 << 20, Duration::ZERO).await.unwrap();
            assert!(!read.page.records.is_empty());
            for _ in 0..2 {
                let client = connect(&hub).await;
                let (_session, texts) = load(&client, &id).await;
                let texts = texts.join("|");
                assert!(
                    texts.starts_with("[1 record of this session is damaged and was left out.]"),
                    "{texts}"
                );
                assert_eq!(texts.contains("|alpha"), is_first_kept, "{texts}");
                assert!(texts.contains("|omega"), "{texts}");
            }
            hub.shut_down().await;
        })
        .await;
    }
}
