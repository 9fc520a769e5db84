//! The plans, the child sessions and the system prompts of an agent whose client is scripted.

use std::sync::Arc;
use std::sync::Mutex;

use duologue_agent::schema::{
    AgentCapabilities, PlanEntry, PlanEntryPriority, PlanEntryStatus, PlanItems, PlanMarkdown,
    SessionCapabilities, SessionSystemPromptCapabilities, SessionSystemPromptModeCapabilities,
    SessionSystemPromptOverrideCapabilities, StateUpdate,
};
use duologue_agent::{
    Agent, Context, NewSubagent, Prompt, Result, Session, SessionSetup, StopReason, Subagent, Turn, serve,
};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Does as the prompt says.
#[derive(Default)]
struct Delegating {
    capabilities: AgentCapabilities,
    prompts: Mutex<Vec<String>>,
}

impl Delegating {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.prompts.lock().expect("no panic"))
    }
}

impl Agent for Delegating {
    fn capabilities(&self) -> AgentCapabilities {
        self.capabilities.clone()
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        if let Some(prompt) = session.system_prompt() {
            let text = format!("{} {:?}", prompt.mode.as_str(), prompt.content[0].as_text());
            self.prompts.lock().expect("no panic").push(text);
        }
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "plan" => {
                let entry = PlanEntry::new("Test", PlanEntryPriority::High, PlanEntryStatus::Pending);
                turn.show_plan(PlanItems::new("a", vec![entry])).await?;
                turn.remove_plan("other").await?;
                turn.remove_plan("a").await?;
            }
            "replan" => {
                let entry = PlanEntry::new("Test", PlanEntryPriority::High, PlanEntryStatus::Pending);
                turn.show_plan(PlanItems::new("a", vec![entry])).await?;
                turn.show_plan(PlanMarkdown::new("b", "Another one")).await?;
                turn.show_plan(PlanMarkdown::new("a", "# Test").path("/plan.md")).await?;
                let relative = turn.show_plan(PlanMarkdown::new("a", "# Test").path("plan.md")).await;
                assert_eq!(relative.is_err(), turn.client().capabilities().plan.is_some());
            }
            "reference" => {
                let child = review(turn).start().await?;
                let call = turn.tool_call("Delegate").id("t").start().await?;
                call.session(child.id().clone()).await?;
                call.complete().await?;
            }
            "child" => {
                let child = review(turn).start().await?;
                child.instruct("Look.").await?;
                child.message().with_id("m").push("Fine.").await?;
                let _open = child.tool_call("Read").id("t").start().await?;
                child.set_state(StateUpdate::requires_action()).await?;
                child.report("Done.").await?;
                child.finish(StopReason::EndTurn);
            }
            "pieces" => {
                let child = review(turn).start().await?;
                let mut instruction = child.write_instruction();
                instruction.push("Loo").await?;
                instruction.push("k.").await?;
                let mut report = child.write_report();
                report.push("Done.").await?;
                child.finish(StopReason::EndTurn);
            }
            "dropped" => drop(review(turn).start().await?),
            "cancellable" => {
                let child: Subagent = review(turn).cancellable().cwd("/elsewhere").start().await?;
                child.cancelled().await;
                assert!(!turn.is_cancelled());
            }
            "relative" => drop(review(turn).cwd("elsewhere").start().await?),
            other => panic!("{other}"),
        }
        Ok(StopReason::EndTurn)
    }
}

fn review(turn: &Turn) -> NewSubagent {
    turn.subagent("Review").description("Reads the change")
}

fn all() -> AgentCapabilities {
    let mode =
        SessionSystemPromptModeCapabilities::new().r#override(SessionSystemPromptOverrideCapabilities::new());
    let prompts = SessionSystemPromptCapabilities::new().mode(mode);
    AgentCapabilities::new().session_capabilities(SessionCapabilities::new().system_prompt(prompts))
}

async fn client_of(
    capabilities: AgentCapabilities,
    client: Value,
) -> (ScriptedPeer, Arc<Delegating>, String) {
    let (transport, mut peer) = Wire::Memory.scripted();
    let agent = Arc::new(Delegating { capabilities, ..Delegating::default() });
    tokio::spawn(serve(agent.clone(), transport));
    let response = peer.initialize(client).await;
    assert!(response["result"].is_object(), "{response}");
    let session = peer.new_session().await;
    (peer, agent, session)
}

fn prompt_of(mode: &str, text: &str) -> Value {
    json!({"mode": mode, "content": [{"type": "text", "text": text}]})
}

fn setup(session: &str, prompt: &Value) -> Value {
    json!({"sessionId": session, "cwd": "/", "mcpServers": [], "systemPrompt": prompt})
}

#[tokio::test(start_paused = true)]
async fn a_new_session_has_the_system_prompt_of_the_client() {
    in_time(async {
        let (mut client, agent, _) = client_of(all(), json!({})).await;
        for mode in ["append", "override"] {
            let response = client.request("session/new", setup("", &prompt_of(mode, "Be brief."))).await;
            assert!(response["result"].is_object(), "{response}");
        }
        assert_eq!(agent.take(), ["append Some(\"Be brief.\")", "override Some(\"Be brief.\")"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_system_prompt_is_refused() {
    in_time(async {
        let only_append = AgentCapabilities::new().session_capabilities(
            SessionCapabilities::new().system_prompt(SessionSystemPromptCapabilities::new()),
        );
        let image =
            json!({"mode": "append", "content": [{"type": "image", "data": "", "mimeType": "image/png"}]});
        for (capabilities, prompt) in [
            (all(), prompt_of("prepend", "a")),
            (all(), image),
            (all(), json!({"mode": "append", "content": []})),
            (only_append, prompt_of("override", "a")),
            (AgentCapabilities::new(), prompt_of("append", "a")),
        ] {
            let (mut client, agent, _) = client_of(capabilities, json!({})).await;
            let response = client.request("session/new", setup("", &prompt)).await;
            assert_eq!(response["error"]["code"], -32602, "{prompt}: {response}");
            assert!(agent.take().is_empty());
        }
    })
    .await;
}

/// Returns the updates until the response to `prompt`, with their sessions, and the response.
async fn updates(client: &mut ScriptedPeer, prompt: u64) -> (Vec<(String, Value)>, Value) {
    let mut updates = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            return (updates, message);
        }
        let session = message["params"]["sessionId"].as_str().expect("a session").to_owned();
        updates.push((session, message["params"]["update"].clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_one_plan_gets_the_last_one() {
    in_time(async {
        let kinds = |updates: &[(String, Value)]| -> Vec<Value> {
            updates.iter().map(|(_, update)| update["sessionUpdate"].clone()).collect()
        };
        let (mut client, _, session) = client_of(all(), json!({"plan": {}})).await;
        let prompt = client.prompt(&session, "plan").await;
        let (several, _) = updates(&mut client, prompt).await;
        assert_eq!(kinds(&several), ["plan_update", "plan_removed", "plan_removed"]);
        let (mut client, _, session) = client_of(all(), json!({})).await;
        let prompt = client.prompt(&session, "plan").await;
        let (one, _) = updates(&mut client, prompt).await;
        assert_eq!(kinds(&one), ["plan", "plan"]);
        let steps: Vec<_> = one.iter().map(|(_, plan)| plan["entries"].as_array().map(Vec::len)).collect();
        assert_eq!(steps, [Some(1), Some(0)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_between_sessions_is_written_in_pieces() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "pieces").await;
        let (updates, _) = updates(&mut client, prompt).await;
        let kinds = |update: &Value| {
            update["sessionUpdate"].as_str().unwrap_or_default().starts_with("session_message")
        };
        let messages: Vec<_> = updates.iter().filter(|(_, update)| kinds(update)).collect();
        let shown: Vec<_> = messages
            .iter()
            .map(|(of, update)| {
                let text = update["content"]["text"].as_str().unwrap_or("begins");
                format!("{} {text}", if *of == session { "parent" } else { "child" })
            })
            .collect();
        assert_eq!(
            shown,
            [
                "parent begins",
                "child begins",
                "parent Loo",
                "child Loo",
                "parent k.",
                "child k.",
                "child begins",
                "parent begins",
                "child Done.",
                "parent Done.",
            ]
        );
        // Both views have an id of their own, and name the other.
        let (sent, received) = (&messages[0].1, &messages[1].1);
        assert_eq!(sent["recipientMessageId"], received["messageId"]);
        assert_eq!(received["senderMessageId"], sent["messageId"]);
        assert_eq!(
            (&messages[2].1["messageId"], &messages[3].1["messageId"]),
            (&sent["messageId"], &received["messageId"])
        );
        assert_eq!(messages[6].1["recipientMessageId"], messages[7].1["messageId"]);
        assert_eq!(messages[6].1["recipientSessionId"], json!(session));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_session_has_its_own_updates() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "child").await;
        let (updates, response) = updates(&mut client, prompt).await;
        assert_eq!(response["result"]["stopReason"], "end_turn");
        let (_, announced) = &updates[0];
        let child = announced["sessionId"].as_str().expect("an id");
        assert_eq!(
            announced,
            &json!({
                "sessionUpdate": "subagent_update", "sessionId": child, "title": "Review",
                "description": "Reads the change", "state": {"state": "running"},
            })
        );
        let short: Vec<_> = updates[1..]
            .iter()
            .map(|(of, update)| {
                let kind = update["sessionUpdate"].as_str().unwrap_or_default();
                let detail = [&update["state"]["state"], &update["status"], &update["content"][0]["text"]];
                let detail = detail.iter().find_map(|value| value.as_str()).unwrap_or_default();
                format!("{} {kind} {detail}", if *of == session { "parent" } else { "child" })
            })
            .collect();
        assert_eq!(
            short,
            [
                "parent session_message Look.",
                "child session_message Look.",
                "child agent_message_chunk ",
                "child tool_call in_progress",
                "parent subagent_update requires_action",
                "child session_message Done.",
                "parent session_message Done.",
                "child tool_call_update failed",
                "parent subagent_update idle",
            ]
        );
        // The two views of a message name each other.
        let (sent, received) = (&updates[1].1, &updates[2].1);
        assert_eq!((&sent["senderSessionId"], &sent["recipientSessionId"]), (&json!(session), &json!(child)));
        assert_eq!(sent["recipientMessageId"], received["messageId"]);
        assert_eq!(received["senderMessageId"], sent["messageId"]);
        assert_eq!(updates[9].1["state"], json!({"state": "idle", "stopReason": "end_turn"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_child_is_idle() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "dropped").await;
        let (updates, _) = updates(&mut client, prompt).await;
        assert_eq!(updates.len(), 2);
        assert_eq!(updates[1].1["state"], json!({"state": "idle"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_cancels_the_work_of_a_child_alone() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "cancellable").await;
        let announced = client.next_message().await["params"]["update"].clone();
        assert_eq!(
            (&announced["capabilities"], &announced["cwd"]),
            (&json!({"cancel": {}}), &json!("/elsewhere"))
        );
        client.cancel(announced["sessionId"].as_str().expect("an id")).await;
        let (updates, response) = updates(&mut client, prompt).await;
        assert_eq!(updates[0].1["state"], json!({"state": "idle", "stopReason": "cancelled"}));
        assert_eq!(response["result"]["stopReason"], "end_turn");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_needs_a_client_that_shows_it() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({})).await;
        client.prompt(&session, "child").await;
        let response = client.next_message().await;
        let detail = response["error"]["data"]["detail"].as_str().expect("a detail");
        assert!(detail.contains("advertise subagents"), "{detail}");
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        client.prompt(&session, "relative").await;
        let response = client.next_message().await;
        let message = response["error"]["message"].as_str().expect("a message");
        assert!(message.contains("relative path"), "{message}");
    })
    .await;
}

/// The type of a plan changes: the whole plan is replaced, also for a client that shows lists of steps only.
#[tokio::test(start_paused = true)]
async fn a_plan_that_becomes_markdown_replaces_its_steps() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"plan": {}})).await;
        let prompt = client.prompt(&session, "replan").await;
        let (several, response) = updates(&mut client, prompt).await;
        assert_eq!(response["result"]["stopReason"], "end_turn");
        let plans: Vec<_> = several.iter().map(|(_, update)| &update["plan"]).collect();
        assert_eq!(plans.len(), 3);
        assert_eq!((&plans[0]["type"], &plans[1]["planId"]), (&json!("items"), &json!("b")));
        let markdown = json!({"type": "markdown", "planId": "a", "content": "# Test", "path": "/plan.md"});
        assert_eq!(plans[2], &markdown);
        let (mut client, _, session) = client_of(all(), json!({})).await;
        let prompt = client.prompt(&session, "replan").await;
        let (one, _) = updates(&mut client, prompt).await;
        let steps: Vec<_> = one.iter().map(|(_, plan)| plan["entries"].as_array().map(Vec::len)).collect();
        assert_eq!(steps, [Some(1), Some(0)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_refers_to_a_child_session() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "reference").await;
        let (updates, _) = updates(&mut client, prompt).await;
        let child = &updates[0].1["sessionId"];
        let contents: Vec<_> = updates
            .iter()
            .filter_map(|(_, update)| update.get("content").filter(|it| it.is_array()))
            .collect();
        assert_eq!(contents, [&json!([{"type": "session", "sessionId": child}])]);
    })
    .await;
}
