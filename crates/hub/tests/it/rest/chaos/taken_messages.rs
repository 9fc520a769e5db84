//! Messages of a group for an agent that takes them over REST.

use serde_json::json;

use super::Flow;
use crate::remote_agents::until;
use crate::rest::world::{ALICE, REMOTE, RestWorld};

const MESSAGES: &str = "/agents/remote/messages";
const IDS: [&str; 3] = ["m1", "m2", "m3"];

/// The attempts of a request that ends a lease.
const ATTEMPTS: u32 = 5;

/// Three messages of a group, of which the agent returns the first one once.
#[derive(Default)]
pub(super) struct TakenMessages {
    /// The ids with an answer to their acceptance, and those whose end was answered.
    accepted: Vec<&'static str>,
    ended: Vec<String>,
    /// Those that were handed out, without repetitions.
    order: Vec<String>,
    has_returned: bool,
}

impl TakenMessages {
    /// Takes a message and ends it, or returns it. `Some(None)` is a failure of the gateway.
    async fn take(&mut self, world: &RestWorld) -> Option<()> {
        let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?max=3&wait=1")).await;
        if claimed.status != 200 {
            return None;
        }
        let claimed = claimed.json();
        let Some(message) = claimed["messages"].get(0) else { return Some(()) };
        assert!(claimed["messages"].get(1).is_none(), "two of a group at once: {claimed}");
        let id = message["messageId"].as_str().unwrap().to_owned();
        assert!(!self.ended.contains(&id), "{id} came again after its end");
        if self.order.last() != Some(&id) {
            self.order.push(id.clone());
        }
        let is_end = std::mem::replace(&mut self.has_returned, true);
        let verb = if is_end { "ack" } else { "nack" };
        let body = json!({"lease": message["lease"], "delay": 0});
        let path = format!("{MESSAGES}/{id}/{verb}");
        let mut attempts = 0;
        while world.post(REMOTE, &path, &body).await.status >= 400 {
            attempts += 1;
            if attempts == ATTEMPTS {
                return None;
            }
        }
        if is_end {
            self.ended.push(id);
        }
        Some(())
    }

    /// Returns true if all messages have ended.
    async fn is_done(&self, world: &RestWorld) -> Option<bool> {
        let listed = world.get(ALICE, MESSAGES).await;
        let all = (listed.status == 200).then(|| listed.json())?;
        Some(all["messages"].as_array().unwrap().iter().all(|message| message["status"] == "completed"))
    }
}

impl Flow for TakenMessages {
    fn config(&self) -> String {
        String::new()
    }

    async fn drive(&mut self, world: &RestWorld) -> Option<()> {
        let registered = world.put(REMOTE, "/registry/agents/remote", "{}").await;
        if registered.status >= 400 {
            return None;
        }
        for id in IDS {
            let message = json!({"messageId": id, "message": {"type": "query", "content": id}, "group": "g"});
            match world.post(ALICE, MESSAGES, message).await.status {
                202 => assert!(!self.accepted.contains(&id), "{id} was lost"),
                200 => {}
                _ => return None,
            }
            self.accepted.push(id);
        }
        while !self.is_done(world).await? {
            self.take(world).await?;
        }
        Some(())
    }

    async fn check(&self, world: &RestWorld, what: &str) {
        assert_eq!(self.order, IDS, "{what}");
        until(async || self.is_done(world).await.filter(|is_done| *is_done)).await;
    }
}
