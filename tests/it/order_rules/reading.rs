//! Rules 1 to 5: what the reader does with a line.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use duologue_agent::{Agent, Prompt, StopReason, Turn};
use duologue_client::{Client, SessionUpdate};
use duologue_rpc::{Closed, Error, Incoming, Limits, Peer, PeerBuilder, Responder, Service};
use duologue_schema::ContentBlock;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use duologue_test_support::{Wire, client_of, message_chunk, over_every_wire, texts};

over_every_wire!(
    rule_1_the_reader_never_awaits_a_handler,
    rule_1_both_sides_can_write_more_than_the_wire_holds,
    rule_2_notifications_arrive_in_order_and_one_at_a_time,
    rule_2_many_turns_at_once_keep_their_order,
    rule_3_a_response_comes_after_all_that_was_before_it,
    rule_4_a_bad_line_costs_that_line,
    rule_4_ten_answers_to_noise_in_a_row_are_enough,
    rule_4_a_client_never_answers_noise,
    rule_4_a_line_over_the_limit_ends_an_agent,
    rule_4_a_line_over_the_limit_ends_a_client,
    rule_4_a_message_over_the_limit_is_not_sent,
    rule_4_an_array_is_one_error,
    rule_4_nothing_response_shaped_is_answered,
    rule_4_late_and_unknown_replies_are_counted,
    rule_5_unknown_fields_and_variants_are_kept_apart_from_broken_ones,
    rule_5_ids_come_back_byte_for_byte,
);

/// Answers `_echo`, holds `_hang` until it is let go, counts notifications.
#[derive(Clone)]
struct Desk {
    release: Arc<Semaphore>,
    notified: Arc<Mutex<Vec<u64>>>,
    busy: Arc<AtomicBool>,
}

impl Default for Desk {
    fn default() -> Self {
        Desk { release: Arc::new(Semaphore::new(0)), notified: Arc::default(), busy: Arc::default() }
    }
}

impl Service for Desk {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_echo" => responder.respond(Ok(request.params)),
            "_hang" => {
                let release = self.release.clone();
                responder.spawn(async move {
                    release.acquire().await.expect("open").forget();
                    Ok("at last")
                });
            }
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        assert!(!self.busy.swap(true, SeqCst), "two notifications at the same time");
        let params = notification.params.map_or("0", |params| params.get());
        let [number]: [u64; 1] = serde_json::from_str(params).expect("a number");
        self.notified.lock().expect("unpoisoned").push(number);
        self.busy.store(false, SeqCst);
    }
}

struct Nobody;

impl Service for Nobody {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        responder.method_not_found(request.method);
    }
    fn notification(&self, _: Incoming<'_>) {}
}

fn two_peers(wire: Wire, desk: &Desk) -> (Peer, Peer) {
    let (ours, theirs) = wire.pair();
    let desk = desk.clone();
    (PeerBuilder::new(ours).start(|_| Nobody), PeerBuilder::new(theirs).start(|_| desk))
}

async fn rule_1_the_reader_never_awaits_a_handler(wire: Wire) {
    let desk = Desk::default();
    let (peer, _other) = two_peers(wire, &desk);
    let hanging: Vec<_> = (0..500).map(|_| peer.call::<_, String>("_hang", &[0])).collect();
    for number in 0..500_u64 {
        peer.notify_raw("_note", &[number]).await.expect("sent");
        let [back]: [u64; 1] = peer.call("_echo", &[number]).await.expect("an answer past 500 waiting ones");
        assert_eq!(back, number);
    }
    assert_eq!(peer.pending_requests(), 500);
    assert_eq!(desk.notified.lock().expect("unpoisoned").len(), 500);
    desk.release.add_permits(500);
    for call in hanging {
        assert_eq!(call.await.expect("an answer"), "at last");
    }
}

async fn rule_1_both_sides_can_write_more_than_the_wire_holds(wire: Wire) {
    let (left, right) = (Desk::default(), Desk::default());
    let (ours, theirs) = wire.pair();
    let peers = [
        PeerBuilder::new(ours).start({
            let desk = left.clone();
            |_| desk
        }),
        PeerBuilder::new(theirs).start({
            let desk = right.clone();
            |_| desk
        }),
    ];
    // Questions do not wait for room, so both sides have 4 MiB to write before either reads one.
    let filler = "x".repeat(4096);
    let ask = |peer: &Peer| {
        let calls: Vec<_> =
            (0..1000).map(|_| peer.call::<_, (u32, String)>("_echo", &(7, &filler))).collect();
        futures::future::join_all(calls)
    };
    let (left, right) = tokio::join!(ask(&peers[0]), ask(&peers[1]));
    for answer in left.into_iter().chain(right) {
        assert_eq!(answer.expect("an answer").1.len(), 4096);
    }
}

async fn rule_2_notifications_arrive_in_order_and_one_at_a_time(wire: Wire) {
    let desk = Desk::default();
    let (peer, _other) = two_peers(wire, &desk);
    for number in 0..10_000_u64 {
        peer.notify_raw("_note", &[number]).await.expect("sent");
    }
    // The answer comes after them, so they are all there.
    let _: Value = peer.call("_echo", &[0]).await.expect("an answer");
    let notified = desk.notified.lock().expect("unpoisoned");
    assert!(notified.iter().copied().eq(0..10_000), "{} arrived, or out of order", notified.len());
}

/// Counts to the number in the prompt, one update each.
struct Counter;

impl Agent for Counter {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        for number in 0..prompt.text().parse::<u64>().map_err(duologue_agent::Error::other)? {
            message.push(number.to_string()).await?;
            if number % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

async fn rule_2_many_turns_at_once_keep_their_order(wire: Wire) {
    let (ours, theirs) = wire.pair();
    tokio::spawn(duologue_agent::serve(Counter, theirs));
    let agent = Client::new(()).connect(ours).await.expect("a connection");
    let turns = (0..16).map(|_| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let session = agent.new_session("/tmp").await.expect("a session");
            let mut turn = session.prompt("625").await.expect("a turn");
            let seen = texts(&mut turn).await;
            assert!(seen.iter().map(String::as_str).eq((0..625).map(|n| n.to_string()).collect::<Vec<_>>()));
            // The stream has ended, so the outcome is there and nothing can follow it.
            assert!(turn.next().await.is_none());
            assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::EndTurn);
        })
    });
    for turn in futures::future::join_all(turns).await {
        turn.expect("every turn in order");
    }
}

async fn rule_3_a_response_comes_after_all_that_was_before_it(wire: Wire) {
    /// Sends the wanted number of notifications, then responds.
    struct Burst;
    impl Service for Burst {
        fn request(&self, request: Incoming<'_>, responder: Responder) {
            let [count]: [u64; 1] =
                serde_json::from_str(request.params.expect("params").get()).expect("a number");
            let peer = responder.peer();
            responder.spawn(async move {
                for number in 0..count {
                    peer.notify_raw("_note", &[number]).await.expect("sent");
                }
                Ok(count)
            });
        }
        fn notification(&self, _: Incoming<'_>) {}
    }

    let desk = Desk::default();
    let (ours, theirs) = wire.pair();
    let _burst = PeerBuilder::new(theirs).start(|_| Burst);
    let peer = PeerBuilder::new(ours).start({
        let desk = desk.clone();
        |_| desk
    });
    for round in 0..300 {
        let count = round % 50;
        let answer: u64 = peer.call("_burst", &[count]).await.expect("an answer");
        let seen = std::mem::take(&mut *desk.notified.lock().expect("unpoisoned"));
        assert_eq!(seen.len() as u64, answer, "round {round}: some came after the answer");
    }
}

async fn rule_4_a_bad_line_costs_that_line(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Counter, transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    for round in 0..200 {
        let line = ["}{", "\u{1}", "{\"jsonrpc\": \"2.0\"", "<html>", "tru"][round % 5];
        client.send(line).await;
        let answer = client.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{line}");
        client.probe().await;
    }
    let prompt = client.prompt(&session, "0").await;
    assert_eq!(client.next_message().await["id"], prompt);
}

async fn rule_4_ten_answers_to_noise_in_a_row_are_enough(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Counter, transport));
    client.initialize(json!({})).await;
    for _ in 0..3 {
        client.write("noise\n".repeat(500)).await;
        for _ in 0..10 {
            assert_eq!(client.next_message().await["error"]["code"], -32700);
        }
        // The next thing it says is this answer; with it the count begins anew.
        client.probe().await;
    }
}

async fn rule_4_a_client_never_answers_noise(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    script.write("[1]\nnpm WARN\n{}\nnull\n{\"method\":7}\n{\n".repeat(100)).await;
    script.probe().await;
    assert_eq!(agent.peer().stats().noise, 600);
    assert_eq!(agent.peer().recent_noise().len(), 20);
}

fn short_lines(limit: usize) -> Limits {
    let mut limits = Limits::default();
    limits.frame_bytes = limit;
    limits
}

async fn rule_4_a_line_over_the_limit_ends_an_agent(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    let agent = tokio::spawn(duologue_agent::Server::new(Counter).limits(short_lines(1000)).serve(transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    // As long as a line may be, with both kinds of line end.
    for end in ["\n", "\r\n"] {
        let start = r#"{"jsonrpc":"2.0","id":1,"method":"_fits","params":{"x":""#;
        let line = format!("{start}{}\"}}}}", "x".repeat(1000 - start.len() - 3));
        assert_eq!(line.len(), 1000);
        client.write(line + end).await;
        assert_eq!(client.next_message().await["error"]["code"], -32601);
    }
    // Earlier lines of the same write are still handled.
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "3"}]});
    let prompt = json!({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": prompt});
    client.write(format!("{prompt}\n{}", "x".repeat(1001))).await;
    let rest = client.read_to_end().await;
    assert_eq!(rest.iter().filter(|message| message["id"] == 2).count(), 1, "{rest:?}");
    assert_eq!(rest.iter().filter(|message| message["error"]["code"] == -32600).count(), 1, "{rest:?}");
    let error = agent.await.expect("no panic").expect_err("an agent that was cut off");
    assert!(
        matches!(
            error,
            duologue_agent::Error::Connection(Error::Closed(Closed::FrameTooLarge { limit: 1000 }))
        ),
        "{error}"
    );
    assert!(error.to_string().contains("Limits::frame_bytes"), "{error}");
}

async fn rule_4_a_line_over_the_limit_ends_a_client(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()).limits(short_lines(2000)), json!({})).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
    let session = session.expect("a session");
    let (turn, _) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
    let mut turn = turn.expect("a turn");
    let updates: String = (0..100).map(|number| message_chunk("s", &number.to_string())).collect();
    script.write(format!("{updates}{}", "y".repeat(2001))).await;
    assert_eq!(texts(&mut turn).await.len(), 100, "what came before is delivered");
    let error = turn.outcome().await.expect_err("no answer came");
    assert!(error.to_string().contains("2000 bytes, Limits::frame_bytes"), "{error}");
    assert!(script.read_to_end().await.is_empty(), "a client says nothing about it");
    let error = session.prompt("again").await.expect_err("the connection is over");
    assert!(error.to_string().contains("Limits::frame_bytes"), "{error}");
}

async fn rule_4_a_message_over_the_limit_is_not_sent(wire: Wire) {
    let desk = Desk::default();
    let (ours, theirs) = wire.pair();
    let peer = PeerBuilder::new(ours).limits(short_lines(500)).start(|_| Nobody);
    let _other = PeerBuilder::new(theirs).limits(short_lines(500)).start({
        let desk = desk.clone();
        |_| desk
    });
    let long = "z".repeat(500);
    let error = peer.call::<_, Value>("_echo", &[&long]).await.expect_err("too long");
    assert!(matches!(error, Error::FrameTooLarge { limit: 500, .. }), "{error}");
    let error = peer.notify_raw("_note", &[&long]).await.expect_err("too long");
    assert!(matches!(error, Error::FrameTooLarge { bytes: 501.., limit: 500 }), "{error}");
    assert_eq!(peer.pending_requests(), 0);
    // An answer that grows over the limit is an error to its asker, and nobody hangs.
    let fits = "z".repeat(440);
    let answer = peer.call::<_, Value>("_echo", &[&fits]).await.expect("an answer that fits");
    assert_eq!(answer[0], fits);
}

async fn rule_4_an_array_is_one_error(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Counter, transport));
    let entry = r#"{"jsonrpc":"2.0","id":1,"method":"_a"}"#;
    for array in ["[]", "[1,2]", &format!("[{entry},{entry}]"), &format!("[{}{entry}]", "[],".repeat(5000))] {
        client.send(array).await;
        let answer = client.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
        client.probe().await;
    }
}

async fn rule_4_nothing_response_shaped_is_answered(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Counter, transport));
    for _ in 0..100 {
        for answer in [
            r#"{"jsonrpc":"2.0","id":5,"result":1}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#,
            r#"{"jsonrpc":"2.0","id":{},"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"id":5,"result":1,"error":{"code":1,"message":"both"}}"#,
            r#"{"jsonrpc":"2.0","id":5,"id":6,"error":7}"#,
        ] {
            client.send(answer).await;
        }
        client.probe().await;
    }
}

async fn rule_4_late_and_unknown_replies_are_counted(wire: Wire) {
    let (transport, mut script) = wire.scripted();
    let peer = PeerBuilder::new(transport).start(|_| Nobody);
    for _ in 0..100 {
        let call = peer.call::<_, Value>("_slow", &[1]);
        let request = script.expect("_slow").await;
        drop(call);
        let cancel = script.expect("$/cancel_request").await;
        assert_eq!(cancel["params"]["requestId"], request["id"]);
        script.respond(&request, json!("late")).await;
        script.send(r#"{"jsonrpc":"2.0","id":"unknown","result":1}"#).await;
        // As a string it is another id, and as a fraction none of ours.
        script.send(format!(r#"{{"jsonrpc":"2.0","id":"{}","result":1}}"#, request["id"])).await;
        script.probe().await;
    }
    assert_eq!((peer.stats().stray_responses, peer.pending_requests()), (300, 0));
}

async fn rule_5_unknown_fields_and_variants_are_kept_apart_from_broken_ones(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({"fromTheFuture": [1]})).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
    let (turn, prompt) =
        tokio::join!(session.as_ref().expect("a session").prompt("go"), script.expect("session/prompt"));
    let mut turn = turn.expect("a turn");
    for number in 0..200 {
        let unknown = json!({"sessionUpdate": "from_the_future", "number": number, "z": 1, "a": 2});
        script.notify("session/update", json!({"sessionId": "s", "update": unknown, "more": true})).await;
        let broken = json!({"sessionUpdate": "agent_message_chunk", "content": 7});
        script.notify("session/update", json!({"sessionId": "s", "update": broken})).await;
        let text = json!({"type": "text", "text": "t", "colour": "red"});
        let known = json!({"sessionUpdate": "agent_message_chunk", "content": text, "extra": null});
        script.notify("session/update", json!({"sessionId": "s", "update": known})).await;
    }
    script.end_turn(&prompt, "end_turn").await;
    for number in 0..200 {
        let unknown = turn.next().await.expect("an update").expect("no error");
        let back = serde_json::to_value(&unknown).expect("JSON");
        assert_eq!(back, json!({"sessionUpdate": "from_the_future", "number": number, "z": 1, "a": 2}));
        let SessionUpdate::AgentMessageChunk(known) =
            turn.next().await.expect("an update").expect("no error")
        else {
            panic!("a broken chunk came through")
        };
        assert_eq!(known.content.as_text(), Some("t"));
        assert!(matches!(known.content, ContentBlock::Text(_)));
    }
    assert!(turn.next().await.is_none());
}

async fn rule_5_ids_come_back_byte_for_byte(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Counter, transport));
    let long = format!("\"{}\"", "i".repeat(10_000));
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "\"\"",
        "\"1\"",
        "\"\\u0031\"",
        "\"\\/ \\ud83d\\ude00\"",
        "\"\u{2028}\"",
        "null",
        &long,
    ] {
        for method in ["_nobody", "session/prompt", "initialize"] {
            client.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":[]}}"#)).await;
            let line = client.next_line().await.expect("an answer");
            assert!(line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error""#)), "{line}");
        }
    }
}
