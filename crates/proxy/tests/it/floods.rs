//! Floods, slow sides and limits.

use std::time::Duration;

use duologue_proxy::{Decision, Limits, Proxy, ProxyStage, StageLink, StageMessage, Transport};
use duologue_test_support::{ScriptedPeer, Wire, in_time};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::setup::{Log, Place, Watching};

/// Both sides write without reading for a while, with more than the buffers hold, and answer each other's requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_in_both_directions_arrives_complete() {
    const COUNT: u64 = 5_000;
    for place in Place::ALL {
        for wire in [Wire::Memory, Wire::Pipes] {
            let watching = |name| Watching(name, Log::default());
            let proxy = Proxy::new()
                .stage(watching("a"))
                .on_client_message(|message, link| {
                    if message.method() == Some("_flood") {
                        link.notify(duologue_proxy::Side::Client, "_note", &json!({})).unwrap();
                    }
                    Decision::Pass
                })
                .stage(watching("c"));
            let (client, agent) = place.connect(proxy, wire);
            let play = async |transport: Transport| {
                let (reader, writer) = transport.into_split();
                let mut reader = ScriptedPeer::new(reader, tokio::io::sink());
                let mut writer = ScriptedPeer::new(tokio::io::empty(), writer);
                let write = async {
                    for number in 0..COUNT {
                        let params = json!({"number": number, "padding": "x".repeat(200)});
                        writer.notify("_flood", params).await;
                    }
                    writer.notify("_end", json!({})).await;
                    writer
                };
                let read = async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let (mut next, mut notes) = (0, 0);
                    loop {
                        let message = reader.next_message().await;
                        match message["method"].as_str() {
                            Some("_flood") => {
                                assert_eq!(message["params"]["number"], next);
                                next += 1;
                            }
                            Some("_note") => notes += 1,
                            _ => break,
                        }
                    }
                    (next, notes)
                };
                tokio::join!(write, read).1
            };
            let (client, agent) = in_time(async { tokio::join!(play(client), play(agent)) }).await;
            assert_eq!((client.0, agent), (COUNT, (COUNT, 0)), "{place:?} {wire:?}");
            assert!(client.1 <= COUNT, "{place:?} {wire:?}");
        }
    }
}

/// A side that does not read stops the sender, and does not fill the memory.
#[tokio::test]
async fn a_slow_side_gives_backpressure() {
    for place in Place::ALL {
        for wire in [Wire::Memory, Wire::Pipes] {
            let (client, agent) = place.connect(Proxy::new().stage(Watching("", Log::default())), wire);
            for (from, to) in [(client, agent)] {
                let (_from_reader, mut from) = from.into_split();
                let (mut to, _to_writer) = to.into_split();
                let line = [vec![b'x'; 9_999], vec![b'\n']].concat();
                let mut accepted = 0;
                while tokio::time::timeout(Duration::from_millis(300), from.write_all(&line)).await.is_ok() {
                    accepted += line.len();
                    assert!(accepted < 4 << 20, "{place:?} {wire:?}: nothing waits for the reader");
                }
                let mut rest = vec![0; accepted];
                in_time(to.read_exact(&mut rest)).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_line_over_the_limit_ends_the_connection_with_its_name() {
    let mut limits = Limits::default();
    limits.frame_bytes = 1000;
    let (client, agent) = Place::ToAgent.connect(Proxy::new().limits(limits), Wire::Memory);
    let (mut from_agent, mut to_agent) = client.into_split();
    let (mut from_client, mut to_client) = agent.into_split();
    let fits = [vec![b'x'; 1000], vec![b'\n']].concat();
    for (to, from, side) in
        [(&mut to_agent, &mut from_client, "client"), (&mut to_client, &mut from_agent, "agent")]
    {
        to.write_all(&fits).await.unwrap();
        let mut line = vec![0; fits.len()];
        from.read_exact(&mut line).await.unwrap();
        assert_eq!(line, fits, "{side}");
    }
    let too_long = vec![b'x'; 2000];
    let error = to_agent.write_all(&too_long).await.unwrap_err().to_string();
    assert_eq!(error, "a line of the client is longer than 1000 bytes (`Limits::frame_bytes`)");
    to_client.write_all(&too_long).await.unwrap();
    let error = in_time(from_agent.read_u8()).await.unwrap_err().to_string();
    assert_eq!(error, "a line of the agent is longer than 1000 bytes (`Limits::frame_bytes`)");
}

/// A stage delays the connection until its future is ready.
#[tokio::test(start_paused = true)]
async fn nothing_is_passed_on_while_a_stage_waits() {
    struct Waits(bool);
    impl ProxyStage for Waits {
        fn client_message(&mut self, _: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
            self.0 = true;
            Decision::Pass
        }

        fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
            self.0 |= message.method() == Some("_c");
            Decision::Pass
        }

        fn wait(&mut self) -> Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> {
            let is_new = std::mem::take(&mut self.0);
            is_new.then(|| Box::pin(tokio::time::sleep(Duration::from_secs(5))) as _)
        }
    }
    for wire in [Wire::Memory, Wire::Pipes] {
        let (client, agent) = Place::ToAgent.connect(Proxy::new().stage(Waits(false)), wire);
        let (mut client, mut agent) = (ScriptedPeer::over(client), ScriptedPeer::over(agent));
        let before = tokio::time::Instant::now();
        client.notify("_a", json!({})).await;
        agent.expect("_a").await;
        assert!(before.elapsed() >= Duration::from_secs(5), "{wire:?}");
        // The other direction is not delayed.
        let before = tokio::time::Instant::now();
        agent.notify("_b", json!({})).await;
        client.expect("_b").await;
        assert!(before.elapsed() < Duration::from_secs(5), "{wire:?}");
        agent.notify("_c", json!({})).await;
        client.expect("_c").await;
        assert!(before.elapsed() >= Duration::from_secs(5), "{wire:?}");
    }
}
