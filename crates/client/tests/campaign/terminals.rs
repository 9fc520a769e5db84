//! The memory that the output of commands takes.

use serde_json::json;

use crate::desk::{Agent, Desk};
use duologue_test_support::{in_time, measured, memory, runs, sent_away};

const MIB: usize = 1024 * 1024;

/// `DUOLOGUE_RUNS` says how many MiB a command prints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_costs_the_output_that_is_kept() {
    if sent_away("terminals::a_command_costs_the_output_that_is_kept").await {
        return;
    }
    let (printed, limit) = (runs(300), 2 * MIB);
    let desk = Desk::new();
    let mut agent = Agent::of(desk.host(), desk.root()).await;
    // The first program is not counted, as it fills caches.
    agent.run(json!({"command": "head -c 100000 /dev/zero", "outputByteLimit": 1000})).await;
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak begins anew");
    let before = memory("VmRSS");
    let line = "yes 'a line of output' | head -c";
    let params = json!({"command": format!("{line} {}", printed * MIB as u64), "outputByteLimit": limit});
    let terminal = agent.start(params).await;
    assert_eq!(agent.exit(&terminal).await, json!({"exitCode": 0}));
    let most = memory("VmHWM").saturating_sub(before);
    assert!(
        most <= limit + MIB,
        "{} KiB for {printed} MiB of output, {} MiB of them kept",
        most / 1024,
        limit / MIB
    );
    let output = agent.output(&terminal).await;
    assert_eq!((output["output"].as_str().map(str::len), &output["truncated"]), (Some(limit), &json!(true)));
    measured(format_args!(
        "{printed} MiB printed: {:.2} MiB more, of which {} are kept",
        most as f64 / MIB as f64,
        limit / MIB
    ));
}

/// While one floods, the agent is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_costs_what_is_kept() {
    if sent_away("terminals::a_flood_costs_what_is_kept").await {
        return;
    }
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        // Without the pages of this program's file, of which there are more the more tests it has.
        let before = memory("RssAnon");
        // The second is no UTF-8, which is the longest as text.
        for flood in ["yes | head -c 200000000", "head -c 20000000 /dev/zero | tr '\\0' '\\377'"] {
            let terminal = agent.sh(flood).await;
            let mut wait = terminal.clone();
            wait["sessionId"] = "s0".into();
            let wait = agent.script.send_request("terminal/wait_for_exit", wait).await;
            // The agent is served meanwhile.
            let (mut reads, mut most) = (0, 0);
            loop {
                let params = json!({"sessionId": "s0", "path": desk.at("file.txt")});
                let read = agent.script.send_request("fs/read_text_file", params).await;
                let answer = agent.script.next_message().await;
                most = most.max(memory("RssAnon"));
                if answer["id"] == wait {
                    assert_eq!(answer["result"], json!({"exitCode": 0}));
                    agent.script.next_message().await;
                    break;
                }
                assert_eq!(answer["id"], read);
                reads += 1;
            }
            assert!(reads > 0, "the agent was not served");
            assert!(most < before + 16 * MIB, "{} MiB for a flood", (most - before) / MIB);
            let output = agent.output(&terminal).await;
            let text = output["output"].as_str().expect("text");
            assert!(
                output["truncated"] == true && text.len() <= MIB && text.len() > MIB - 4,
                "{}",
                text.len()
            );
        }
    })
    .await;
}
