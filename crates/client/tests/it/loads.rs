//! Sessions that are loaded, closed and switched while other things happen to them.

use duologue_client::{Client, Connection, Error, Session, StopReason};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time_tests, message_chunk};

in_time_tests!(
    the_agents_word_behind_an_answer_is_the_last_one,
    a_second_load_of_one_id_is_busy,
    a_load_that_is_busy_opens_nothing_again,
    a_prompt_during_a_replay_is_busy,
    updates_behind_the_response_to_a_load_reach_the_session,
    a_failed_load_leaves_everything_as_it_was,
    a_load_during_a_turn_is_busy,
    every_call_may_want_a_login,
    updates_end_with_the_connection,
    a_dropped_session_is_let_go,
);

/// A client that keeps conversations, its agent, and one session with modes.
async fn client() -> (Connection, ScriptedPeer, Session) {
    let sessions = json!({"list": {}, "resume": {}, "close": {}});
    let capabilities = json!({"loadSession": true, "sessionCapabilities": sessions});
    let (agent, mut script) =
        client_of(Wire::Memory, Client::new(()).keep_conversations(), capabilities).await;
    let modes =
        json!({"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}]});
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
        let request = script.expect("session/new").await;
        script.respond(&request, json!({"sessionId": "s", "modes": modes})).await;
    });
    (agent, script, session.expect("a session"))
}

async fn refuse(script: &mut ScriptedPeer, request: &Value, code: i64) {
    let error = json!({"code": code, "message": "no"});
    script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
}

fn mode(session: &Session) -> String {
    session.state().modes.expect("modes").current_mode_id.to_string()
}

async fn the_agents_word_behind_an_answer_is_the_last_one() {
    let (_agent, mut script, session) = client().await;
    for _ in 0..300 {
        let (switched, ()) = tokio::join!(session.set_mode("a"), async {
            let request = script.expect("session/set_mode").await;
            let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {}});
            let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": "b"});
            let params = json!({"sessionId": "s", "update": update});
            let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": params});
            script.write(format!("{answer}\n{update}\n")).await;
        });
        switched.expect("switched");
        script.probe().await;
        assert_eq!(mode(&session), "b");
    }
}

async fn a_second_load_of_one_id_is_busy() {
    let (agent, mut script, _session) = client().await;
    for round in 0..50 {
        // One that is known and one that is not.
        let id = ["s", "of old"][round % 2];
        let mut first = agent.load_session(id, "/tmp").expect("a replay");
        let second = agent.load_session(id, "/tmp");
        assert!(matches!(second, Err(Error::Busy)), "{second:?}");
        let request = script.expect("session/load").await;
        script.send_chunk(id, "replayed").await;
        script.respond(&request, json!({})).await;
        assert_eq!(first.next().await.expect("an update").expect("no error").to_string(), "replayed");
        assert_eq!(&*first.outcome().await.expect("a session").id().to_string(), id);
        // No request was sent for the second one.
        script.probe().await;
    }
}

/// It was, and a replay that a close had cut off went on with a gap in it.
async fn a_load_that_is_busy_opens_nothing_again() {
    let (agent, mut script, session) = client().await;
    let mut replay = agent.load_session("s", "/tmp").expect("a replay");
    let load = script.expect("session/load").await;
    script.send_chunk("s", "before").await;
    assert_eq!(replay.next().await.expect("an update").expect("no error").to_string(), "before");
    let (closed, ()) = tokio::join!(session.close(), async {
        let request = script.expect("session/close").await;
        script.respond(&request, json!({})).await;
    });
    closed.expect("closed");
    script.send_chunk("s", "lost").await;
    script.probe().await;
    let again = agent.load_session("s", "/tmp");
    assert!(matches!(again, Err(Error::Busy)), "{again:?}");
    script.send_chunk("s", "behind a gap").await;
    script.respond(&load, json!({})).await;
    assert!(replay.next().await.is_none());
    assert_eq!(agent.dropped_updates(), 2);
    replay.outcome().await.expect("a session");
}

async fn a_prompt_during_a_replay_is_busy() {
    let (agent, mut script, session) = client().await;
    for _ in 0..50 {
        let replay = agent.load_session("s", "/tmp").expect("a replay");
        assert!(matches!(session.prompt("now").await, Err(Error::Busy)));
        let request = script.expect("session/load").await;
        script.respond(&request, json!({})).await;
        replay.outcome().await.expect("a session");
        let (turn, ()) = tokio::join!(session.prompt("now"), async {
            let prompt = script.expect("session/prompt").await;
            script.end_turn(&prompt, "end_turn").await;
        });
        let answer = turn.expect("a turn").finish().await.expect("an answer");
        assert_eq!(answer.stop_reason(), &StopReason::EndTurn);
    }
}

/// Servers with two streams send the response on the one and the replay on the other.
async fn updates_behind_the_response_to_a_load_reach_the_session() {
    let (agent, mut script, _session) = client().await;
    for id in ["s", "of old"] {
        let mut replay = agent.load_session(id, "/tmp").expect("a replay");
        let request = script.expect("session/load").await;
        script.send_chunk(id, "one ").await;
        script.respond(&request, json!({})).await;
        script.send_chunk(id, "two ").await;
        script.send_chunk(id, "three").await;
        assert_eq!(replay.next().await.expect("an update").expect("no error").to_string(), "one ");
        assert!(replay.next().await.is_none());
        let loaded = replay.outcome().await.expect("a session");
        let mut late = loaded.updates();
        for text in ["two ", "three"] {
            assert_eq!(late.next().await.expect("an update").expect("no error").to_string(), text);
        }
        let conversation = loaded.conversation().expect("kept");
        assert_eq!(conversation.all_agent_text(), "one \n\ntwo three");
    }
    assert_eq!(agent.dropped_updates(), 0);
}

async fn a_failed_load_leaves_everything_as_it_was() {
    let (agent, mut script, session) = client().await;
    let (turn, ()) = tokio::join!(session.prompt("hello"), async {
        let prompt = script.expect("session/prompt").await;
        let plan = json!({"entries": [{"content": "p", "priority": "low", "status": "pending"}], "sessionUpdate": "plan"});
        script.notify("session/update", json!({"sessionId": "s", "update": plan})).await;
        script.send_chunk("s", "hello yourself").await;
        script.end_turn(&prompt, "end_turn").await;
    });
    turn.expect("a turn").finish().await.expect("an answer");
    let before = (session.state(), session.conversation());
    assert!(before.0.plan.is_some() && before.1.is_some());
    for _ in 0..20 {
        let mut replay = agent.load_session("s", "/tmp").expect("a replay");
        let request = script.expect("session/load").await;
        let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": "b"});
        script.notify("session/update", json!({"sessionId": "s", "update": update})).await;
        script.send_chunk("s", "half of it").await;
        refuse(&mut script, &request, -32603).await;
        while let Some(update) = replay.next().await {
            update.expect("no error");
        }
        let outcome = replay.outcome().await;
        assert!(matches!(outcome, Err(Error::Response(_))), "{outcome:?}");
        assert_eq!((session.state(), session.conversation()), before);
    }
}

async fn a_load_during_a_turn_is_busy() {
    let (agent, mut script, session) = client().await;
    let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
    let load = agent.load_session("s", "/tmp");
    assert!(matches!(load, Err(Error::Busy)), "{load:?}");
    // The turn has lost nothing by it.
    script.write(message_chunk("s", "here") + &message_chunk("s", " I am")).await;
    script.end_turn(&prompt, "end_turn").await;
    assert_eq!(turn.expect("a turn").finish().await.expect("an answer").text, "here I am");
}

async fn every_call_may_want_a_login() {
    let (agent, mut script, session) = client().await;
    let wants = async |script: &mut ScriptedPeer, method: &str| {
        let request = script.expect(method).await;
        refuse(script, &request, -32000).await;
    };
    let listing = agent.list_sessions(None).expect("a listing");
    let (listed, ()) = tokio::join!(listing.all(), wants(&mut script, "session/list"));
    assert!(matches!(listed, Err(Error::AuthRequired { .. })), "{listed:?}");
    let (switched, ()) = tokio::join!(session.set_mode("b"), wants(&mut script, "session/set_mode"));
    assert!(matches!(switched, Err(Error::AuthRequired { .. })), "{switched:?}");
    assert_eq!(mode(&session), "a");
    let (resumed, ()) =
        tokio::join!(agent.resume_session("old", "/tmp"), wants(&mut script, "session/resume"));
    assert!(matches!(resumed, Err(Error::AuthRequired { .. })), "{resumed:?}");
    let replay = agent.load_session("old", "/tmp").expect("a replay");
    let (loaded, ()) = tokio::join!(replay.outcome(), wants(&mut script, "session/load"));
    assert!(matches!(loaded, Err(Error::AuthRequired { .. })), "{loaded:?}");
    let (turn, ()) = tokio::join!(session.prompt("go"), wants(&mut script, "session/prompt"));
    let outcome = turn.expect("a turn").outcome().await;
    assert!(matches!(outcome, Err(Error::AuthRequired { .. })), "{outcome:?}");
}

async fn updates_end_with_the_connection() {
    let (agent, mut script, session) = client().await;
    let mut before = session.updates();
    script.send_chunk("s", "last words").await;
    script.close().await;
    assert_eq!(before.next().await.expect("an update").expect("no error").to_string(), "last words");
    assert!(before.next().await.is_none_or(|end| end.is_err()));
    agent.closed().await;
    let mut after = session.updates();
    for _ in 0..3 {
        assert!(after.next().await.is_none_or(|end| end.is_err()));
    }
    assert!(after.next().await.is_none());
}

async fn a_dropped_session_is_let_go() {
    let (agent, mut script, session) = client().await;
    for number in 0..10 {
        script.send_chunk("s", &number.to_string()).await;
    }
    script.probe().await;
    assert_eq!(agent.dropped_updates(), 0);
    // A listener keeps the session alive, and so does a running turn.
    let mut updates = session.updates();
    drop(session);
    script.send_chunk("s", "10").await;
    for number in 0..=10 {
        let text = updates.next().await.expect("an update").expect("no error").to_string();
        assert_eq!(text, number.to_string());
    }
    drop(updates);
    for round in 1..=10 {
        script.send_chunk("s", "to nobody").await;
        script.probe().await;
        assert_eq!(agent.dropped_updates(), round);
    }
}
