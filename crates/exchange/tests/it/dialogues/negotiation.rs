//! A car is bought, with three speakers and everything signed.

use std::sync::{Arc, Mutex};

use duologue_agent::exchange::dialogue::{Dialogue, DialogueHandler, Dialogues, Error, VerifiedMessage};
use duologue_schema::dialogue::MessageType;
use serde_json::json;

use super::handling::{played, say};
use super::speakers::{BUYER, DETAILS, Details, Prompted, SELLER, Seller, buy, connected, joined, signing};
use duologue_test_support::in_time;

const BOUGHT: &str = "17000: 1 request, 2 response, 3 propose, 4 reject, 5 propose, 6 accept, 7 termination";

/// The seller, on a connection to the agent with the details.
async fn seller() -> (impl Sized, Seller, Arc<Mutex<Vec<String>>>) {
    let (connection, session) = connected(signing(SELLER), signing(DETAILS).handler(Details)).await;
    let nested = Arc::<Mutex<Vec<String>>>::default();
    let seller = Seller { details: session.peer_agent(), nested: nested.clone() };
    ((connection, session), seller, nested)
}

#[tokio::test]
async fn a_client_buys_from_an_agent() {
    in_time(async {
        let (_details, seller, nested) = seller().await;
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(seller)).await;
        assert_eq!(buy(session.peer_agent()).await.unwrap(), BOUGHT);
        assert_eq!(*nested.lock().unwrap(), ["[1, 2, 3]"]);
    })
    .await;
}

#[tokio::test]
async fn an_agent_buys_from_a_client() {
    in_time(async {
        let (_details, seller, nested) = seller().await;
        let (_connection, session) =
            joined(signing(SELLER).handler(seller), signing(BUYER), Prompted(buy)).await;
        let turn = session.prompt("Buy a car.").await.unwrap().finish().await.unwrap();
        assert_eq!(turn.text, BOUGHT);
        assert_eq!(*nested.lock().unwrap(), ["[1, 2, 3]"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_buy_at_once() {
    in_time(async {
        let (_details, seller, nested) = seller().await;
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(seller)).await;
        let buyers: Vec<_> = (0..50).map(|_| tokio::spawn(buy(session.peer_agent()))).collect();
        for buyer in buyers {
            assert_eq!(buyer.await.unwrap().unwrap(), BOUGHT);
        }
        assert_eq!(nested.lock().unwrap().len(), 50);
    })
    .await;
}

/// Makes one offer for each request.
struct Offering;

impl DialogueHandler for Offering {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            dialogue.propose("17,000").await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_offer_is_settled_once_by_the_side_that_sends() {
    in_time(async {
        let (_connection, session) = connected(signing(BUYER), signing(SELLER).handler(Offering)).await;
        let dialogue = session.peer_agent().dialogue(SELLER).unwrap();
        let offer = dialogue.request("A car?").await.unwrap();
        let accepted = dialogue.accept("Agreed.").id("deal").await.unwrap();
        assert!(accepted.message.signature.as_deref().is_some_and(|signature| signature.contains("..")));
        // The same message may be repeated.
        let again = dialogue.accept("Agreed.").id("deal").await.unwrap();
        assert_eq!((again.receipt.unwrap().duplicate, again.message), (true, accepted.message));
        for second in [dialogue.accept("Once more."), dialogue.reject("After all, no.")] {
            let error = second.answering(&offer).await.unwrap_err().to_string();
            assert!(error.contains(" answers an offer that was accepted or rejected before;"), "{error}");
        }
        dialogue.request("Another one?").await.unwrap();
        dialogue.reject("No.").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_offer_is_settled_once_by_the_side_that_receives() {
    in_time(async {
        let (mut buyer, session) = played(Dialogues::new(SELLER).unwrap().handler(Offering)).await;
        assert_eq!(say(&mut buyer, &session, 1, "request", None).await["receipt"]["status"], "delivered");
        let offer = buyer.expect("_session/dialogue").await;
        let id = offer["params"]["message"]["message_id"].as_str().unwrap();
        buyer.respond(&offer, json!({"receipt": {"message_id": id, "session_id": "d"}})).await;
        assert_eq!(say(&mut buyer, &session, 3, "accept", Some(id)).await["receipt"]["status"], "delivered");
        for second in ["accept", "reject"] {
            let answer = say(&mut buyer, &session, 4, second, Some(id)).await;
            let error = &answer["error"]["content"];
            assert_eq!(error["error_code"], "INVALID_PARAMETER", "{answer}");
            let expected = format!("{second} answers an offer that was accepted or rejected before;");
            assert!(error["error_message"].as_str().unwrap().starts_with(&expected), "{answer}");
        }
        assert_eq!(say(&mut buyer, &session, 4, "inform", Some(id)).await["receipt"]["status"], "delivered");
    })
    .await;
}
