//! Modes and options: choices that were not offered are rejected, and mirrored modes stay in step.

use duologue_agent::schema::{
    AgentCapabilities, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionConfigSelectGroup, SessionConfigSelectOption, SessionMode, SessionModeState,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// The name of the folder of a session selects the offered modes and options.
struct Configured;

fn modes() -> SessionModeState {
    SessionModeState::new("ask", vec![SessionMode::new("ask", "Ask"), SessionMode::new("code", "Code")])
}

fn model(current: &str) -> SessionConfigOption {
    let value = |id: &str| SessionConfigSelectOption::new(id, id);
    let groups = vec![
        SessionConfigSelectGroup::new("fast", "Fast", vec![value("small")]),
        SessionConfigSelectGroup::new("clever", "Clever", vec![value("large")]),
    ];
    SessionConfigOption::select("model", "Model", current, groups)
}

fn mode_option(current: &str) -> SessionConfigOption {
    let values = vec![
        SessionConfigSelectOption::new("ask", "Ask").description("Asks first"),
        SessionConfigSelectOption::new("code", "Code"),
    ];
    SessionConfigOption::select("style", "Style", current, values).category(SessionConfigOptionCategory::Mode)
}

fn verbose() -> SessionConfigOption {
    SessionConfigOption::boolean("verbose", "Verbose", false)
}

impl Agent for Configured {
    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        let setup = SessionSetup::new();
        Ok(match session.cwd().to_str().unwrap_or_default() {
            "/offered" => setup.modes(modes()).config_options(vec![model("small"), verbose()]),
            "/modes" | "/mirrored/kept" => setup.modes(modes()).mirror_modes(),
            "/kept" => setup.modes(modes()),
            "/both" => setup.modes(modes()).config_options(vec![model("small"), verbose()]).mirror_modes(),
            "/option" => setup.config_options(vec![model("small"), mode_option("ask")]).mirror_modes(),
            "/early" => {
                session.mode_changed("code").await?;
                setup.modes(modes()).mirror_modes()
            }
            "/differ" => {
                let option = SessionConfigOption::select(
                    "style",
                    "Style",
                    "short",
                    vec![
                        SessionConfigSelectOption::new("short", "Short"),
                        SessionConfigSelectOption::new("long", "Long"),
                    ],
                );
                let option = option.category(SessionConfigOptionCategory::Mode);
                setup.modes(modes()).config_options(vec![option]).mirror_modes()
            }
            "/stubborn" => setup.config_options(vec![mode_option("ask")]).mirror_modes(),
            "/taken" => {
                let taken = SessionConfigOption::boolean("mode", "Taken", true);
                setup.modes(modes()).config_options(vec![taken]).mirror_modes()
            }
            _ => setup,
        })
    }

    async fn set_mode(&self, _: &Context, session: &Session, _: SetSessionModeRequest) -> Result<()> {
        if session.cwd().ends_with("option") {
            return Err(Error::other("the agent has options only"));
        }
        if session.cwd().ends_with("kept") {
            session.mode_changed("ask").await?;
        }
        Ok(())
    }

    async fn set_config_option(
        &self,
        _: &Context,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        let value = match &request.value {
            SessionConfigOptionValue::ValueId(value) => value.as_str(),
            _ => "small",
        };
        Ok(match request.config_id.as_str() {
            "style" if session.cwd().ends_with("stubborn") => vec![mode_option("ask")],
            "style" if session.cwd().ends_with("differ") => vec![],
            "style" => vec![model("small"), mode_option(value)],
            "model" if session.cwd().ends_with("option") => vec![model(value), mode_option("ask")],
            _ => vec![model(value), verbose()],
        })
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "keep the turn" => turn.set_state(turn.clone()),
            "a late mode" => {
                let ended = turn.get_state::<Turn>().ok_or_else(|| Error::other("no turn"))?;
                let late = ended.mode_changed("code").await;
                assert!(matches!(late, Err(Error::TurnEnded)), "{late:?}");
            }
            "mode" => turn.mode_changed("code").await?,
            "mode between turns" => turn.session().mode_changed("code").await?,
            _ => {
                let option = mode_option("code");
                turn.config_changed(vec![model("large"), verbose(), option]).await?;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

async fn connected(folder: &str) -> (ScriptedPeer, String, Value) {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(Configured, transport));
    client.initialize(json!({})).await;
    let answer = client.request("session/new", json!({"cwd": folder, "mcpServers": []})).await;
    let session = answer["result"]["sessionId"].as_str().expect("an id").to_owned();
    (client, session, answer["result"].clone())
}

/// Returns the ids and current values of options.
fn values(options: &Value) -> Vec<String> {
    let options = options.as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    options.map(|option| format!("{}={}", text(&option["id"]), text(&option["currentValue"]))).collect()
}

/// Sends a request or a prompt. Returns the updates before the response as text, and the response.
async fn send(client: &mut ScriptedPeer, method: &str, params: Value) -> (Vec<String>, Value) {
    let id = client.send_request(method, params).await;
    let mut updates = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == id {
            return (updates, message);
        }
        let update = &message["params"]["update"];
        updates.push(match update["currentModeId"].as_str() {
            Some(mode) => mode.to_owned(),
            None => values(&update["configOptions"]).join(" "),
        });
    }
}

#[tokio::test(start_paused = true)]
async fn choices_that_were_not_offered_are_rejected() {
    in_time(async {
        for folder in ["/offered", "/nothing"] {
            for (params, fault) in [
                (json!({"modeId": "code"}), None),
                (json!({"modeId": "chaos"}), Some("the session has no mode chaos; it has ask, code")),
                (json!({"configId": "model", "value": "large"}), None),
                (
                    json!({"configId": "colour", "value": "red"}),
                    Some("the session has no config option colour; it has model, verbose"),
                ),
                (
                    json!({"configId": "model", "value": "huge"}),
                    Some("the config option model has no value huge; it has small, large"),
                ),
                (
                    json!({"configId": "model", "type": "boolean", "value": true}),
                    Some("the config option model has no value true; it has small, large"),
                ),
                (
                    json!({"configId": "verbose", "value": "yes"}),
                    Some("the config option verbose has no value yes; it has true, false"),
                ),
                (json!({"configId": "verbose", "type": "boolean", "value": true}), None),
            ] {
                let (mut client, session, _) = connected(folder).await;
                let is_mode = params["modeId"].is_string();
                let method = if is_mode { "session/set_mode" } else { "session/set_config_option" };
                let mut params = params;
                params["sessionId"] = json!(session);
                let answer = client.request(method, params).await;
                match fault.filter(|_| folder == "/offered") {
                    Some(fault) => {
                        assert_eq!(answer["error"]["code"], -32602, "{answer}");
                        assert_eq!(answer["error"]["message"], fault);
                    }
                    None => assert!(answer["result"].is_object(), "{folder}: {answer}"),
                }
            }
            let (mut client, session, _) = connected(folder).await;
            let long = json!({"sessionId": session, "modeId": "x".repeat(100_000)});
            let answer = client.request("session/set_mode", long).await;
            assert!(answer.to_string().len() < 1000, "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn modes_are_offered_as_an_option_too() {
    in_time(async {
        for (folder, rest) in [("/modes", ""), ("/both", " model=small")] {
            let (mut client, session, setup) = connected(folder).await;
            assert_eq!(values(&setup["configOptions"]).join(" "), format!("mode=ask{rest}"));
            let option = &setup["configOptions"][0];
            assert_eq!(
                (&option["category"], &option["options"][1]["name"]),
                (&json!("mode"), &json!("Code"))
            );

            let params = json!({"sessionId": session, "modeId": "code"});
            for expected in [vec![format!("mode=code{rest}")], vec![]] {
                let (updates, answer) = send(&mut client, "session/set_mode", params.clone()).await;
                assert_eq!((updates, &answer["result"]), (expected, &json!({})));
            }
            for (value, expected) in [("ask", &["ask"][..]), ("ask", &[])] {
                let params = json!({"sessionId": session, "configId": "mode", "value": value});
                let (updates, answer) = send(&mut client, "session/set_config_option", params).await;
                assert_eq!(updates, expected);
                assert_eq!(
                    values(&answer["result"]["configOptions"])[0],
                    format!("mode={value}"),
                    "{answer}"
                );
            }
            for prompt in ["mode", "mode between turns"] {
                let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": prompt}]});
                let (updates, _) = send(&mut client, "session/prompt", params).await;
                assert_eq!(updates, ["code".to_owned(), format!("mode=code{rest}")]);
            }
            if folder == "/both" {
                let params = json!({"sessionId": session, "configId": "model", "value": "large"});
                let (updates, answer) = send(&mut client, "session/set_config_option", params).await;
                assert_eq!(updates, [""; 0]);
                assert_eq!(values(&answer["result"]["configOptions"]), ["mode=code", "model=large"]);
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_option_is_offered_as_modes_too() {
    in_time(async {
        let (mut client, session, setup) = connected("/option").await;
        assert_eq!(setup["modes"]["currentModeId"], "ask");
        assert_eq!(
            setup["modes"]["availableModes"],
            json!([{"id": "ask", "name": "Ask", "description": "Asks first"}, {"id": "code", "name": "Code"}])
        );
        let params = json!({"sessionId": session, "modeId": "code"});
        let (updates, answer) = send(&mut client, "session/set_mode", params).await;
        assert_eq!(
            (updates, &answer["result"]),
            (vec!["model=small style=code".into(), "code".into()], &json!({}))
        );
        for (option, value, expected) in [("style", "ask", &["ask"][..]), ("model", "large", &[])] {
            let params = json!({"sessionId": session, "configId": option, "value": value});
            let (updates, answer) = send(&mut client, "session/set_config_option", params).await;
            assert_eq!(updates, expected, "{answer}");
        }
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "option"}]});
        let (updates, _) = send(&mut client, "session/prompt", params).await;
        assert_eq!(updates, ["model=large style=code", "code"]);
    })
    .await;
}

/// Modes and an option with other values are two settings, so nothing is mirrored.
#[tokio::test(start_paused = true)]
async fn an_option_with_other_values_than_the_modes_is_left_alone() {
    in_time(async {
        let (mut client, session, setup) = connected("/differ").await;
        assert_eq!(values(&setup["configOptions"]), ["style=short"]);
        let params = json!({"sessionId": session, "modeId": "code"});
        let (updates, answer) = send(&mut client, "session/set_mode", params).await;
        assert_eq!((updates.len(), &answer["result"]), (0, &json!({})));
        let params = json!({"sessionId": session, "configId": "style", "value": "long"});
        let (updates, answer) = send(&mut client, "session/set_config_option", params).await;
        assert_eq!((updates.len(), &answer["result"]), (0, &json!({"configOptions": []})));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mode_that_the_agent_did_not_take_is_an_error() {
    in_time(async {
        let (mut client, session, _) = connected("/stubborn").await;
        let params = json!({"sessionId": session, "modeId": "code"});
        let (updates, answer) = send(&mut client, "session/set_mode", params).await;
        assert_eq!(updates, ["style=ask"]);
        assert_eq!(answer["error"]["message"], "the agent kept the mode \"ask\"");
    })
    .await;
}

/// A change in `new_session` applies to the setup that the method returns afterwards.
#[tokio::test(start_paused = true)]
async fn a_mode_that_changes_while_the_session_is_created_is_kept() {
    in_time(async {
        let (mut client, session, setup) = connected("/early").await;
        assert_eq!(values(&setup["configOptions"]), ["mode=ask"]);
        let update = client.next_message().await;
        assert_eq!(update["params"]["update"]["currentModeId"], "code", "{update}");
        let update = client.next_message().await;
        assert_eq!(values(&update["params"]["update"]["configOptions"]), ["mode=code"], "{update}");
        let params = json!({"sessionId": session, "modeId": "code"});
        let (updates, answer) = send(&mut client, "session/set_mode", params).await;
        assert_eq!((updates.len(), &answer["result"]), (0, &json!({})));
    })
    .await;
}

/// The client and the crate have the same mode after an update that was not sent.
#[tokio::test(start_paused = true)]
async fn a_mode_of_an_update_that_fails_is_not_stored() {
    in_time(async {
        let (mut client, session, _) = connected("/modes").await;
        for prompt in ["keep the turn", "a late mode"] {
            let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": prompt}]});
            let (updates, answer) = send(&mut client, "session/prompt", params).await;
            assert_eq!((updates.len(), &answer["result"]["stopReason"]), (0, &json!("end_turn")));
        }
        let params = json!({"sessionId": session, "modeId": "code"});
        let (updates, _) = send(&mut client, "session/set_mode", params).await;
        assert_eq!(updates, ["mode=code"]);
    })
    .await;
}

/// The agent has another option with the id, so nothing is mirrored.
#[tokio::test(start_paused = true)]
async fn an_option_that_only_has_the_id_is_left_alone() {
    in_time(async {
        let (mut client, session, setup) = connected("/taken").await;
        assert_eq!(setup["configOptions"], json!([]));
        let params = json!({"sessionId": session, "modeId": "code"});
        let (updates, answer) = send(&mut client, "session/set_mode", params).await;
        assert_eq!((updates.len(), &answer["result"]), (0, &json!({})));
    })
    .await;
}

/// Before, the requested mode became the current one although the agent had sent another.
#[tokio::test(start_paused = true)]
async fn a_mode_that_the_agent_chooses_itself_stays() {
    in_time(async {
        for (folder, mirrored) in [("/kept", None), ("/mirrored/kept", Some("mode=ask".to_owned()))] {
            let (mut client, session, _) = connected(folder).await;
            let kept: Vec<String> = std::iter::once("ask".to_owned()).chain(mirrored.clone()).collect();
            let params = json!({"sessionId": session, "modeId": "code"});
            let (updates, answer) = send(&mut client, "session/set_mode", params).await;
            assert_eq!(updates, kept, "{folder}");
            assert_eq!(answer["error"]["message"], "the agent kept the mode \"ask\"", "{answer}");
            if mirrored.is_some() {
                let params = json!({"sessionId": session, "configId": "mode", "value": "code"});
                let (updates, answer) = send(&mut client, "session/set_config_option", params).await;
                assert_eq!(updates, kept);
                assert_eq!(values(&answer["result"]["configOptions"]), ["mode=ask"], "{answer}");
            }
        }
    })
    .await;
}

/// Offers the settings that the folder of the session names, and can set none, or only modes.
struct Offering<const SETS_MODES: bool>;

impl<const SETS_MODES: bool> Offering<SETS_MODES> {
    fn setup(session: &Session) -> SessionSetup {
        let setup = SessionSetup::new();
        match session.cwd().to_str().unwrap_or_default() {
            "/modes" => setup.modes(modes()),
            "/modes mirrored" => setup.modes(modes()).mirror_modes(),
            "/options" => setup.config_options(vec![verbose()]),
            "/option mirrored" => setup.config_options(vec![mode_option("ask")]).mirror_modes(),
            "/both" => setup.modes(modes()).config_options(vec![verbose()]).mirror_modes(),
            "/empty" => setup.modes(SessionModeState::new("", Vec::new())).config_options(Vec::new()),
            _ => setup,
        }
    }
}

macro_rules! offering {
    ($sets_modes:literal, $($set_mode:item)?) => {
        impl Agent for Offering<$sets_modes> {
            fn capabilities(&self) -> AgentCapabilities {
                AgentCapabilities::new().load_session(true)
            }

            async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
                Ok(Self::setup(session))
            }

            async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
                Ok(Self::setup(session))
            }

            $($set_mode)?

            async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
                Ok(StopReason::EndTurn)
            }
        }
    };
}

offering!(false,);
offering!(
    true,
    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        Ok(())
    }
);

/// An editor shows the modes and options, and each choice would fail.
#[tokio::test(start_paused = true)]
async fn settings_without_their_method_fail_the_session() {
    async fn check(agent: impl Agent, cases: &[(&str, Option<(&str, &str)>)]) {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(agent, transport));
        client.initialize(json!({})).await;
        for (folder, missing) in cases {
            let params = json!({"cwd": folder, "mcpServers": []});
            let made = client.request("session/new", params.clone()).await;
            let mut params = params;
            params["sessionId"] = json!(folder);
            let loaded = client.request("session/load", params).await;
            for answer in [made, loaded] {
                let expected = missing.map(|(offer, method)| {
                    format!("the agent offers {offer}, but does not implement Agent::{method}")
                });
                assert_eq!(answer["error"]["message"], json!(expected), "{folder}: {answer}");
            }
            let text = json!([{"type": "text", "text": "hi"}]);
            let answer = client.request("session/prompt", json!({"sessionId": folder, "prompt": text})).await;
            assert_eq!(answer["error"]["code"] == -32002, missing.is_some(), "the session is open: {answer}");
        }
    }
    in_time(async {
        let (mode, option) = (Some(("modes", "set_mode")), Some(("configOptions", "set_config_option")));
        let nothing = [("/", None), ("/empty", None)];
        check(
            Offering::<false>,
            &[
                ("/modes", mode),
                ("/modes mirrored", mode),
                ("/options", option),
                ("/option mirrored", option),
            ],
        )
        .await;
        check(Offering::<false>, &nothing).await;
        check(
            // In an `Arc`, which passes the methods on.
            std::sync::Arc::new(Offering::<true>),
            &[("/modes", None), ("/modes mirrored", None), ("/option mirrored", option), ("/both", option)],
        )
        .await;
    })
    .await;
}
