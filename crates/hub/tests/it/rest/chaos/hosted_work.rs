//! A task and a message for an agent that the gateway starts.

use std::collections::BTreeSet;

use duologue_hub::DELIVERY_ID;
use duologue_store::{OutboxQuery, OutboxState};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Flow;
use crate::hub::{AGENT, TRACES};
use crate::receiver::{Receiver, accept};
use crate::remote_agents::until;
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, Call, RestWorld, events};

const TASK: &str = "/agents/writer/tasks/t1";
const MESSAGE: &str = "/agents/writer/messages/m1";
/// The prompts, each of which occurs nowhere else.
const PROMPTS: [&str; 2] = ["permission for t1", "hello from m1"];

/// A task that asks a question and has a callback, and then a message. Both are safe to repeat, or not.
pub(super) struct HostedWork {
    is_safe: bool,
    has_restarts: bool,
    receiver: Receiver,
    traces: TempDir,
    /// The paths of what was accepted.
    accepted: Vec<&'static str>,
    /// The ends that were seen.
    ends: Vec<Value>,
}

impl HostedWork {
    pub(super) async fn new(is_safe: bool) -> Self {
        let (receiver, traces) = (Receiver::start(accept).await, tempfile::tempdir().unwrap());
        HostedWork { is_safe, has_restarts: true, receiver, traces, accepted: Vec::new(), ends: Vec::new() }
    }

    /// Lets all work succeed.
    pub(super) fn without_restarts(mut self) -> Self {
        self.has_restarts = false;
        self
    }

    /// Returns the task and the message, with their paths.
    fn work(&self) -> [(&'static str, Value); 2] {
        let metadata = if self.is_safe { json!({"retry": "safe"}) } else { json!({}) };
        let task = json!({
            "taskId": "t1", "task": {"type": "work", "parameters": {"prompt": PROMPTS[0]}},
            "callback": self.receiver.url("/callback"), "streamEndpoint": self.receiver.url("/chunks"),
            "metadata": metadata,
        });
        let content = json!({"type": "query", "content": PROMPTS[1], "metadata": metadata});
        let message = json!({"messageId": "m1", "message": content});
        [(TASK, task), (MESSAGE, message)]
    }

    /// Creates the task, and waits for its question.
    pub(super) async fn begin(&mut self, world: &RestWorld) {
        let [(path, task), _] = self.work();
        world.post(ALICE, path.rsplit_once('/').unwrap().0, task).await.expect(202);
        until(async || {
            let found = world.get(ALICE, path).await.expect(200);
            (found["state"] == "input_required").then_some(())
        })
        .await;
        self.accepted.push(path);
    }

    /// Looks if some work has ended, and answers its question. `Some(None)` is a failure of the gateway.
    async fn look(&self, world: &RestWorld, path: &str) -> Option<Option<Value>> {
        let found = world.get(ALICE, path).await;
        if found.status != 200 {
            return Some(None);
        }
        let found = found.json();
        if found["state"] == "input_required" {
            let answer = json!({"answer": {"optionId": "allow-once"}});
            let answered = world.post(ALICE, &format!("{path}/input"), answer).await;
            assert!([200, 409, 500].contains(&answered.status), "{answered:?}");
        }
        let has_ended = ["completed", "failed", "error"].iter().any(|status| found["status"] == *status);
        has_ended.then_some(Some(found))
    }

    /// Returns how often the agent got a prompt.
    fn prompts(&self, prompt: &str) -> usize {
        let input = std::fs::read_to_string(self.traces.path().join("input")).unwrap_or_default();
        input.lines().filter(|line| line.contains("session/prompt") && line.contains(prompt)).count()
    }
}

/// Returns the parts of a task or a message that do not change after its end.
fn end_of(ended: &Value) -> [Value; 5] {
    ["status", "result", "response", "error", "completedAt"].map(|name| ended[name].clone())
}

impl Flow for HostedWork {
    fn config(&self) -> String {
        let agent = format!("{AGENT} = \"0\"");
        let traces = format!("{agent}, {TRACES} = {:?}", self.traces.path());
        format!("loopback_callbacks = true\n{}", writer().replace(&agent, &traces))
    }

    async fn drive(&mut self, world: &RestWorld) -> Option<()> {
        for (path, body) in self.work() {
            let all = path.rsplit_once('/').unwrap().0;
            match world.post(ALICE, all, body).await.status {
                202 => assert!(!self.accepted.contains(&path), "{path} was lost"),
                200 => {}
                _ => return None,
            }
            self.accepted.push(path);
            let ended = until(async || self.look(world, path).await).await?;
            self.ends.push(ended);
        }
        let store = world.gateway.store();
        until(async || match store.deliveries(&OutboxQuery::default()) {
            Ok(posts) => {
                let mut posts = posts.items.iter();
                let is_sent = posts.len() > 0 && posts.all(|post| post.state == OutboxState::Delivered);
                is_sent.then_some(Some(()))
            }
            Err(_) => Some(None),
        })
        .await
    }

    async fn check(&self, world: &RestWorld, what: &str) {
        for (path, prompt) in [TASK, MESSAGE].into_iter().zip(PROMPTS) {
            let ended = world.get(ALICE, path).await.expect(200);
            for seen in self.ends.iter().filter(|end| end["taskId"] == ended["taskId"]) {
                assert_eq!(end_of(seen), end_of(&ended), "{what}: an end has changed");
            }
            let prompts = self.prompts(prompt);
            if ended["status"] == "completed" {
                assert!(if self.is_safe { prompts >= 1 } else { prompts == 1 }, "{what}: {prompts}, {ended}");
            } else {
                // It had begun, or was about to.
                assert!(self.has_restarts && !self.is_safe && prompts <= 1, "{what}: {prompts}, {ended}");
                assert_eq!(ended["error"]["code"], "restarted", "{what}: {ended}");
            }
        }
        let task = world.get(ALICE, TASK).await.expect(200);
        let stream = world.open(&Call::new("GET", &format!("{TASK}/events")).key(ALICE)).await.end().await;
        let events = events(&stream);
        assert_eq!(events.iter().filter(|(name, ..)| name == "end").count(), 1, "{what}: {events:?}");
        let posts = self.receiver.received();
        let (callbacks, chunks): (Vec<_>, Vec<_>) = posts.iter().partition(|post| post.path == "/callback");
        assert!(!callbacks.is_empty(), "{what}: there is no callback");
        for post in &callbacks {
            let body: Value = serde_json::from_slice(&post.body).unwrap();
            let parts = |value: &Value| ["status", "result", "error"].map(|name| value[name].clone());
            assert_eq!(parts(&body), parts(&task), "{what}");
            assert_eq!(post.headers[DELIVERY_ID], callbacks[0].headers[DELIVERY_ID], "{what}");
        }
        // That of a lost task says that there may have been more.
        let last = chunks.iter().filter(|post| {
            serde_json::from_slice::<Value>(&post.body).is_ok_and(|chunk| chunk["complete"] == true)
        });
        let last: BTreeSet<_> = last.map(|post| post.headers[DELIVERY_ID].to_str().unwrap()).collect();
        assert_eq!(last.len(), 1, "{what}: {chunks:?}");
    }
}
