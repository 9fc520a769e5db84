//! Several agents at once.

use duologue_agent::exchange::envelope::{Capabilities, Correspondent, Directory};
use duologue_agent::{Agent, Exchange, PeerAgent, Prompt, Server, StopReason, Turn};
use duologue_client::{Client, Connection, Transport};

struct Knows(&'static [&'static str]);

impl Correspondent for Knows {
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
    let exchange = Exchange::new().agent_id(id).correspondent(Knows(domains));
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
async fn the_closest_is_asked_first_and_the_dead_are_left_out() {
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
    let told: Vec<bool> =
        directory.notify("meta.news", serde_json::json!(1)).await.iter().map(Result::is_ok).collect();
    assert_eq!(told, [true, false, true, true]);
    directory.retain_connected();
    assert_eq!(who(&directory, "family.calendar").await, ["family", "all"]);
}
