//! The ids of requests, and their cancels.

use duologue_proxy::schema::RequestId;
use duologue_proxy::{Decision, Limits, Proxy, ProxyStage, Side, StageLink, StageMessage};
use serde_json::{Value, json};

use crate::setup::{Asking, Log, Place, Watching, in_every_place, shown};

in_every_place!(
    reverse_requests_pass_three_stages,
    the_response_to_a_request_of_a_stage_comes_to_it_alone,
    an_id_of_a_stage_cannot_be_used_by_another_request,
    requests_of_stages_fail_when_their_receiver_leaves,
    changed_ids_are_restored_and_cancels_follow_them,
    a_cancel_of_a_taken_request_goes_no_further,
    the_number_of_open_ids_is_limited,
    a_stage_cancels_its_own_request,
);

/// Gives each request of the client another id.
struct Renames;

impl ProxyStage for Renames {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        match message.id().filter(|_| message.is_request()).and_then(|id| id.parse::<u64>().ok()) {
            Some(id) => message.with_id(&RequestId::from(id + 1000)),
            None => Decision::Pass,
        }
    }
}

/// Takes `_slow`, and answers it with the ids of its cancels.
struct Takes(Log);

impl ProxyStage for Takes {
    fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        match message.method() {
            Some("_slow") => {
                self.0.push(message.id().unwrap());
                Decision::Take
            }
            Some("_finish") => {
                for id in self.0.take() {
                    link.respond(Side::Client, &id, Ok("finished")).unwrap();
                    assert!(link.respond(Side::Client, &id, Ok("again")).is_err());
                }
                Decision::Drop
            }
            Some("$/cancel_request") => {
                let id = message.params_as::<Value>().unwrap()["requestId"].to_string();
                if self.0.take().contains(&id) {
                    let handle = link.handle();
                    // Outside of the call, as a task does.
                    handle
                        .run(move |link| link.respond(Side::Client, &id, Ok("cancelled")).unwrap())
                        .unwrap();
                }
                Decision::Pass
            }
            _ => Decision::Pass,
        }
    }
}

mod tests {
    use super::*;

    pub(super) async fn reverse_requests_pass_three_stages(place: Place) {
        let log = Log::default();
        let watching = |name| Watching(name, log.clone());
        let proxy = Proxy::new().stage(watching("a")).stage(watching("b")).stage(watching("c"));
        let (mut client, mut agent) = place.peers(proxy);
        // Both sides use the same ids.
        client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}})).await;
        let prompt = agent.expect("session/prompt").await;
        agent.send(json!({"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file", "params": {}})).await;
        let read = client.expect("fs/read_text_file").await;
        client.respond(&read, json!({"content": "x"})).await;
        assert_eq!(agent.next_message().await["result"]["content"], "x");
        agent.respond(&prompt, json!({"stopReason": "end_turn"})).await;
        assert_eq!(client.next_message().await["result"]["stopReason"], "end_turn");
        let expected = [
            "a Client session/prompt 1",
            "b Client session/prompt 1",
            "c Client session/prompt 1",
            "c Agent fs/read_text_file 1",
            "b Agent fs/read_text_file 1",
            "a Agent fs/read_text_file 1",
            "a Client response 1",
            "b Client response 1",
            "c Client response 1",
            "c Agent response 1",
            "b Agent response 1",
            "a Agent response 1",
        ];
        assert_eq!(log.take(), expected);
    }

    pub(super) async fn the_response_to_a_request_of_a_stage_comes_to_it_alone(place: Place) {
        let (log, seen) = (Log::default(), Log::default());
        let proxy = Proxy::new()
            .stage(Watching("before", seen.clone()))
            .stage(Asking(log.clone()))
            .stage(Watching("behind", seen.clone()));
        let (mut client, mut agent) = place.peers(proxy);
        client.notify("_go", json!({})).await;
        let ask = agent.expect("_ask").await;
        agent.expect("_go").await;
        agent.respond(&ask, json!(1)).await;
        let ask = client.expect("_ask").await;
        client.send(json!({"jsonrpc": "2.0", "id": ask["id"], "error": {"code": 1, "message": "no"}})).await;
        // Neither side gets the response to a request that it has not sent.
        client.notify("_end", json!({})).await;
        agent.expect("_end").await;
        agent.notify("_end", json!({})).await;
        client.expect("_end").await;
        let mut lines = log.take();
        lines.sort();
        let expected = [
            "Agent is StageCall(2)",
            "Client is StageCall(1)",
            "StageCall(1) failed: no (1)",
            "StageCall(2) = 1",
        ];
        assert_eq!(lines, expected);
        let seen = seen.take();
        let count = |start: &str| seen.iter().filter(|line| line.starts_with(start)).count();
        // The stages between it and the receiver see both messages.
        assert_eq!((count("before Agent _ask"), count("before Client response")), (1, 1), "{seen:?}");
        assert_eq!((count("behind Client _ask"), count("behind Agent response")), (1, 1), "{seen:?}");
        assert_eq!(count("before Client _ask") + count("behind Agent _ask"), 0, "{seen:?}");
    }

    pub(super) async fn an_id_of_a_stage_cannot_be_used_by_another_request(place: Place) {
        let log = Log::default();
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Asking(log.clone())));
        client.notify("_go", json!({})).await;
        let (own, ask) = (client.expect("_ask").await, agent.expect("_ask").await);
        assert_ne!(own["id"], ask["id"]);
        client.send(json!({"jsonrpc": "2.0", "id": ask["id"], "method": "_clash"})).await;
        assert_eq!(client.next_message().await["error"]["code"], -32600);
        agent.expect("_go").await;
        agent.respond(&ask, json!("mine")).await;
        client.notify("_end", json!({})).await;
        agent.expect("_end").await;
        agent.notify("_end", json!({})).await;
        client.expect("_end").await;
        assert!(log.take().contains(&"StageCall(2) = \"mine\"".into()));
    }

    pub(super) async fn requests_of_stages_fail_when_their_receiver_leaves(place: Place) {
        let log = Log::default();
        let mut limits = Limits::default();
        limits.in_flight = 2;
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Asking(log.clone())).limits(limits));
        client.notify("_go", json!({})).await;
        client.expect("_ask").await;
        agent.expect("_ask").await;
        agent.close().await;
        assert_eq!(client.read_to_end().await, Vec::<Value>::new());
        assert!(log.take().iter().any(|line| line.starts_with("StageCall(2) failed: the receiver")));
        // The failed request makes room for another one.
        if let Place::ToAgent = place {
            client.notify("_go", json!({})).await;
            while !log.take().contains(&"Client is StageCall(3)".to_owned()) {
                tokio::task::yield_now().await;
            }
        }
    }

    pub(super) async fn changed_ids_are_restored_and_cancels_follow_them(place: Place) {
        let proxy = Proxy::new().stage(Renames).stage(Renames);
        let (mut client, mut agent) = place.peers(proxy);
        client.send(r#"{"jsonrpc":"2.0","id":7,"method":"_x","params":{"a":1}}"#).await;
        let request = agent.expect("_x").await;
        assert_eq!(request, json!({"jsonrpc": "2.0", "id": 2007, "method": "_x", "params": {"a": 1}}));
        let cancel = |id: u64| json!({"requestId": id, "_meta": {"k": 1}});
        client.notify("$/cancel_request", cancel(7)).await;
        assert_eq!(agent.next_message().await["params"], cancel(2007));
        // The agent's own request with this id is another one.
        client.notify("$/cancel_request", cancel(8)).await;
        assert_eq!(agent.next_message().await["params"], cancel(8));
        agent.notify("$/cancel_request", cancel(7)).await;
        assert_eq!(client.next_message().await["params"], cancel(7));
        agent.respond(&request, json!("done")).await;
        assert_eq!(client.next_message().await, json!({"jsonrpc": "2.0", "id": 7, "result": "done"}));
        // After the response both ids are free.
        client.notify("$/cancel_request", cancel(7)).await;
        assert_eq!(agent.next_message().await["params"], cancel(7));
        client.send(r#"{"jsonrpc":"2.0","id":7,"method":"_x"}"#).await;
        assert_eq!(agent.next_message().await["id"], 2007);
    }

    pub(super) async fn a_cancel_of_a_taken_request_goes_no_further(place: Place) {
        let proxy = Proxy::new().stage(Renames).stage(Takes(Log::default())).stage(Renames);
        let (mut client, mut agent) = place.peers(proxy);
        client.send(json!({"jsonrpc": "2.0", "id": 5, "method": "_slow"})).await;
        client.notify("$/cancel_request", json!({"requestId": 5})).await;
        assert_eq!(client.next_message().await, json!({"jsonrpc": "2.0", "id": 5, "result": "cancelled"}));
        client.notify("_end", json!({})).await;
        // The agent got neither the request nor its cancel.
        agent.expect("_end").await;
    }

    pub(super) async fn the_number_of_open_ids_is_limited(place: Place) {
        let mut limits = Limits::default();
        limits.in_flight = 3;
        let taking = Proxy::new().stage(Takes(Log::default())).limits(limits.clone());
        let renaming = Proxy::new().stage(Renames).limits(limits);
        for (proxy, is_passed) in [(taking, false), (renaming, true)] {
            let (mut client, mut agent) = place.peers(proxy);
            for id in 1..=4 {
                client.send(json!({"jsonrpc": "2.0", "id": id, "method": "_slow"})).await;
            }
            let refused = client.next_message().await;
            assert_eq!(refused["id"], 4);
            assert!(refused["error"]["message"].as_str().unwrap().contains("Limits::in_flight"), "{refused}");
            // An answered request makes room.
            if is_passed {
                let first = agent.next_message().await;
                agent.respond(&first, json!({})).await;
            } else {
                client.notify("_finish", json!({})).await;
            }
            assert_eq!(client.next_message().await["id"], 1);
            client.send(json!({"jsonrpc": "2.0", "id": 9, "method": "_slow"})).await;
            client.notify(if is_passed { "_end" } else { "_finish" }, json!({})).await;
            let mut answered = Vec::new();
            while !is_passed && answered.last() != Some(&json!(9)) {
                answered.push(client.next_message().await["id"].clone());
            }
            while is_passed && answered.last() != Some(&json!(1009)) {
                answered.push(agent.next_message().await["id"].clone());
            }
        }
    }

    pub(super) async fn a_stage_cancels_its_own_request(place: Place) {
        let log = Log::default();
        let outcome = log.clone();
        struct Cancels(Log);
        impl ProxyStage for Cancels {
            fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                if message.method() == Some("_go") {
                    let call = link.request(Side::Agent, "_ask", &json!({})).unwrap();
                    link.cancel(call).unwrap();
                }
                Decision::Drop
            }

            fn response(
                &mut self,
                _: duologue_proxy::StageCall,
                outcome: Result<&serde_json::value::RawValue, duologue_proxy::schema::Error>,
                link: &mut StageLink<'_>,
            ) {
                self.0.push(outcome.unwrap_err().to_string());
                link.notify(Side::Client, "_seen", &json!({})).unwrap();
            }
        }
        let proxy = Proxy::new().stage(Cancels(outcome)).stage(Watching("", Log::default()));
        let (mut client, mut agent) = place.peers(proxy);
        client.notify("_go", json!({})).await;
        let ask = agent.expect("_ask").await;
        let cancel = agent.expect("$/cancel_request").await;
        assert_eq!(cancel["params"]["requestId"], ask["id"]);
        let error = json!({"code": -32800, "message": "cancelled"});
        agent.send(json!({"jsonrpc": "2.0", "id": ask["id"], "error": error})).await;
        assert_eq!(shown(&client.next_message().await), "_seen");
        assert_eq!(log.take(), ["cancelled (-32800)"]);
    }
}
