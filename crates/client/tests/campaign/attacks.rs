//! Agents that ask for more than a host can do at once.

use std::time::{Duration, Instant};

use duologue_client::Permissions;
use duologue_client::limits::TERMINALS;
use duologue_client::schema::RequestPermissionOutcome;
use serde_json::json;
use tokio::io::AsyncBufReadExt;

use crate::desk::{Agent, Desk};
use duologue_test_support::{in_time, measured, memory, message_chunk, sent_away};

const MIB: usize = 1024 * 1024;

/// Sends the same read so many times, without waiting for an answer.
async fn ask_often(agent: &mut Agent, times: usize, params: serde_json::Value) {
    for _ in 0..times {
        agent.script.send_request("fs/read_text_file", params.clone()).await;
    }
}

/// The peak of our memory while an agent asks for an 8 MiB file 1,000 times and reads so many of the answers.
async fn peak_of_reads(answers: usize) -> usize {
    let desk = Desk::new();
    desk.put("large.txt", "x".repeat(8 * MIB));
    let mut agent = Agent::of(desk.host(), desk.root()).await;
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak begins anew");
    ask_often(&mut agent, 1000, json!({"sessionId": "s0", "path": desk.at("large.txt")})).await;
    // The wire is read piece by piece, so that the agent's half, which is in this process too, costs nothing.
    let (mut reader, _writer) = agent.script.into_parts();
    let mut seen = 0;
    while seen < answers {
        let bytes = reader.fill_buf().await.expect("bytes");
        assert!(!bytes.is_empty(), "the connection ended after {seen} answers");
        seen += bytes.iter().filter(|byte| **byte == b'\n').count();
        let count = bytes.len();
        reader.consume(count);
    }
    if answers == 0 {
        // As long as reading all of it would take.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    memory("VmHWM")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reads_cost_a_bounded_amount_of_memory() {
    if sent_away("attacks::a_thousand_reads_cost_a_bounded_amount_of_memory").await {
        return;
    }
    let peak = in_time(peak_of_reads(60)).await;
    assert!(peak <= 600 * MIB, "{} MiB", peak / MIB);
    measured(format_args!("1,000 reads of 8 MiB, 60 answers read: peak of the process {} MiB", peak / MIB));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reads_without_a_reader_cost_a_bounded_amount_of_memory() {
    if sent_away("attacks::a_thousand_reads_without_a_reader_cost_a_bounded_amount_of_memory").await {
        return;
    }
    let peak = in_time(peak_of_reads(0)).await;
    assert!(peak <= 600 * MIB, "{} MiB", peak / MIB);
    measured(format_args!("1,000 reads of 8 MiB, no answer read: peak of the process {} MiB", peak / MIB));
}

/// An agent fills everything that SECURITY.md lists: terminals, questions, updates and open calls of sessions that
/// nobody listens to, unread answers, and the updates of a turn that nobody takes.
#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_client_can_hold_at_once_is_bounded() {
    if sent_away("attacks::all_that_a_client_can_hold_at_once_is_bounded").await {
        return;
    }
    in_time(async {
        let desk = Desk::new();
        desk.put("large.txt", "x".repeat(8 * MIB));
        let permissions =
            Permissions::new().ask(async |_, _| std::future::pending::<RequestPermissionOutcome>().await);
        let mut agent = Agent::of(desk.host().permissions(permissions), desk.root()).await;
        while agent.sessions.len() < 20 {
            agent.open(desk.root(), &[]).await;
        }
        let before = memory("VmRSS");
        let output = json!({"command": "head -c 2200000 /dev/zero | tr '\\0' x", "outputByteLimit": 2 * MIB});
        for _ in 0..TERMINALS {
            let terminal = agent.ask("terminal/create", output.clone()).await.expect("a terminal");
            agent.ask("terminal/wait_for_exit", terminal).await.expect("an end");
        }
        let megabyte = "x".repeat(MIB - 1000);
        for number in 1..agent.sessions.len() {
            let id = format!("s{number}");
            agent.script.send(message_chunk(&id, &megabyte)).await;
            let call =
                json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "rawInput": megabyte});
            agent.script.notify("session/update", json!({"sessionId": id, "update": call})).await;
        }
        for number in 0..80 {
            let call = json!({"toolCallId": number.to_string(), "kind": "read", "rawInput": megabyte});
            let params = json!({"sessionId": "s0", "toolCall": call, "options": []});
            agent.script.send_request("session/request_permission", params).await;
        }
        let read = json!({"sessionId": "s0", "path": desk.at("large.txt")});
        ask_often(&mut agent, 800, read).await;
        let session = agent.sessions[0].clone();
        let _turn = session.prompt("go").await.expect("a turn");
        let flood = async {
            loop {
                agent.script.send(message_chunk("s0", &megabyte)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(4), flood).await;
        let grown = memory("VmHWM").saturating_sub(before);
        assert!(grown <= 600 * MIB, "{} MiB", grown / MIB);
        measured(format_args!("everything that an agent can make a client hold: {} MiB", grown / MIB));
    })
    .await;
}

/// The client adds the agent's description of a call to each permission request about it, so short requests cost as much as
/// long ones.
#[tokio::test(flavor = "multi_thread")]
async fn short_questions_about_a_long_call_cost_a_bounded_amount_of_memory() {
    if sent_away("attacks::short_questions_about_a_long_call_cost_a_bounded_amount_of_memory").await {
        return;
    }
    in_time(async {
        let desk = Desk::new();
        let permissions =
            Permissions::new().ask(async |_, _| std::future::pending::<RequestPermissionOutcome>().await);
        let mut agent = Agent::of(desk.host().permissions(permissions), desk.root()).await;
        let call = json!({
            "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "rawInput": "x".repeat(MIB - 2000),
        });
        agent.script.notify("session/update", json!({"sessionId": "s0", "update": call})).await;
        std::fs::write("/proc/self/clear_refs", "5").expect("the peak begins anew");
        for _ in 0..1000 {
            let params = json!({"sessionId": "s0", "toolCall": {"toolCallId": "c"}, "options": []});
            agent.script.send_request("session/request_permission", params).await;
        }
        // Those over the limit are refused at once.
        for _ in 0..900 {
            let refused = agent.script.next_message().await;
            let message = refused["error"]["message"].as_str().expect("a refusal");
            assert!(message.contains("Limits::in_flight_bytes"), "{message}");
        }
        let peak = memory("VmHWM");
        assert!(peak <= 600 * MIB, "{} MiB", peak / MIB);
        measured(format_args!(
            "1,000 questions about a call of 1 MiB: peak of the process {} MiB",
            peak / MIB
        ));
    })
    .await;
}

/// Paths are looked up a few at a time, so that a question about many keeps nobody waiting.
#[tokio::test(flavor = "multi_thread")]
async fn questions_about_many_paths_keep_nobody_waiting() {
    in_time(async {
        let (desk, other_desk) = (Desk::new(), Desk::new());
        for number in 0..39 {
            desk.link(&format!("link{number}"), format!("link{}", number + 1));
        }
        let permissions = || Permissions::new().deny_in("/etc");
        let mut hostile = Agent::of(desk.host().permissions(permissions()), desk.root()).await;
        let mut other = Agent::of(other_desk.host(), other_desk.root()).await;
        let locations: Vec<_> =
            (0..2_000).map(|number| json!({"path": desk.at("link0").join(number.to_string())})).collect();
        let call = json!({"toolCallId": "c", "kind": "read", "locations": locations});
        let params = json!({"sessionId": "s0", "toolCall": call, "options": []});
        for _ in 0..40 {
            hostile.script.send_request("session/request_permission", params.clone()).await;
        }
        assert_eq!(other.read(other_desk.at("file.txt")).await.as_deref(), Ok("inside"));
        let read = hostile
            .script
            .send_request("fs/read_text_file", json!({"sessionId": "s0", "path": desk.at("file.txt")}))
            .await;
        let mut answered = 0;
        // The read is not behind all questions.
        while hostile.script.next_message().await["id"] != read {
            answered += 1;
        }
        assert!(answered < 40, "the read came last");
    })
    .await;
}

/// While one agent lets its host look for lines in a file of 1 TB, other agents and the program itself are served.
#[tokio::test(flavor = "multi_thread")]
async fn reads_that_find_nothing_keep_nobody_waiting() {
    if sent_away("attacks::reads_that_find_nothing_keep_nobody_waiting").await {
        return;
    }
    in_time(async {
        let (desk, other_desk) = (Desk::new(), Desk::new());
        let sparse = std::fs::File::create(desk.at("sparse.txt")).expect("a file");
        sparse.set_len(1 << 40).expect("a sparse file");
        let mut hostile = Agent::of(desk.host(), desk.root()).await;
        let mut other = Agent::of(other_desk.host(), other_desk.root()).await;
        let params = json!({"sessionId": "s0", "path": desk.at("sparse.txt"), "line": u32::MAX});
        ask_often(&mut hostile, 600, params).await;
        let mut took = Vec::new();
        for _ in 0..25 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let begun = Instant::now();
            assert_eq!(other.read(other_desk.at("file.txt")).await.as_deref(), Ok("inside"));
            let read = begun.elapsed();
            tokio::fs::read(other_desk.at("file.txt")).await.expect("the program's own file");
            took.push((read, begun.elapsed() - read));
        }
        let slowest = |which: fn(&(Duration, Duration)) -> Duration| {
            let mut took: Vec<_> = took.iter().map(which).collect();
            took.sort_unstable();
            // One in five may be late on a machine that does other things.
            took[took.len() * 4 / 5]
        };
        let (read, own) = (slowest(|took| took.0), slowest(|took| took.1));
        let limit = Duration::from_millis(100);
        assert!(read < limit && own < limit, "a read took {read:?}, the program's own {own:?}");
        measured(format_args!(
            "600 endless reads beside it: a read in {read:?}, the program's own in {own:?}"
        ));
    })
    .await;
}
