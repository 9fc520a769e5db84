//! Requests of the client: their `_meta`, and the checks before they are sent.

use duologue_client::schema::{Meta, SessionConfigKind, TraceContext};
use duologue_client::{Client, Connection, Error, PromptBuilder, Session};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn trace() -> TraceContext {
    TraceContext::new(PARENT).expect("a trace context")
}

fn state() -> Value {
    let choices = json!([{"value": "small", "name": "S"}, {"value": "large", "name": "L"}]);
    json!({
        "sessionId": "s",
        "modes": {
            "currentModeId": "ask",
            "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
        },
        "configOptions": [
            {"id": "model", "name": "Model", "type": "select", "currentValue": "small", "options": choices},
            {"id": "team", "name": "Team", "type": "select", "currentValue": "small",
             "options": [{"group": "g", "name": "G", "options": choices}]},
            {"id": "brave", "name": "Brave", "type": "boolean", "currentValue": false},
        ],
        "_meta": {"opened": 1},
    })
}

async fn session(opened: Value) -> (Connection, ScriptedPeer, Session) {
    let sessions = json!({"list": {}, "close": {}, "delete": {}, "resume": {}});
    let capabilities = json!({"sessionCapabilities": sessions, "auth": {"logout": {}}});
    let (connection, mut script) = client_of(Wire::Memory, Client::new(()), capabilities).await;
    let (session, ()) = tokio::join!(connection.session_in("/tmp").meta(trace()).create(), async {
        let request = script.expect("session/new").await;
        assert_eq!(request["params"]["_meta"]["traceparent"], PARENT);
        script.respond(&request, opened).await;
    });
    (connection, script, session.expect("a session"))
}

/// Some agents answer without the options, and report them in an update.
#[tokio::test]
async fn an_option_is_set_by_an_answer_without_options() {
    in_time(async {
        let model = |session: &Session| {
            session.config_options().first().and_then(|option| match &option.kind {
                SessionConfigKind::Select(select) => Some(select.current_value.to_string()),
                _ => None,
            })
        };
        for (result, update, expected) in [
            (json!({}), None, "large"),
            (json!({"configOptions": null, "_meta": {"n": 1}}), None, "large"),
            (json!(null), None, "large"),
            (json!({}), Some("huge"), "huge"),
        ] {
            let (_connection, mut script, session) = session(state()).await;
            let (set, ()) = tokio::join!(session.set_config_option("model", "large"), async {
                let request = script.expect("session/set_config_option").await;
                if let Some(value) = update {
                    let mut options = state()["configOptions"].clone();
                    options[0]["currentValue"] = value.into();
                    let update = json!({"sessionUpdate": "config_option_update", "configOptions": options});
                    script.notify("session/update", json!({"sessionId": "s", "update": update})).await;
                }
                script.respond(&request, result.clone()).await;
            });
            assert_eq!(set.expect("set").config_options.len(), 3, "{result}");
            assert_eq!(model(&session).as_deref(), Some(expected), "{result}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_mode_or_option_that_is_not_offered_is_not_sent() {
    in_time(async {
        let (_connection, mut script, session) = session(state()).await;
        assert_eq!(session.modes().expect("modes").current_mode_id.as_str(), "ask");
        assert_eq!(session.config_options().len(), 3);
        assert_eq!(
            session.set_mode("nope").await.expect_err("refused").to_string(),
            "the session has no mode nope; it has ask, code"
        );
        let mut refused = Vec::new();
        for id in ["nope", "model", "team", "brave"] {
            refused.push(session.set_config_option(id, "huge").await.expect_err(id));
        }
        refused.push(session.set_config_option("model", true).await.expect_err("refused"));
        let messages: Vec<_> = refused.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "the session has no config option nope; it has model, team, brave".to_owned(),
                "the config option model has no value huge; it has small, large".to_owned(),
                "the config option team has no value huge; it has small, large".to_owned(),
                "the config option brave has no value huge; it has true, false".to_owned(),
                "the config option model has no value true; it has small, large".to_owned(),
            ]
        );
        // Nothing was sent so far.
        script.probe().await;
        for (option, value) in [("model", "large"), ("team", "large")] {
            let (set, ()) = tokio::join!(session.set_config_option(option, value), async {
                let request = script.expect("session/set_config_option").await;
                assert_eq!(
                    (&request["params"]["configId"], &request["params"]["value"]),
                    (&json!(option), &json!(value))
                );
                script
                    .respond(&request, json!({"configOptions": state()["configOptions"], "_meta": {"n": 1}}))
                    .await;
            });
            let set = set.expect("set");
            assert_eq!((set.config_options.len(), set.meta), (3, Some(Meta::from_iter([("n", 1)]))));
        }
        let (set, ()) = tokio::join!(session.set_config_option("brave", true), async {
            let request = script.expect("session/set_config_option").await;
            script.respond(&request, json!({"configOptions": []})).await;
        });
        set.expect("set");
        assert!(matches!(
            session.set_config_option("brave", true).await,
            Err(Error::NotSupported { capability: "configOptions" })
        ));
        let (set, ()) = tokio::join!(session.set_mode("hidden").unchecked(), async {
            let request = script.expect("session/set_mode").await;
            assert_eq!(request["params"]["modeId"], "hidden");
            script.respond(&request, json!({})).await;
        });
        set.expect("set");
        assert_eq!(session.modes().expect("modes").current_mode_id.as_str(), "hidden");
    })
    .await;
}

/// A builder may wait while the agent changes its offer.
#[tokio::test]
async fn a_request_is_checked_when_it_is_awaited() {
    in_time(async {
        let (_connection, mut script, session) = session(state()).await;
        let (early, refused) =
            (session.set_config_option("later", true), session.set_config_option("model", "large"));
        let option = json!({"id": "later", "name": "Later", "type": "boolean", "currentValue": false});
        let update = json!({"sessionUpdate": "config_option_update", "configOptions": [option]});
        script.notify("session/update", json!({"sessionId": "s", "update": update})).await;
        script.probe().await;
        let (set, ()) = tokio::join!(early, async {
            let request = script.expect("session/set_config_option").await;
            assert_eq!(request["params"]["configId"], "later");
            script.respond(&request, json!({"configOptions": [option]})).await;
        });
        set.expect("set");
        let error = refused.await.expect_err("refused").to_string();
        assert_eq!(error, "the session has no config option model; it has later");
    })
    .await;
}

#[tokio::test]
async fn an_agent_without_modes_is_asked_for_none() {
    in_time(async {
        let (_connection, _script, session) = session(json!({"sessionId": "s"})).await;
        assert!(matches!(session.set_mode("a").await, Err(Error::NotSupported { capability: "modes" })));
        assert!(session.modes().is_none() && session.meta().is_none());
    })
    .await;
}

#[tokio::test]
async fn every_request_and_response_has_its_meta() {
    in_time(async {
        let (agent, mut script, session) = session(state()).await;
        assert_eq!(session.meta().and_then(|meta| meta.get("opened")), Some(1));
        let answer = async |script: &mut ScriptedPeer, method: &str| {
            let request = script.expect(method).await;
            assert_eq!(request["params"]["_meta"]["traceparent"], PARENT, "{request}");
            script
                .respond(&request, json!({"_meta": {"answer": 1}, "configOptions": [], "sessions": []}))
                .await;
        };
        macro_rules! check {
            ($method:literal, $request:expr) => {
                let (response, ()) = tokio::join!($request.meta(trace()), answer(&mut script, $method));
                let meta = response.expect($method).meta.expect($method);
                assert_eq!(meta.get("answer"), Some(1), $method);
            };
        }
        check!("session/set_mode", session.set_mode("code"));
        check!("session/set_config_option", session.set_config_option("model", "large"));
        check!("authenticate", agent.authenticate("web").unchecked());
        check!("logout", agent.logout());
        let (sessions, ()) = tokio::join!(
            agent.list_sessions(None).expect("a listing").meta(trace()).all(),
            answer(&mut script, "session/list")
        );
        assert!(sessions.expect("sessions").is_empty());
        let (turn, prompt) = tokio::join!(
            session.prompt(PromptBuilder::new("go").meta(trace())),
            script.expect("session/prompt")
        );
        assert_eq!(prompt["params"]["_meta"]["traceparent"], PARENT);
        script.respond(&prompt, json!({"stopReason": "end_turn", "_meta": {"answer": 1}})).await;
        let reply = turn.expect("a turn").finish().await.expect("a reply");
        assert_eq!(reply.response.meta.and_then(|meta| meta.get("answer")), Some(1));
        check!("session/close", session.close());
        check!("session/delete", agent.delete_session("s"));
    })
    .await;
}
