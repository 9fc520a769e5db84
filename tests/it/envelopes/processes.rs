//! Every kind in both directions, over the pipes of a process.

use duologue_client::{Client, Exchange};
use duologue_exchange::envelope::PROGRESS;

use super::walkthrough::{Twin, walkthrough};
use duologue_test_support::in_time;

/// The report of the walkthrough, the same on both sides.
const WALKTHROUGH: &str = "\
idle twin
meta.twins takes 1
who? {\"asked\":\"who\"}
nobody here knows about work.tiles (unknown_domain)
half
paint is done
busy after wait, full: overloaded
stopped (cancelled)
already_finished";

#[tokio::test]
async fn every_kind_in_both_directions() {
    in_time(async {
        let twin = Twin::default();
        let exchange = Exchange::new().agent_id("c1").envelope_handler(twin.clone());
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_twin-agent"));
        let agent = Client::new(()).exchange(exchange).spawn(command).await.unwrap();
        let session = agent.new_session("/tmp").await.unwrap();
        assert_eq!(walkthrough(&session.peer_agent()).await.unwrap(), WALKTHROUGH);
        let reply = session.prompt("go").await.unwrap().finish().await.unwrap();
        assert_eq!(reply.text, WALKTHROUGH);
        // Both have received the other's notifications, and the end of the tasks they delegated.
        let all = ["meta.twins.walkthrough (high)", "the rest is done"];
        let heard = |text: &str| {
            // The progress of a task without a handle is a notification for the handler. Here it arrives before or
            // after the drop of the handle.
            let lines = text.lines().filter(|line| !line.starts_with(PROGRESS));
            let mut heard: Vec<String> = lines.map(str::to_owned).collect();
            heard.sort();
            heard
        };
        loop {
            let there = session.prompt("heard").await.unwrap().finish().await.unwrap().text;
            let (there, here) = (heard(&there), heard(&twin.0.lock().unwrap().join("\n")));
            if there.len() >= 2 && here.len() >= 2 {
                assert_eq!((there, here), (all.map(str::to_owned).to_vec(), all.map(str::to_owned).to_vec()));
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(session.peer_agent().exchange_stats(), Default::default());
        assert_eq!(agent.peer_agent().rpc().stats().stray_responses, 0);
    })
    .await;
}
