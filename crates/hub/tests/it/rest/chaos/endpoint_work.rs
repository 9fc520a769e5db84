//! A task and a message for an agent that serves the REST interface itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use duologue_rpc::Lock as _;
use serde_json::{Value, json};

use super::Flow;
use crate::receiver::{Received, Receiver};
use crate::remote_agents::until;
use crate::rest::endpoints::behind;
use crate::rest::world::{ALICE, RestWorld};

const WORK: [(&str, &str); 2] = [("/agents/writer/tasks", "t1"), ("/agents/writer/messages", "m1")];

/// A task with progress, and then a message. The agent knows both by their ids, so it begins each once.
pub(super) struct EndpointWork {
    agent: Receiver,
    /// The work at the agent by its id, with the number of looks at it.
    begun: Arc<Mutex<BTreeMap<String, usize>>>,
    accepted: Vec<&'static str>,
}

impl EndpointWork {
    pub(super) async fn new() -> Self {
        let begun = Arc::new(Mutex::default());
        let works = Arc::clone(&begun);
        let agent = Receiver::start(move |_, call| answer(&works, call)).await;
        EndpointWork { agent, begun, accepted: Vec::new() }
    }
}

/// Accepts work, shows progress at the first look, and then the end.
fn answer(begun: &Mutex<BTreeMap<String, usize>>, call: &Received) -> Response {
    let mut begun = begun.lock_unpoisoned();
    let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    if let Some(id) = body["taskId"].as_str().or_else(|| body["messageId"].as_str()) {
        begun.entry(id.to_owned()).or_default();
        return (StatusCode::ACCEPTED, r#"{"status": "processing"}"#).into_response();
    }
    let id = call.path.rsplit('/').next().unwrap_or_default();
    let found = match begun.get_mut(id) {
        Some(looks) => {
            *looks += 1;
            match *looks {
                1 => json!({"status": "processing", "progress": 40}),
                _ => json!({"status": "completed", "result": {"text": "done"}, "response": "done"}),
            }
        }
        None if id == "capabilities" => json!({}),
        None => return (StatusCode::NOT_FOUND, r#"{"code": "not_found", "message": "m"}"#).into_response(),
    };
    found.to_string().into_response()
}

impl Flow for EndpointWork {
    fn config(&self) -> String {
        behind(self.agent.address, "")
    }

    async fn drive(&mut self, world: &RestWorld) -> Option<()> {
        for (path, id) in WORK {
            let body = match id {
                "t1" => json!({"taskId": id, "task": {"type": "write", "parameters": {}}}),
                _ => json!({"messageId": id, "message": {"type": "query", "content": "c"}}),
            };
            match world.post(ALICE, path, body).await.status {
                202 => assert!(!self.accepted.contains(&id), "{id} was lost"),
                200 => {}
                _ => return None,
            }
            self.accepted.push(id);
            until(async || {
                let found = world.get(ALICE, &format!("{path}/{id}")).await;
                if found.status != 200 {
                    return Some(None);
                }
                let has_ended = !["pending", "received", "processing"]
                    .contains(&found.json()["status"].as_str().unwrap());
                has_ended.then_some(Some(()))
            })
            .await?;
        }
        Some(())
    }

    async fn check(&self, world: &RestWorld, what: &str) {
        for (path, id) in WORK {
            let ended = world.get(ALICE, &format!("{path}/{id}")).await.expect(200);
            assert_eq!(ended["status"], "completed", "{what}: {ended}");
        }
        let begun: Vec<String> = self.begun.lock_unpoisoned().keys().cloned().collect();
        let [message, task] = &begun[..] else { panic!("{what}: {begun:?}") };
        assert!(message.starts_with("m1.") && task.starts_with("t1."), "{what}: {begun:?}");
    }
}
