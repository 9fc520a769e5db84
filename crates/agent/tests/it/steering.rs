//! `_session/steering`: messages of the user for a running turn.

use std::sync::Mutex;

use duologue_agent::schema::SteerOutcome;
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, StopReason, Turn, serve};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

#[derive(Default)]
struct Inbox(Mutex<Vec<String>>, tokio::sync::Notify);

struct Steerable;

impl Agent for Steerable {
    async fn steer(&self, _: &Context, session: &Session, message: Prompt) -> Result<SteerOutcome> {
        let inbox = session.state::<Inbox>();
        match message.text().as_str() {
            "alone" => return Ok(SteerOutcome::StartedNewTurn),
            "no" => return Ok(SteerOutcome::Failed),
            "error" => return Err(Error::other("broken")),
            text => inbox.0.lock().expect("no panic").push(text.to_owned()),
        }
        inbox.1.notify_one();
        Ok(SteerOutcome::Injected)
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let inbox = turn.state::<Inbox>();
        if prompt.text() == "read" {
            turn.read_text_file("/a").await?;
            return Ok(StopReason::EndTurn);
        }
        inbox.1.notified().await;
        let text = inbox.0.lock().expect("no panic").join(" ");
        turn.message().push(text).await?;
        Ok(StopReason::EndTurn)
    }
}

struct Plain;

impl Agent for Plain {
    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

async fn client_of(agent: impl Agent) -> (ScriptedPeer, Value, String) {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(agent, transport));
    let response = client.initialize(json!({})).await;
    let session = client.new_session().await;
    (client, response, session)
}

fn steering(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

#[tokio::test(start_paused = true)]
async fn a_message_reaches_the_running_turn() {
    in_time(async {
        let (mut client, response, session) = client_of(std::sync::Arc::new(Steerable)).await;
        assert_eq!(response["result"]["_meta"]["steering"]["supported"], true, "{response}");
        let prompt = client.prompt(&session, "go").await;
        let answer = client.request("_session/steering", steering(&session, "faster")).await;
        assert_eq!(answer["result"], json!({"outcome": "injected"}));
        let chunk = client.next_message().await;
        assert_eq!(chunk["params"]["update"]["content"]["text"], "faster");
        assert_eq!(client.next_message().await["id"], prompt);
    })
    .await;
}

/// The message would wait in the agent for a turn that does not come.
#[tokio::test(start_paused = true)]
async fn a_message_does_not_reach_the_agent_if_the_turn_has_just_ended() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Steerable, transport));
        client.initialize(json!({"fs": {"readTextFile": true}})).await;
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "read").await;
        let read = client.expect("fs/read_text_file").await;
        // In one write: the response ends the turn while the message is read.
        let end = json!({"jsonrpc": "2.0", "id": read["id"], "result": {"content": ""}});
        let mut params = steering(&session, "late");
        params["_meta"] = json!({"steering": {"idleBehavior": "promptRequired"}});
        let steer = json!({"jsonrpc": "2.0", "id": "steer", "method": "_session/steering", "params": params});
        client.write(format!("{end}\n{steer}\n")).await;
        assert_eq!(client.next_message().await["id"], prompt);
        let answer = client.next_message().await;
        assert_eq!(answer["result"]["outcome"], "promptRequired", "{answer}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_outcome_has_its_name() {
    in_time(async {
        let (mut client, _, session) = client_of(Steerable).await;
        for (text, outcome) in [("alone", "startedNewTurn"), ("no", "failed")] {
            let answer = client.request("_session/steering", steering(&session, text)).await;
            assert_eq!(answer["result"]["outcome"], outcome);
        }
        let mut idle = steering(&session, "alone");
        idle["_meta"] = json!({"steering": {"idleBehavior": "promptRequired"}});
        let answer = client.request("_session/steering", idle).await;
        assert_eq!(answer["result"]["outcome"], "promptRequired", "the agent is not called");
        let answer = client.request("_session/steering", steering(&session, "error")).await;
        assert_eq!(answer["error"]["code"], -32603);
        let answer = client.request("_session/steering", steering("other", "a")).await;
        assert_eq!(answer["error"]["code"], -32002);
        let answer = client.request("_session/steering", json!({"sessionId": session})).await;
        assert_eq!(answer["error"]["code"], -32602);
        assert_eq!(answer["error"]["message"], "_session/steering: missing field `prompt`");
        let mut image = steering(&session, "a");
        image["prompt"][0] = json!({"type": "image", "data": "", "mimeType": "image/png"});
        let answer = client.request("_session/steering", image).await;
        assert_eq!(answer["error"]["code"], -32602);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_steering_does_not_advertise_it() {
    in_time(async {
        let (mut client, response, session) = client_of(Plain).await;
        assert_eq!(response["result"]["_meta"], Value::Null);
        let answer = client.request("_session/steering", steering(&session, "faster")).await;
        assert_eq!(answer["error"]["code"], -32601);
    })
    .await;
}
