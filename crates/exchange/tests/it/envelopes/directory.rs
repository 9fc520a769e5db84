//! Several agents at once.

use duologue_agent::exchange::Error;
use duologue_agent::exchange::envelope::{
    Capabilities, Directory, EnvelopeHandler, EnvelopeKind, Importance,
};
use duologue_agent::{Agent, Exchange, PeerAgent, Prompt, Server, StopReason, Turn};
use duologue_client::{Client, Connection, Transport};
use serde_json::json;
use tokio::time::Instant;

use duologue_test_support::{Wire, client_of};

struct Knows(&'static [&'static str]);

impl EnvelopeHandler for Knows {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("someone").domains(self.0.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
    }
}

struct Idle;

impl Agent for Idle {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// An agent of this id that declares these domains, in a session.
async fn agent(id: &'static str, domains: &'static [&'static str]) -> (Connection, PeerAgent) {
    let (ours, theirs) = Transport::memory();
    let exchange = Exchange::new().agent_id(id).envelope_handler(Knows(domains));
    tokio::spawn(Server::new(Idle).exchange(exchange).serve(theirs));
    let connection = Client::new(()).connect(ours).await.unwrap();
    let session = connection.new_session("/tmp").await.unwrap();
    (connection, session.peer_agent())
}

async fn who(directory: &Directory, domain: &str) -> Vec<String> {
    let agents = directory.who_handles(domain).await;
    agents.iter().map(|agent| agent.id().unwrap().to_string()).collect()
}

#[tokio::test]
async fn the_closest_is_queried_first_and_the_dead_are_left_out() {
    let mut directory = Directory::new();
    let (_family, peer) = agent("family", &["family"]).await;
    directory.add(peer);
    let (calendar, peer) = agent("calendar", &["work.calendar", "family.calendar"]).await;
    directory.add(peer);
    let (_all, peer) = agent("all", &["*"]).await;
    directory.add(peer);
    let (_silent, peer) = agent("silent", &[]).await;
    directory.add(peer);

    assert_eq!(who(&directory, "family.calendar").await, ["calendar", "family", "all"]);
    assert_eq!(who(&directory, "work.calendar").await, ["calendar", "all"]);
    assert_eq!(who(&directory, "logistics").await, ["all"]);

    calendar.close().await;
    assert_eq!(who(&directory, "family.calendar").await, ["family", "all"]);
    let told: Vec<bool> = directory.notify("meta.news", json!(1)).await.iter().map(Result::is_ok).collect();
    assert_eq!(told, [true, false, true, true]);
    directory.retain_connected();
    assert_eq!(directory.agents().len(), 3);
}

/// A peer that does not read delays neither the other peers nor the sender for ever.
#[tokio::test(start_paused = true)]
async fn broadcasts_do_not_wait_for_a_peer_that_does_not_read() {
    let meta = || json!({"_meta": {"duologue": {"envelope": {"v": [1]}}}});
    let (mute, _unread) = client_of(Wire::Memory, Client::new(()), meta()).await;
    let (well, mut reads) = client_of(Wire::Memory, Client::new(()), meta()).await;
    let mute = mute.peer_agent().in_session("s");
    mute.notify("much", json!("x".repeat(9 << 20))).await.unwrap();
    let mut directory = Directory::new();
    directory.add(mute).add(well.peer_agent().in_session("s"));
    let begin = Instant::now();
    let telling =
        tokio::spawn(directory.notify("meta.news", json!(1)).importance(Importance::High).into_future());
    let told = reads.expect("_session/notify").await;
    assert_eq!(told["params"]["envelope"]["payload"]["importance"], "high");
    let told = telling.await.unwrap();
    assert!(
        matches!(&told[0], Err(Error::Timeout { kind: EnvelopeKind::Notify, .. })) && told[1].is_ok(),
        "{told:?}"
    );
    assert_eq!(begin.elapsed().as_secs(), 10);
}
