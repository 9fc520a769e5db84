//! The limits of a connection, at their exact values.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{Closed, Error, Incoming, Limits, NotificationBuffer, PeerBuilder, Responder, Service};
use serde_json::{Value, json};

use duologue_test_support::{Wire, in_time};

/// Answers with a text of the requested length.
struct Lengths;

impl Service for Lengths {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        if request.method != "_length" {
            return responder.method_not_found(request.method);
        }
        let length = request.params.and_then(|params| params.get().trim_matches(['[', ']']).parse().ok());
        responder.respond(Ok("x".repeat(length.unwrap_or(0))));
    }

    fn notification(&self, _: Incoming<'_>) {}
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Note(String);

impl duologue_schema::Notification for Note {
    const METHOD: &'static str = "_note";
}

/// The limit of a line counts its bytes without the line end, in every direction and for every kind of message.
#[tokio::test(start_paused = true)]
async fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    in_time(async {
        const LIMIT: usize = 1000;
        let (transport, mut script) = Wire::Memory.scripted();
        let mut limits = Limits::default();
        limits.frame_bytes = LIMIT;
        let peer = PeerBuilder::new(transport).limits(limits).start(|_| Lengths);
        let fits = |envelope: &str| LIMIT - envelope.len();

        let note = fits(r#"{"jsonrpc":"2.0","method":"_note","params":""}"#);
        peer.notify_now(&Note("x".repeat(note))).expect("it fits");
        assert_eq!(script.next_line().await.expect("a line").trim_end().len(), LIMIT);
        let error = peer.notify_now(&Note("x".repeat(note + 1))).expect_err("too long");
        let is_exact = matches!(error, Error::FrameTooLarge { bytes, limit: LIMIT } if bytes == LIMIT + 1);
        assert!(is_exact, "{error}");
        let mut behind = NotificationBuffer::new(&peer);
        behind.push(&Note("x".repeat(note))).expect("it fits");
        assert!(matches!(behind.push(&Note("x".repeat(note + 1))), Err(Error::FrameTooLarge { .. })));

        let request = fits(r#"{"jsonrpc":"2.0","id":1,"method":"_ask","params":""}"#);
        let call = peer.call::<_, Value>("_ask", &"x".repeat(request));
        assert_eq!(script.next_line().await.expect("a line").trim_end().len(), LIMIT);
        drop(call);
        script.expect("$/cancel_request").await;
        let error = peer.call::<_, Value>("_ask", &"x".repeat(request + 1)).await.expect_err("too long");
        assert!(matches!(error, Error::FrameTooLarge { limit: LIMIT, .. }), "{error}");
        assert_eq!(peer.pending_requests(), 0, "a request that was not sent does not wait");

        let result = fits(r#"{"jsonrpc":"2.0","id":"7","result":""}"#);
        for (length, is_sent) in [(result, true), (result + 1, false)] {
            let params = json!([length]);
            script.send(json!({"jsonrpc": "2.0", "id": "7", "method": "_length", "params": params})).await;
            let answer = script.next_message().await;
            assert_eq!(answer["result"].is_string(), is_sent, "{length}");
            if !is_sent {
                assert_eq!(answer["error"]["code"], -32603);
                let message = answer["error"]["message"].as_str().expect("a message");
                assert!(message.contains("1001 bytes, Limits::frame_bytes is 1000"), "{message}");
            }
        }

        let envelope = r#"{"jsonrpc":"2.0","id":1,"method":"_length","params":[0],"_":""}"#.len();
        let line = |length: usize| {
            let filler = "x".repeat(length - envelope);
            json!({"jsonrpc": "2.0", "id": 1, "method": "_length", "params": [0], "_": filler}).to_string()
        };
        assert_eq!(line(LIMIT).len(), LIMIT);
        script.send(line(LIMIT)).await;
        assert_eq!(script.next_message().await["result"], "");
        script.send(line(LIMIT + 1)).await;
        assert!(matches!(peer.closed().await, Closed::FrameTooLarge { limit: LIMIT }));
    })
    .await;
}

/// Keeps all requests.
struct Keeps(Arc<std::sync::Mutex<Vec<Responder>>>);

impl Service for Keeps {
    fn request(&self, _: Incoming<'_>, responder: Responder) {
        self.0.lock().expect("no panic").push(responder);
    }

    fn notification(&self, _: Incoming<'_>) {}
}

#[tokio::test(start_paused = true)]
async fn the_number_of_requests_in_flight_is_limited() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let mut limits = Limits::default();
        limits.in_flight = 2;
        let kept = Arc::default();
        let peer = PeerBuilder::new(transport).limits(limits).start(|_| Keeps(Arc::clone(&kept)));
        for round in 1..=3 {
            let first = [
                script.send_request("_keep", json!({})).await,
                script.send_request("_keep", json!({})).await,
            ];
            let refused = script.request("_keep", json!({})).await;
            assert_eq!(refused["error"]["code"], -32603, "{refused}");
            let message = refused["error"]["message"].as_str().expect("a message");
            assert!(message.contains("2 in flight, Limits::in_flight"), "{message}");
            assert_eq!(peer.stats().refused, round);
            for responder in std::mem::take(&mut *kept.lock().expect("no panic")) {
                responder.respond(Ok(()));
            }
            for id in first {
                assert_eq!(script.next_message().await["id"], id);
            }
        }
    })
    .await;
}

/// An id belongs to one request until its response, and can be used again behind it.
#[tokio::test(start_paused = true)]
async fn an_id_in_use_is_refused_and_its_first_request_is_left_alone() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let kept = Arc::default();
        let peer = PeerBuilder::new(transport).start(|_| Keeps(Arc::clone(&kept)));
        for _ in 0..2 {
            let request = json!({"jsonrpc": "2.0", "id": "same", "method": "_keep"});
            script.send(&request).await;
            script.send(&request).await;
            let refused = script.next_message().await;
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("same"), &json!(-32600)));
            let first = kept.lock().expect("no panic").pop().expect("the first request");
            assert!(kept.lock().expect("no panic").is_empty(), "the second request was handled");
            assert!(!first.cancellation().is_cancelled());
            first.respond(Ok(1));
            assert_eq!(script.next_message().await["result"], 1);
        }
        assert_eq!(peer.stats().refused, 2);
    })
    .await;
}

/// A peer that never reads cannot make our own requests fill the memory.
#[tokio::test(start_paused = true)]
async fn four_times_the_limit_of_the_output_ends_the_connection_at_once() {
    in_time(async {
        let (ours, _theirs) = duologue_rpc::Transport::memory_with_capacity(1);
        let mut limits = Limits::default();
        (limits.output_bytes, limits.output_bytes_hard) = (1000, 1000);
        limits.stall_timeout = Duration::from_secs(3600);
        let peer = PeerBuilder::new(ours).limits(limits).start(|_| Lengths);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let note = || Note("x".repeat(900));
        let mut sent = 0;
        let error = loop {
            match peer.notify_now(&note()) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Closed(Closed::OutputStalled { limit: 1000 })), "{error}");
        assert_eq!(sent, 4, "each has 945 bytes, and 4,000 may wait");
        assert!(peer.is_closing(), "the connection goes on");
        assert!(matches!(peer.closed().await, Closed::OutputStalled { limit: 1000 }));
    })
    .await;
}

/// Lines that are not messages are answered so often in a row, and a message begins the row again.
#[tokio::test(start_paused = true)]
async fn noise_is_answered_so_often_in_a_row() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let mut limits = Limits::default();
        limits.parse_errors_in_a_row = 3;
        let peer = PeerBuilder::new(transport).limits(limits).answer_noise(true).start(|_| Lengths);
        for _ in 0..2 {
            for _ in 0..5 {
                script.send("npm WARN").await;
            }
            for _ in 0..3 {
                let answer = script.next_message().await;
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)));
            }
            // Nothing comes before the response of a message.
            script.probe().await;
        }
        assert_eq!(peer.stats().noise, 10);
        assert_eq!(peer.recent_noise(), vec!["npm WARN"; 10]);
        for number in 0..30 {
            script.send(format!("{number} {}", "x".repeat(2000))).await;
        }
        for _ in 0..3 {
            script.next_message().await;
        }
        script.probe().await;
        let noise = peer.recent_noise();
        assert_eq!(noise.len(), Limits::NOISE_LINES);
        assert!(noise[0].starts_with("10 x") && noise[19].starts_with("29 x"), "{noise:?}");
        assert!(noise.iter().all(|line| line.len() == Limits::NOISE_LINE_BYTES));
    })
    .await;
}
