//! The order of messages.

use duologue_proxy::{Decision, Proxy, ProxyStage, Side, StageLink, StageMessage};
use duologue_test_support::in_time;
use proptest::prelude::*;
use serde_json::json;

use crate::setup::{Place, in_every_place};

/// Sends a numbered notification to a side for each message, as its seed says, and replaces some messages.
struct Chatty {
    name: &'static str,
    seed: u64,
    sent: [u64; 2],
}

impl Chatty {
    fn decision(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = self.seed >> 33;
        // Messages of stages are not answered, so that the number of messages is finite.
        if message.method() == Some("_number") {
            for (side, bit, sent) in [(Side::Client, 1, 0), (Side::Agent, 2, 1)] {
                if choice & bit > 0 {
                    link.notify(side, "_own", &json!({"from": self.name, "number": self.sent[sent]}))
                        .unwrap();
                    self.sent[sent] += 1;
                }
            }
        }
        if choice & 12 == 12 {
            let mut params: serde_json::Value = message.params_as().unwrap();
            params["changed"] = true.into();
            return message.with_params(&params);
        }
        Decision::Pass
    }
}

impl ProxyStage for Chatty {
    fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        self.decision(message, link)
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        self.decision(message, link)
    }
}

/// Checks that the numbers of each sender arrive in order and without gaps. Returns the number of each sender's messages.
fn check(messages: &[serde_json::Value]) -> Vec<(String, u64)> {
    let mut next: Vec<(String, u64)> = Vec::new();
    for message in messages {
        let params = &message["params"];
        let from = params["from"].as_str().unwrap().to_owned();
        let place = next.iter().position(|(name, _)| *name == from).unwrap_or_else(|| {
            next.push((from, 0));
            next.len() - 1
        });
        assert_eq!(params["number"], next[place].1, "{}: {message}", next[place].0);
        next[place].1 += 1;
    }
    next
}

async fn each_sender_is_in_order(seeds: [u64; 3], count: u64, place: Place) {
    let chatty = |name, seed| Chatty { name, seed, sent: [0; 2] };
    let [a, b, c] = seeds;
    let proxy = Proxy::new().stage(chatty("a", a)).stage(chatty("b", b)).stage(chatty("c", c));
    let (mut client, mut agent) = place.peers(proxy);
    let speak = async |peer: &mut duologue_test_support::ScriptedPeer, from: &str| {
        for number in 0..count {
            peer.notify("_number", json!({"from": from, "number": number})).await;
        }
    };
    tokio::join!(speak(&mut client, "client"), speak(&mut agent, "agent"));
    client.close().await;
    let at_agent = agent.read_to_end().await;
    agent.close().await;
    let at_client = client.read_to_end().await;
    assert!(check(&at_agent).contains(&("client".into(), count)), "{at_agent:?}");
    assert!(check(&at_client).contains(&("agent".into(), count)), "{at_client:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 30, ..Default::default() })]

    #[test]
    fn each_sender_is_in_order_through_stages_that_send_and_change(seeds: [u64; 3], count in 1..50u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for place in Place::ALL {
                in_time(each_sender_is_in_order(seeds, count, place)).await;
            }
        });
    }
}

in_every_place!(messages_of_a_call_go_before_its_message, a_message_does_not_overtake_another_between_stages);

mod tests {
    use super::*;

    pub(super) async fn messages_of_a_call_go_before_its_message(place: Place) {
        // A changed message waits between the stages.
        let changes =
            |message: &StageMessage<'_>, _: &mut StageLink<'_>| message.with_params(&json!({"x": 1}));
        let proxy = Proxy::new().on_client_message(changes).on_client_message(|message, link| {
            if message.method() == Some("_second") {
                link.notify(Side::Agent, "_first", &json!({})).unwrap();
                link.notify(Side::Client, "_back", &json!({})).unwrap();
            }
            Decision::Pass
        });
        let (mut client, mut agent) = place.peers(proxy);
        client.notify("_second", json!({})).await;
        agent.expect("_first").await;
        agent.expect("_second").await;
        client.expect("_back").await;
    }

    /// The second stage sends two messages to the client. The first stage answers the one with a message to the agent, which
    /// the second stage answers with a third message to the client.
    pub(super) async fn a_message_does_not_overtake_another_between_stages(place: Place) {
        struct First;
        impl ProxyStage for First {
            fn agent_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                if message.method() == Some("_one") {
                    link.notify(Side::Agent, "_echo", &json!({})).unwrap();
                }
                Decision::Pass
            }
        }
        struct Second;
        impl ProxyStage for Second {
            fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                if message.method() == Some("_echo") {
                    link.notify(Side::Client, "_three", &json!({})).unwrap();
                }
                Decision::Pass
            }

            fn agent_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
                if message.method() == Some("_start") {
                    link.notify(Side::Client, "_one", &json!({})).unwrap();
                    link.notify(Side::Client, "_two", &json!({})).unwrap();
                }
                Decision::Pass
            }
        }
        let (mut client, mut agent) = place.peers(Proxy::new().stage(First).stage(Second));
        agent.notify("_start", json!({})).await;
        agent.expect("_echo").await;
        for method in ["_one", "_two", "_start", "_three"] {
            client.expect(method).await;
        }
    }
}
