//! Clients that continue on another connection, also at a server that has lost records in a power cut.

use std::path::Path;

use duologue_hub::Hub;
use duologue_test_support::in_time;
use serde_json::{Value, json};

use super::{change_log, new_session, text_prompt};
use crate::hub::{RawClient, agent_text, open_when_free, settings};

/// The place in a session at which a client continues.
struct Place {
    key: Value,
    session: Value,
    position: Value,
    frames: u64,
}

impl Place {
    /// Continues here. Returns the text before the response, and the response.
    async fn continue_at(&self, hub: &Hub) -> (String, Value) {
        let (_client, mut received) = self.received_at(hub).await;
        let response = received.pop().expect("a response");
        (received.iter().map(agent_text).collect(), response)
    }

    /// Continues here. Returns what the client receives, the response last.
    async fn received_at(&self, hub: &Hub) -> (RawClient, Vec<Value>) {
        let mut client = RawClient::new(hub);
        let own = json!({"duologue": {"client": self.key}});
        client.request(0, "initialize", json!({"protocolVersion": 1, "_meta": own})).await;
        let own = json!({"duologue": {"after": {"position": self.position, "frames": self.frames}}});
        let resume = json!({"sessionId": self.session, "cwd": "/tmp", "_meta": own});
        client.send(1, "session/resume", resume).await;
        let mut received = Vec::new();
        loop {
            received.push(client.next().await);
            if received.last().is_some_and(|message| message["id"] == 1) {
                return (client, received);
            }
        }
    }
}

/// A client that counts its frames.
struct Reader {
    client: RawClient,
    requests: u32,
    place: Place,
}

impl Reader {
    /// Creates a session, or loads this one.
    async fn new(hub: &Hub, session: Option<&Value>) -> Self {
        let mut client = RawClient::new(hub);
        let introduced = client.initialize().await;
        let (mut method, mut params) = ("session/new", new_session());
        if let Some(session) = session {
            (method, params["sessionId"]) = ("session/load", session.clone());
        }
        let opened = client.request(1, method, params).await;
        let place = Place {
            key: introduced["result"]["_meta"]["duologue"]["client"].clone(),
            session: session.unwrap_or(&opened["result"]["sessionId"]).clone(),
            position: opened["result"]["_meta"]["duologue"]["position"].clone(),
            frames: 0,
        };
        Reader { client, requests: 1, place }
    }

    async fn turn(&mut self) {
        self.requests += 1;
        let mut prompt = text_prompt(&self.place.session, "hello");
        prompt["_meta"] = json!({"duologue": {"fresh": true}});
        self.client.send(self.requests, "session/prompt", prompt).await;
        loop {
            let message = self.client.next().await;
            if message["id"] == self.requests {
                assert!(message["result"].is_object(), "{message}");
                return;
            }
            self.place.frames += u64::from(message["params"]["sessionId"] == self.place.session);
        }
    }

    /// Opens the session behind what was read.
    async fn open_again(&mut self) {
        self.requests += 1;
        let resume = json!({"sessionId": self.place.session, "cwd": "/tmp"});
        let resumed = self.client.request(self.requests, "session/resume", resume).await;
        self.place.position = resumed["result"]["_meta"]["duologue"]["position"].clone();
        self.place.frames = 0;
    }
}

/// Ends a hub, and starts the next one.
async fn restarted(hub: Hub, data: &Path, change: impl Fn(&mut Vec<String>)) -> Hub {
    hub.shut_down().await;
    drop(hub);
    change_log(data, change);
    open_when_free(|| settings(data, 0)).await
}

#[tokio::test]
async fn a_client_that_read_lost_records_is_refused() {
    // The records behind its position are lost, and then the position too.
    for is_position_lost in [false, true] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let hub = Hub::open(settings(data.path(), 0)).unwrap();
            let mut reader = Reader::new(&hub, None).await;
            reader.turn().await;
            if is_position_lost {
                reader.open_again().await;
            }
            let Reader { place, client, .. } = reader;
            drop(client);
            let power_cut = |lines: &mut Vec<String>| {
                let prompt = lines.iter().position(|line| line.contains(r#""event":"prompt""#));
                lines.truncate(prompt.expect("a prompt") + 2);
            };
            let hub = restarted(hub, data.path(), power_cut).await;
            // Other records get the numbers of the lost ones.
            let mut other = Reader::new(&hub, Some(&place.session)).await;
            for _ in 0..3 {
                other.turn().await;
            }
            let (_, refused) = place.continue_at(&hub).await;
            assert_eq!(refused["error"]["data"]["code"], "cursor_gone", "{refused}");
            hub.shut_down().await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_of_an_earlier_life_receives_what_is_missing() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut reader = Reader::new(&hub, None).await;
        reader.turn().await;
        let Reader { mut place, client, .. } = reader;
        drop(client);
        let hub = restarted(hub, data.path(), |_| {}).await;
        assert!(place.frames > 1);
        let (text, resumed) = place.continue_at(&hub).await;
        assert!(resumed["result"].is_object() && text.is_empty(), "{text}{resumed}");
        let position = resumed["result"]["_meta"]["duologue"]["position"].as_str();
        assert!(position.is_some_and(|position| position.starts_with("2-")), "{resumed}");
        place.frames = 0;
        let (text, resumed) = place.continue_at(&hub).await;
        assert!(resumed["result"].is_object() && !text.is_empty(), "{resumed}");
        hub.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_position_that_the_server_did_not_give_is_refused() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), 0)).unwrap();
        let mut place = Reader::new(&hub, None).await.place;
        // An earlier version gave numbers.
        for position in
            [json!(1), json!("1"), json!(""), json!(null), json!("0-1"), json!("2-1"), json!("1-99")]
        {
            place.position = position;
            let (_, refused) = place.continue_at(&hub).await;
            assert_eq!(refused["error"]["data"]["code"], "cursor_gone", "{}: {refused}", place.position);
        }
        hub.shut_down().await;
    })
    .await;
}

/// The client has received the question or not.
#[tokio::test]
async fn a_client_that_continues_is_asked_once() {
    const QUESTION: &str = "session/request_permission";
    for has_question in [false, true] {
        in_time(async {
            let data = tempfile::tempdir().unwrap();
            let hub = Hub::open(settings(data.path(), 0)).unwrap();
            let Reader { mut client, mut place, .. } = Reader::new(&hub, None).await;
            client.send(2, "session/prompt", text_prompt(&place.session, "permission")).await;
            let asked = loop {
                let message = client.next().await;
                if message["method"] == QUESTION {
                    break message;
                }
                place.frames += u64::from(message["params"]["sessionId"] == place.session);
            };
            place.frames += u64::from(has_question);
            let (mut next, received) = place.received_at(&hub).await;
            let questions: Vec<_> = received.iter().filter(|message| message["method"] == QUESTION).collect();
            assert_eq!(questions, [&asked], "has the question: {has_question}");
            let outcome =
                json!({"outcome": "selected", "optionId": asked["params"]["options"][0]["optionId"]});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}});
            next.send_line(&answer.to_string()).await;
            // Nobody asks again.
            let ended = loop {
                let message = next.next().await;
                assert_ne!(message["method"], QUESTION, "{message}");
                if message["id"] == 2 {
                    break message;
                }
            };
            assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
            hub.shut_down().await;
        })
        .await;
    }
}
