//! Handles that are dropped before their response, and restores that fail.

use std::time::Duration;

use duologue_client::{Client, Connection, Error, Session};
use futures::FutureExt;
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time_tests};

in_time_tests!(
    a_failed_restore_leaves_a_closed_session_closed,
    the_turn_of_another_client_can_be_cancelled_after_a_restore,
    a_server_says_whether_the_turn_of_another_client_runs,
    a_restore_that_succeeds_late_opens_the_session,
    restores_that_overlap_and_fail_leave_a_closed_session_closed,
    a_session_is_closed_with_the_response,
    a_close_without_its_caller_closes_the_session,
    a_new_session_that_was_not_taken_is_closed,
    invalid_updates_are_counted,
);

async fn client() -> (Connection, ScriptedPeer, Session) {
    let sessions = json!({"list": {}, "resume": {}, "close": {}, "delete": {}});
    let capabilities = json!({"loadSession": true, "sessionCapabilities": sessions});
    let (agent, mut script) =
        client_of(Wire::Memory, Client::new(()).keep_conversations(), capabilities).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
    (agent, script, session.expect("a session"))
}

async fn close(session: &Session, script: &mut ScriptedPeer) {
    let (closed, ()) = tokio::join!(session.close(), async {
        let request = script.expect("session/close").await;
        script.respond(&request, json!({})).await;
    });
    closed.expect("closed");
}

async fn refuse(script: &mut ScriptedPeer, request: &Value) {
    let error = json!({"code": -32603, "message": "no"});
    script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
}

/// Returns true if the client drops an update of the session.
async fn drops_updates(agent: &Connection, script: &mut ScriptedPeer) -> bool {
    let before = agent.dropped_updates();
    script.send_chunk("s", "late").await;
    script.probe().await;
    agent.dropped_updates() > before
}

async fn the_turn_of_another_client_can_be_cancelled_after_a_restore() {
    let (agent, mut script, session) = client().await;
    session.cancel();
    // The next line is the answer to this, so nothing was cancelled.
    script.probe().await;
    for is_loaded in [true, false] {
        let session = if is_loaded {
            let replay = agent.load_session("s", "/tmp").expect("a replay");
            let request = script.expect("session/load").await;
            script.respond(&request, json!({})).await;
            replay.outcome().await.expect("a session")
        } else {
            let (resumed, ()) = tokio::join!(agent.resume_session("s", "/tmp"), async {
                let request = script.expect("session/resume").await;
                script.respond(&request, json!({})).await;
            });
            resumed.expect("a session")
        };
        for is_refused in [true, false] {
            assert!(session.may_have_other_turn());
            session.cancel();
            assert_eq!(script.expect("session/cancel").await["params"], json!({"sessionId": "s"}));
            let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
            match is_refused {
                true => refuse(&mut script, &prompt).await,
                false => script.end_turn(&prompt, "end_turn").await,
            }
            assert_eq!(turn.expect("a turn").outcome().await.is_err(), is_refused);
        }
        session.cancel();
        script.probe().await;
    }
}

/// A server of several clients knows it better.
async fn a_server_says_whether_the_turn_of_another_client_runs() {
    let (agent, mut script, _session) = client().await;
    for runs in [false, true] {
        let replay = agent.load_session("s", "/tmp").expect("a replay");
        let request = script.expect("session/load").await;
        script.respond(&request, json!({"_meta": {"duologue": {"turn": runs}}})).await;
        let session = replay.outcome().await.expect("a session");
        assert_eq!(session.may_have_other_turn(), runs);
        for running in [true, false] {
            let params = json!({"sessionId": "s", "running": running});
            script.send(json!({"jsonrpc": "2.0", "method": "_session/turn", "params": params})).await;
            script.probe().await;
            assert_eq!(session.may_have_other_turn(), running);
        }
        session.other_turn_ended().await;
    }
}

async fn a_failed_restore_leaves_a_closed_session_closed() {
    let (agent, mut script, session) = client().await;
    // A failed restore of an open session has no effect on it.
    for is_open in [true, false] {
        for _ in 0..10 {
            let (resumed, ()) = tokio::join!(agent.resume_session("s", "/tmp"), async {
                let request = script.expect("session/resume").await;
                refuse(&mut script, &request).await;
            });
            assert!(matches!(resumed, Err(Error::Response(_))), "{resumed:?}");
            assert_eq!(drops_updates(&agent, &mut script).await, !is_open);

            let replay = agent.load_session("s", "/tmp").expect("a replay");
            let request = script.expect("session/load").await;
            refuse(&mut script, &request).await;
            let loaded = replay.outcome().await;
            assert!(matches!(loaded, Err(Error::Response(_))), "{loaded:?}");
            assert_eq!(drops_updates(&agent, &mut script).await, !is_open);
        }
        if is_open {
            close(&session, &mut script).await;
        }
    }
}

async fn a_restore_that_succeeds_late_opens_the_session() {
    let (agent, mut script, session) = client().await;
    close(&session, &mut script).await;
    // The first restore fails after the second was sent, which succeeds.
    let (first, second, ()) =
        tokio::join!(agent.resume_session("s", "/tmp"), agent.resume_session("s", "/tmp"), async {
            let first = script.expect("session/resume").await;
            let second = script.expect("session/resume").await;
            refuse(&mut script, &first).await;
            script.respond(&second, json!({})).await;
        });
    assert!(matches!(first, Err(Error::Response(_))), "{first:?}");
    second.expect("resumed");
    assert!(!drops_updates(&agent, &mut script).await);
}

async fn restores_that_overlap_and_fail_leave_a_closed_session_closed() {
    let (agent, mut script, session) = client().await;
    close(&session, &mut script).await;
    let (first, second, ()) =
        tokio::join!(agent.resume_session("s", "/tmp"), agent.resume_session("s", "/tmp"), async {
            let requests = [script.expect("session/resume").await, script.expect("session/resume").await];
            for request in &requests {
                // Open until the last of them has failed.
                assert!(!drops_updates(&agent, &mut script).await);
                refuse(&mut script, request).await;
            }
        });
    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
    assert!(drops_updates(&agent, &mut script).await);
}

/// The updates that arrive with the response belong to a closed session.
async fn a_session_is_closed_with_the_response() {
    for delete in [false, true] {
        let (agent, mut script, session) = client().await;
        let request = async {
            let request = script.expect(if delete { "session/delete" } else { "session/close" }).await;
            let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {}});
            let update = duologue_test_support::message_chunk("s", "late");
            script.write(format!("{answer}\n{update}")).await;
        };
        let ended = async {
            if delete { agent.delete_session("s").await.map(drop) } else { session.close().await.map(drop) }
        };
        let (ended, ()) = tokio::join!(ended, request);
        ended.expect("ended");
        script.probe().await;
        assert_eq!(agent.dropped_updates(), 1);
    }
}

async fn a_close_without_its_caller_closes_the_session() {
    for delete in [false, true] {
        let (agent, mut script, session) = client().await;
        let mut ending = Box::pin(async {
            if delete { agent.delete_session("s").await.map(drop) } else { session.close().await.map(drop) }
        });
        assert!((&mut ending).now_or_never().is_none());
        drop(ending);
        let request = script.expect(if delete { "session/delete" } else { "session/close" }).await;
        script.expect("$/cancel_request").await;
        // The agent had closed it already.
        script.respond(&request, json!({})).await;
        assert!(drops_updates(&agent, &mut script).await);
    }
}

/// The response has arrived, but its caller was dropped before it took the session.
async fn a_new_session_that_was_not_taken_is_closed() {
    let (agent, mut script, _session) = client().await;
    for _ in 0..20 {
        let mut creating = Box::pin(agent.new_session("/tmp"));
        assert!((&mut creating).now_or_never().is_none());
        script.accept_session("unclaimed").await;
        script.probe().await;
        drop(creating);
        let close = script.expect("session/close").await;
        assert_eq!(close["params"]["sessionId"], "unclaimed");
        script.respond(&close, json!({})).await;
        script.probe().await;
    }
}

async fn invalid_updates_are_counted() {
    let (agent, mut script, _session) = client().await;
    for _ in 0..3 {
        let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": 7});
        script.notify("session/update", json!({"sessionId": "s", "update": update})).await;
    }
    script.probe().await;
    assert_eq!(agent.dropped_updates(), 3);
}

/// An agent that ignores the withdrawal of a load does not block its session for ever.
#[tokio::test(start_paused = true)]
async fn an_abandoned_load_is_given_up_after_ten_seconds() {
    let (agent, mut script, session) = client().await;
    script.send_chunk("s", "before").await;
    script.probe().await;
    let before = session.conversation();
    let replay = agent.load_session("s", "/tmp").expect("a replay");
    let old = script.expect("session/load").await;
    script.send_chunk("s", "replayed").await;
    script.probe().await;
    drop(replay);
    script.expect("$/cancel_request").await;
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert!(matches!(session.prompt("now").await, Err(Error::Busy)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(session.conversation(), before);

    let mut again = agent.load_session("s", "/tmp").expect("a replay");
    let load = script.expect("session/load").await;
    // The response to the old load must not end the new one.
    script.respond(&old, json!({})).await;
    script.send_chunk("s", "again").await;
    script.respond(&load, json!({})).await;
    assert_eq!(again.next().await.expect("an update").expect("no error").to_string(), "again");
    again.outcome().await.expect("a session");
}
