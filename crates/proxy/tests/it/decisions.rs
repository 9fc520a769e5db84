//! The decisions of stages: answers, drops, replacements and panics.

use duologue_proxy::{
    Decision, Limits, MESSAGES_PER_LINE, Proxy, ProxyStage, Side, StageLink, StageMessage, schema,
};
use serde_json::json;

use crate::setup::{Log, Place, in_every_place};

in_every_place!(
    a_stage_answers_requests,
    a_dropped_request_and_a_dropped_response_are_answered,
    a_panic_fails_its_message_and_nothing_else,
    a_message_keeps_its_kind,
    invalid_requests_that_are_dropped_are_answered,
    stages_cannot_answer_each_other_without_end,
    a_stage_cannot_send_without_end_to_a_reader_that_is_slow,
);

/// Gives each message the decision that its params name.
struct Obeys;

impl Obeys {
    fn decision(message: &StageMessage<'_>) -> Decision {
        let order = message.params().or(message.result()).map_or("", |text| text.get());
        match order {
            r#"["answer"]"# => Decision::result(&json!({"by": "stage"})),
            r#"["refuse"]"# => Decision::error(schema::Error::invalid_params("not here")),
            r#"["drop"]"# => Decision::Drop,
            r#"["take"]"# if !message.is_request() => Decision::Take,
            r#"["panic"]"# => panic!("on purpose"),
            r#"["notify"]"# => message.with_line(r#"{"jsonrpc":"2.0","method":"_other"}"#),
            r#"["ask"]"# => message.with_line(r#"{"jsonrpc":"2.0","id":1,"method":"_other"}"#),
            r#"["garbage"]"# => message.with_line("garbage"),
            _ => Decision::Pass,
        }
    }
}

impl ProxyStage for Obeys {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        Obeys::decision(message)
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        Obeys::decision(message)
    }
}

mod tests {
    use super::*;

    pub(super) async fn a_stage_answers_requests(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Obeys));
        assert_eq!(client.request("_x", json!(["answer"])).await["result"], json!({"by": "stage"}));
        client.send(json!({"jsonrpc": "2.0", "id": "r", "method": "_x", "params": ["refuse"]})).await;
        let refused = client.next_message().await;
        assert_eq!((&refused["id"], &refused["error"]["message"]), (&json!("r"), &json!("not here")));
        // Of a response the outcome is replaced, and a notification is dropped.
        client.notify("_x", json!(["answer"])).await;
        client.send(json!({"jsonrpc": "2.0", "id": 8, "method": "_y"})).await;
        let request = agent.expect("_y").await;
        agent.respond(&request, json!(["answer"])).await;
        assert_eq!(client.next_message().await["result"], json!({"by": "stage"}));
    }

    pub(super) async fn a_dropped_request_and_a_dropped_response_are_answered(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Obeys));
        for order in ["drop", "take"] {
            client.notify("_x", json!([order])).await;
            client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "_y", "params": ["drop"]})).await;
            let dropped = client.next_message().await;
            assert_eq!((&dropped["id"], &dropped["error"]["code"]), (&json!(1), &json!(-32603)));
            client.send(json!({"jsonrpc": "2.0", "id": 2, "method": "_z"})).await;
            let request = agent.expect("_z").await;
            agent.respond(&request, json!([order])).await;
            let dropped = client.next_message().await;
            assert_eq!((&dropped["id"], &dropped["error"]["code"]), (&json!(2), &json!(-32603)));
        }
        agent.send(json!({"jsonrpc": "2.0", "id": 1, "method": "_y", "params": ["drop"]})).await;
        assert_eq!(agent.next_message().await["error"]["code"], -32603);
    }

    pub(super) async fn a_panic_fails_its_message_and_nothing_else(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Obeys).stage(Obeys));
        client.notify("_x", json!(["panic"])).await;
        client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "_y", "params": ["panic"]})).await;
        let failed = client.next_message().await;
        assert!(failed["error"]["message"].as_str().unwrap().contains("panicked"), "{failed}");
        client.send(json!({"jsonrpc": "2.0", "id": 2, "method": "_z"})).await;
        let request = agent.expect("_z").await;
        agent.respond(&request, json!(["panic"])).await;
        let failed = client.next_message().await;
        assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(2), &json!(-32603)));
    }

    pub(super) async fn a_message_keeps_its_kind(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(Obeys));
        for (id, order) in [(1, "notify"), (2, "garbage")] {
            client.send(json!({"jsonrpc": "2.0", "id": id, "method": "_x", "params": [order]})).await;
            let failed = client.next_message().await;
            assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(id), &json!(-32603)));
        }
        // A request that nobody has sent is not made from a notification.
        client.notify("_x", json!(["ask"])).await;
        client.notify("_x", json!(["notify"])).await;
        agent.expect("_other").await;
    }

    pub(super) async fn invalid_requests_that_are_dropped_are_answered(place: Place) {
        let proxy = Proxy::new().on_client_message(|message, _| {
            if message.is_suspect() { Decision::Drop } else { Decision::Pass }
        });
        let (mut client, mut agent) = place.peers(proxy);
        client.send(r#"{"jsonrpc":"2.0","id":3,"method":"_a","method":"_b"}"#).await;
        let refused = client.next_message().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(-32600)));
        client.send(r#"[{"jsonrpc":"2.0","method":"_a"}]"#).await;
        client.send("npm WARN").await;
        assert_eq!(agent.next_line().await.as_deref(), Some("npm WARN"));
    }

    pub(super) async fn stages_cannot_answer_each_other_without_end(place: Place) {
        struct Plays(Side, Log);
        impl Plays {
            fn plays(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                if message.method() != Some("_ball") {
                    return Decision::Pass;
                }
                if let Err(error) = link.notify(self.0, "_ball", &json!({})) {
                    self.1.push(error.to_string());
                }
                Decision::Drop
            }
        }
        impl ProxyStage for Plays {
            fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                self.plays(message, link)
            }
            fn agent_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                self.plays(message, link)
            }
        }
        let log = Log::default();
        let proxy =
            Proxy::new().stage(Plays(Side::Agent, log.clone())).stage(Plays(Side::Client, log.clone()));
        let (mut client, mut agent) = place.peers(proxy);
        client.notify("_ball", json!({})).await;
        client.notify("_end", json!({})).await;
        agent.expect("_end").await;
        let expected =
            format!("the stages sent {MESSAGES_PER_LINE} messages because of one line (`MESSAGES_PER_LINE`)");
        assert_eq!(log.take(), [expected]);
    }

    pub(super) async fn a_stage_cannot_send_without_end_to_a_reader_that_is_slow(place: Place) {
        let mut limits = Limits::default();
        (limits.output_bytes, limits.output_bytes_hard) = (1000, 100_000);
        let log = Log::default();
        let errors = log.clone();
        let proxy = Proxy::new().limits(limits).on_client_message(move |message, link| {
            if message.method() == Some("_flood") {
                for number in 0..5000 {
                    if let Err(error) = link.notify(
                        Side::Client,
                        "_drop",
                        &json!({"number": number, "padding": "x".repeat(100)}),
                    ) {
                        errors.push(error.to_string());
                    }
                }
            }
            Decision::Pass
        });
        let (mut client, mut agent) = place.peers(proxy);
        client.notify("_flood", json!({})).await;
        agent.expect("_flood").await;
        agent.notify("_end", json!({})).await;
        let mut count = 0;
        while client.next_message().await["method"] == "_drop" {
            count += 1;
        }
        let errors = log.take();
        assert!(
            errors[0].contains("more than 100000") && errors[0].contains("Limits::output_bytes_hard"),
            "{}",
            errors[0]
        );
        assert_eq!(count + errors.len(), 5000);
        assert!(count < 1000, "{count}");
    }
}
