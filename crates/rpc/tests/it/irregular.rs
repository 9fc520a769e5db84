//! Irregular messages: each is counted, explained or ignored as the counters of [`Stats`](duologue_rpc::Stats) say,
//! and the connection continues.

use std::sync::{Arc, Mutex, PoisonError};

use duologue_rpc::{Incoming, Limits, Peer, PeerBuilder, Responder, Service};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Reports notifications and cancellations, and panics at `_panic`.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service for Reports {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let reports = self.clone();
        match request.method {
            "_work" => responder.spawn_with(|responder| async move {
                responder.cancellation().cancelled().await;
                reports.add(format!("cancelled {}", responder.id()));
                responder.respond(Ok(()));
            }),
            "_panic" => panic!("as intended"),
            "_drop" => drop(responder),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        assert_ne!(notification.method, "_panic", "as intended");
        self.add(format!(
            "{} {}",
            notification.method,
            notification.params.map_or("-", |params| params.get())
        ));
    }

    fn fast_path_method(&self) -> Option<&'static str> {
        Some("_fast")
    }

    fn notification_fast_path(&self, params: &str, _: usize, valid: &dyn Fn()) -> bool {
        if serde_json::from_str::<Value>(params).is_err() {
            return false;
        }
        valid();
        self.add(format!("fast {params}"));
        true
    }
}

fn connected(limits: Limits) -> (Peer, ScriptedPeer, Reports) {
    let (transport, script) = Wire::Memory.scripted();
    let reports = Reports::default();
    let peer = PeerBuilder::new(transport).limits(limits).answer_noise(true).start(|_| reports.clone());
    (peer, script, reports)
}

#[tokio::test(start_paused = true)]
async fn each_irregular_message_is_counted() {
    in_time(async {
        let (peer, mut script, reports) = connected(Limits::default());
        // A response to nothing.
        script.send(json!({"jsonrpc": "2.0", "id": 99, "result": 1})).await;
        script.send(json!({"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "of 99"}})).await;
        script.probe().await;
        assert_eq!(peer.stats().stray_responses, 2);
        assert_eq!(peer.recent_noise(), [""; 0]);
        // The peer could not read a line of ours. The error explains it.
        script
            .send(json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "unreadable"}}))
            .await;
        script.probe().await;
        assert_eq!(peer.stats().stray_responses, 3);
        let noise = peer.recent_noise();
        assert!(noise.len() == 1 && noise[0].contains("unreadable"), "{noise:?}");
        // A response without an id, and a notification without valid params.
        script.send(json!({"jsonrpc": "2.0", "result": 1})).await;
        script.send(json!({"jsonrpc": "2.0", "method": "_note", "params": 7})).await;
        script.probe().await;
        assert_eq!(peer.stats().dropped, 2);
        // A handler that panics costs its message.
        script.notify("_panic", json!({})).await;
        script.probe().await;
        assert_eq!(peer.stats().dropped, 3);
        // Half a surrogate pair.
        assert_eq!(reports.take(), [""; 0]);
        script.send(r#"{"jsonrpc":"2.0","method":"_note","params":["\ud83e"]}"#).await;
        script.probe().await;
        assert_eq!(peer.stats().repaired, 1);
        assert_eq!(reports.take(), [r#"_note ["\ufffd"]"#]);
        let stats = peer.stats();
        assert_eq!((stats.noise, stats.refused, stats.stray_responses), (0, 0, 3));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_on_the_fast_path_ends_a_row_of_noise() {
    in_time(async {
        let mut limits = Limits::default();
        limits.parse_errors_in_a_row = 1;
        let (_peer, mut script, reports) = connected(limits);
        for _ in 0..3 {
            script.send("npm WARN").await;
            script.send("npm WARN").await;
            assert_eq!(script.next_message().await["error"]["code"], -32700);
            // Not the usual form of JSON of this peer, but the usual order of members.
            script.send(r#"{"jsonrpc":"2.0","method":"_fast","params":{"n":1}}"#).await;
        }
        script.probe().await;
        assert_eq!(reports.take(), ["fast {\"n\":1}"; 3]);
        // A line that only looks like one takes the general path.
        script.send(r#"{"jsonrpc":"2.0","method":"_fast","params":{"n":1},"x":{}}"#).await;
        script.send(r#"{"jsonrpc":"2.0","method":"_fast","params":{"n":"\ud83e"}}"#).await;
        script.probe().await;
        assert_eq!(reports.take(), [r#"_fast {"n":1}"#, r#"_fast {"n":"\ufffd"}"#]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn notifications_of_json_rpc_itself_do_not_reach_the_service() {
    in_time(async {
        let (peer, mut script, reports) = connected(Limits::default());
        for method in ["$/progress", "$/cancel_request", "$/"] {
            script.notify(method, json!({})).await;
        }
        script.send(json!({"jsonrpc": "2.0", "method": "$/cancel_request"})).await;
        script.notify("$other", json!({})).await;
        script.probe().await;
        assert_eq!(reports.take(), ["$other {}"]);
        assert_eq!((peer.stats().dropped, peer.stats().noise), (0, 0));
    })
    .await;
}

/// A cancellation reaches the request with exactly this id.
#[tokio::test(start_paused = true)]
async fn a_cancellation_reaches_its_request_alone() {
    in_time(async {
        let (_peer, mut script, reports) = connected(Limits::default());
        for id in [json!(1), json!("1"), json!(2)] {
            script.send(json!({"jsonrpc": "2.0", "id": id, "method": "_work"})).await;
        }
        for (request_id, cancelled) in
            [(json!(3), ""), (json!("1"), "cancelled \"1\""), (json!(1), "cancelled 1")]
        {
            script.notify("$/cancel_request", json!({"requestId": request_id})).await;
            if cancelled.is_empty() {
                script.probe().await;
                assert_eq!(reports.take(), [""; 0]);
            } else {
                assert_eq!(script.next_message().await["id"], request_id);
                assert_eq!(reports.take(), [cancelled]);
            }
        }
    })
    .await;
}

/// Whatever the handler does, there is one response, and the id is free behind it.
#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_gets_an_error() {
    in_time(async {
        let (_peer, mut script, _reports) = connected(Limits::default());
        for (method, message) in
            [("_drop", "the handler ended without a response"), ("_panic", "the handler panicked")]
        {
            for _ in 0..2 {
                script.send(json!({"jsonrpc": "2.0", "id": "x", "method": method})).await;
                let answer = script.next_message().await;
                let expected = json!({"code": -32603, "message": message});
                assert_eq!((&answer["id"], &answer["error"]), (&json!("x"), &expected));
                script.probe().await;
            }
        }
    })
    .await;
}
