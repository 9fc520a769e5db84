//! Slash commands of prompts, and the modes and options that an agent reads back from its session.

use duologue_agent::schema::{
    AvailableCommand, SessionConfigOption, SessionMode, SessionModeState, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use duologue_agent::{Agent, Context, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
use duologue_test_support::{ScriptedPeer, Wire, in_time};
use serde_json::{Value, json};

/// Answers with the command of the prompt, the current mode and the ids of the options.
struct Commanded;

impl Agent for Commanded {
    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        let commands = [("plan", "Plans"), ("plan big", "Plans more"), ("web", "Searches")];
        let commands = commands.map(|(name, description)| AvailableCommand::new(name, description));
        session.set_commands(commands.to_vec()).await?;
        let modes = vec![SessionMode::new("ask", "Ask"), SessionMode::new("code", "Code")];
        let setup = SessionSetup::new().modes(SessionModeState::new("ask", modes)).mirror_modes();
        Ok(setup.config_options(vec![SessionConfigOption::boolean("verbose", "Verbose", false)]))
    }

    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        Ok(())
    }

    async fn set_config_option(
        &self,
        _: &Context,
        session: &Session,
        _: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        Ok(session.config_options())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        if prompt.text() == "only web" {
            turn.set_commands(vec![AvailableCommand::new("web", "Searches")]).await?;
        }
        let command = prompt.command(turn).map(|command| format!("{}({})", command.name, command.input));
        let mode = turn.modes().map(|modes| modes.current_mode_id.to_string());
        let options: Vec<_> = turn.config_options().iter().map(|option| option.id.to_string()).collect();
        let answer = json!([command, mode, options]).to_string();
        turn.message().push(answer).await?;
        Ok(StopReason::EndTurn)
    }
}

async fn answer(client: &mut ScriptedPeer, session: &Value, prompt: Value) -> Value {
    send(client, "session/prompt", json!({"sessionId": session, "prompt": prompt})).await
}

/// Sends a request. Returns the last message of the agent before the response.
async fn send(client: &mut ScriptedPeer, method: &str, params: Value) -> Value {
    let id = client.send_request(method, params).await;
    let mut answer = Value::Null;
    loop {
        let message = client.next_message().await;
        if message["id"] == id {
            return answer;
        }
        if let Some(text) = message["params"]["update"]["content"]["text"].as_str() {
            answer = serde_json::from_str(text).expect("JSON");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_has_the_command_that_was_offered() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Commanded, transport));
        client.initialize(json!({})).await;
        let opened = client.request("session/new", json!({"cwd": "/", "mcpServers": []})).await;
        let session = opened["result"]["sessionId"].clone();
        let text = |text: &str| json!({"type": "text", "text": text});
        let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
        for (prompt, command) in [
            (json!([text("/web")]), json!("web()")),
            (json!([text("/web  agent client\nprotocol ")]), json!("web(agent client\nprotocol )")),
            (json!([text("/plan big house")]), json!("plan big(house)")),
            (json!([text("/plan bigger")]), json!("plan(bigger)")),
            (json!([text("/plan "), link, text("now")]), json!("plan(now)")),
            (json!([text("/website")]), json!(null)),
            (json!([text("/unknown")]), json!(null)),
            (json!([text("see /web")]), json!(null)),
            (json!([text("web")]), json!(null)),
        ] {
            let answered = answer(&mut client, &session, prompt.clone()).await;
            assert_eq!(answered[0], command, "{prompt}");
            assert_eq!((&answered[1], &answered[2]), (&json!("ask"), &json!(["mode", "verbose"])));
        }
        let switched = json!({"sessionId": session, "modeId": "code"});
        send(&mut client, "session/set_mode", switched).await;
        answer(&mut client, &session, json!([text("only web")])).await;
        let answered = answer(&mut client, &session, json!([text("/plan it")])).await;
        assert_eq!((&answered[0], &answered[1]), (&json!(null), &json!("code")));
        assert_eq!(answer(&mut client, &session, json!([text("/web it")])).await[0], "web(it)");
    })
    .await;
}
