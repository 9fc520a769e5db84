//! The three agents at a hub. They reach each other through it, and send messages again while it is away.

use std::path::Path;
use std::time::Duration;

use duologue_agent::exchange::dialogue::{
    AllowList, AllowRule, Backoff, DialogueHandler, Dialogues, PublishedKeys,
};
use duologue_agent::{Agent, Exchange, Prompt, Server, StopReason, Turn};

use crate::car_details::CarDetails;
use crate::partner::OnlyDialogues;
use crate::seller::Seller;
use crate::tasks::{BUYER, CAR_DETAILS, SELLER, thousands};
use crate::{Result, buyer, keys, tasks};

/// Serves as an agent until the hub leaves. The arguments are the role and the file of keys.
pub(crate) async fn run(mut arguments: impl Iterator<Item = String>) -> Result {
    let (Some(role), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: car-purchase attached buyer|seller|car-details KEYS".into());
    };
    match role.as_str() {
        "buyer" => {
            let exchange = Exchange::new().dialogue(dialogues(BUYER, &file)?);
            Ok(Server::new(Buyer).exchange(exchange).serve_stdio().await?)
        }
        "seller" => serve(SELLER, &file, &[BUYER, CAR_DETAILS], Seller::default()).await,
        "car-details" => serve(CAR_DETAILS, &file, &[SELLER], CarDetails::open("cars.json")?).await,
        _ => Err(format!("there is no role {role:?}").into()),
    }
}

/// Serves an agent that others speak to. The answers of others are messages too.
async fn serve(own: &str, file: &str, others: &[&str], handler: impl DialogueHandler) -> Result {
    let allowed = others.iter().fold(AllowList::new(), |list, other| list.rule(AllowRule::sender(*other)));
    let dialogues = dialogues(own, file)?.allow(allowed).handler(handler);
    Ok(Server::new(OnlyDialogues).exchange(Exchange::new().dialogue(dialogues)).serve_stdio().await?)
}

fn dialogues(own: &str, file: &str) -> Result<Dialogues> {
    // A hub that is started again takes some seconds. A message that is sent again is taken once.
    let patient = Backoff::new().attempts(120).base(Duration::from_millis(200)).cap(Duration::from_secs(2));
    let keys = PublishedKeys::new(keys::of_file(Path::new(file), own)?);
    Ok(Dialogues::new(own)?.keys(keys).parameters(tasks::parameters()).backoff(patient))
}

/// Buys a car for every prompt.
struct Buyer;

impl Agent for Buyer {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let bought = buyer::buy(&turn.session().peer_agent()).await;
        let text = match bought {
            Ok(price) => format!("The car is bought for ${}.", thousands(price)),
            Err(error) => format!("No car is bought: {error}"),
        };
        turn.message().push(text).await?;
        Ok(StopReason::EndTurn)
    }
}
