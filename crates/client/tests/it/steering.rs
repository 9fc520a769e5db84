//! Messages of the user for a running turn.

use duologue_client::schema::SteerOutcome;
use duologue_client::{Client, Connection, Error};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

async fn client_of(meta: Value) -> (Connection, ScriptedPeer) {
    let (transport, mut agent) = Wire::Memory.scripted();
    let script = async {
        let request = agent.expect("initialize").await;
        agent.respond(&request, json!({"protocolVersion": 1, "_meta": meta})).await;
    };
    let (connection, ()) = tokio::join!(Client::new(()).connect(transport), script);
    (connection.expect("a connection"), agent)
}

#[tokio::test(start_paused = true)]
async fn a_message_is_sent_to_an_agent_with_steering() {
    in_time(async {
        let (connection, mut agent) = client_of(json!({"steering": {"supported": true}})).await;
        let (session, ()) = tokio::join!(connection.new_session("/"), agent.accept_session("s"));
        let session = session.expect("a session");
        let (turn, prompt) = tokio::join!(session.prompt("go"), agent.expect("session/prompt"));
        let mut turn = turn.expect("a turn");
        for (wire, outcome) in [
            ("injected", SteerOutcome::Injected),
            ("startedNewTurn", SteerOutcome::StartedNewTurn),
            ("promptRequired", SteerOutcome::PromptRequired),
            ("failed", SteerOutcome::Failed),
        ] {
            let script = async {
                let request = agent.expect("_session/steering").await;
                assert_eq!(
                    request["params"],
                    json!({
                        "sessionId": "s", "prompt": [{"type": "text", "text": "faster"}],
                        "_meta": {"steering": {"idleBehavior": "promptRequired"}},
                    })
                );
                agent.respond(&request, json!({"outcome": wire})).await;
            };
            let (steered, ()) = tokio::join!(turn.steer("faster"), script);
            assert_eq!(steered.expect("an outcome"), outcome);
        }
        // The turn continues, and ends with its own response.
        agent.send_chunk("s", "later").await;
        agent.end_turn(&prompt, "end_turn").await;
        assert_eq!(turn.next().await.expect("an update").expect("no error").to_string(), "later");
        turn.outcome().await.expect("an outcome");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_to_an_agent_without_steering() {
    in_time(async {
        for meta in [json!({}), json!({"steering": {"supported": false}}), json!({"steering": true})] {
            let (connection, mut agent) = client_of(meta).await;
            let (session, ()) = tokio::join!(connection.new_session("/"), agent.accept_session("s"));
            let error = session.expect("a session").steer("faster").await.expect_err("refused");
            assert!(matches!(error, Error::NotSupported { capability: "_meta.steering" }), "{error}");
            agent.probe().await;
        }
    })
    .await;
}
