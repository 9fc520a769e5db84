//! Dialogues of agents, one nested in another, when the hub is stopped.

use std::time::Duration;

use duologue_test_support::in_time;
use tokio::net::TcpListener;

use super::routed_dialogues::{begin, dialogue_task, rule, waiting_agents};
use super::run;
use crate::remote_agents::{ended_task, until};
use crate::rest::world::{ADMIN, ALICE, RestWorld};

const IDS: [&str; 3] = ["buyer", "seller", "details"];

/// Returns a hub with three agents, and the socket that `details` connects to before it answers.
async fn world() -> (RestWorld, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agents = waiting_agents(&IDS, listener.local_addr().unwrap());
    (RestWorld::start(&format!("{agents}{}", rule(&IDS))).await, listener)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_dialogues_go_on_during_a_drain_and_new_ones_are_refused() {
    let (world, listener) = world().await;
    let task = begin(&world, "buyer", "twice d1").await;
    let (socket, _) = in_time(listener.accept()).await.unwrap();
    let gateway = world.gateway.clone();
    let drained = tokio::spawn(async move { gateway.drain(Duration::MAX).await });
    until(async || (world.get(ADMIN, "/ready").await.status == 503).then_some(())).await;
    drop(socket);
    // The nested dialogue is answered, and the outer one goes on to its end.
    assert_eq!(in_time(drained).await.unwrap(), 0);
    let ended = ended_task(&world, ALICE, &task).await;
    let text = ended["result"]["text"].as_str().unwrap_or_else(|| panic!("{ended}"));
    assert!(
        text.starts_with("18000 accept, ") && text.contains("the server is being stopped; retry later"),
        "{text}"
    );
    assert_eq!(dialogue_task(&world, "seller", "d1").await["status"], "completed");
    assert_eq!(dialogue_task(&world, "details", "d1-details").await["status"], "cancelled");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dialogues_that_a_stop_has_cut_end_as_restarted() {
    let (world, listener) = world().await;
    let task = begin(&world, "buyer", "buy agent://seller d1").await;
    let (socket, _) = in_time(listener.accept()).await.unwrap();
    let world = world.restart().await;
    drop(socket);
    let ended = ended_task(&world, ALICE, &task).await;
    for task in [
        ended,
        dialogue_task(&world, "seller", "d1").await,
        dialogue_task(&world, "details", "d1-details").await,
    ] {
        let (status, error) = (&task["status"], &task["error"]);
        assert_eq!((status.as_str(), error["code"].as_str()), (Some("failed"), Some("restarted")), "{task}");
        assert_eq!(error["retryable"], true, "{task}");
    }
    // The agents have places for others.
    let (text, _) = tokio::join!(run(&world, ALICE, "buyer", "buy agent://seller d2"), async {
        drop(in_time(listener.accept()).await.unwrap());
    });
    assert_eq!(text, "18000 accept");
    world.stop().await;
}
