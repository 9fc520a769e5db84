//! The SDKs over a socket.

use duologue_agent::{Agent, Prompt, StopReason, Turn, serve};
use duologue_client::Client;
use duologue_http::{AgentEndpoint, ServerOptions, connect};
use duologue_test_support::in_time;

use crate::setup::{CutRelay, quick, server, url};

#[derive(Clone)]
struct Counter;

impl Agent for Counter {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let count: u64 = prompt.text().parse().expect("a number");
        let mut message = turn.message();
        for number in 1..=count {
            message.push(format!("{number} ")).await?;
            if number % 25 == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

fn counter() -> AgentEndpoint {
    AgentEndpoint::new(|transport| async {
        let _ = serve(Counter, transport).await;
    })
}

fn numbers(count: u64) -> String {
    (1..=count).map(|number| format!("{number} ")).collect()
}

#[tokio::test]
async fn a_client_prompts_an_agent_over_a_socket() {
    in_time(async {
        let address = server(counter(), ServerOptions::default()).await;
        let (transport, link) = connect(&url(address), quick()).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        let session = client.new_session("/tmp").await.expect("a session");
        let reply = session.prompt("100").await.expect("a turn").finish().await.expect("a reply");
        assert_eq!(reply.text, numbers(100));
        assert_eq!(link.resumes(), 0);
        assert!(!link.connection_id().is_empty());
    })
    .await;
}

/// The turn goes on, no update is lost and none comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_survives_20_cuts() {
    in_time(async {
        let relay = CutRelay::new(server(counter(), ServerOptions::default()).await).await;
        let (transport, link) = connect(&url(relay.address), quick()).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        let session = client.new_session("/tmp").await.expect("a session");
        let mut turn = session.prompt("1000").await.expect("a turn");
        let (mut text, mut updates) = (String::new(), 0);
        while let Some(update) = turn.next().await {
            text.push_str(&update.expect("an update").to_string());
            updates += 1;
            if updates % 50 == 25 {
                let before = link.resumes();
                relay.cut();
                while link.resumes() == before {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        }
        assert_eq!((updates, text), (1000, numbers(1000)));
        assert!(link.resumes() >= 20, "{}", link.resumes());
    })
    .await;
}

/// The connection of a client that leaves ends at once and not after the grace period.
#[tokio::test]
async fn a_connection_ends_with_its_client() {
    in_time(async {
        let endpoint = counter();
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let (transport, mut link) = connect(&url(address), quick()).await.expect("a connection");
        let client = Client::new(()).connect(transport).await.expect("a client");
        assert_eq!(endpoint.connection_count(), 1);
        client.close().await;
        drop(client);
        while link.state() != duologue_http::LinkState::Ended {
            link.changed().await;
        }
        while endpoint.connection_count() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
}
