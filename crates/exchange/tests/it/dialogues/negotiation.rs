//! A car is bought, with three speakers and everything signed.

use std::sync::{Arc, Mutex};

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
