//! Panics in every place where user code runs. Each costs only its message.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastrand::Rng;

use super::side::{HandlerAction, SimulatedSide, TestMessage, notification};
use super::{measured, number, panic_quietly, play, replayable, seed};
use crate::connection::PeerBuilder;
use crate::error::Error;
use crate::pending::Deliver;
use crate::transport::Transport;

#[test]
fn a_thousand_panics_are_a_thousand_answers() {
    let panics = number("DUOLOGUE_RUNS").unwrap_or(1000);
    let seed = seed();
    let answers = replayable("panics", seed, panics, || play(panicking(seed, panics)));
    measured(format_args!("{panics} panics of handlers, {answers} answers -32603, the connection open"));
}

async fn panicking(seed: u64, panics: u64) -> Result<u64, String> {
    let mut rng = Rng::with_seed(seed);
    let (left, right) = Transport::memory();
    let ending = Arc::new(AtomicBool::new(false));
    let asker = SimulatedSide::start(PeerBuilder::new(left), &mut rng, ending.clone());
    let asked = SimulatedSide::start(PeerBuilder::new(right), &mut rng, ending);
    let mut answers = 0;
    for round in 0..panics {
        // These panics have no response: in the handler of a notification, and in a closure for a response.
        let order = TestMessage::new(asker.ledger.serial(true), HandlerAction::PanicsNow, &mut rng);
        asker.peer.shared.send(notification(&order)).map_err(|error| error.to_string())?;
        let order = TestMessage::new(asker.ledger.serial(true), HandlerAction::Now, &mut rng);
        let deliver: Deliver = Box::new(|_| panic_quietly());
        asker.peer.ask_into("ask", &order, None, deliver).map_err(|error| error.to_string())?;

        let how = [HandlerAction::PanicsNow, HandlerAction::PanicsLater, HandlerAction::PanicsWith]
            [(round % 3) as usize];
        let order = TestMessage::new(asker.ledger.serial(true), how, &mut rng);
        match asker.peer.call::<_, u64>("ask", &order).await {
            Err(Error::Response(error)) if error.code.0 == -32603 => answers += 1,
            other => return Err(format!("{how:?} was answered with {other:?}")),
        }
    }
    let order = TestMessage::new(asker.ledger.serial(true), HandlerAction::Now, &mut rng);
    let probe = asker.peer.call::<_, u64>("ask", &order).await;
    if probe.ok() != Some(order.n) || asker.peer.is_closing() || asked.peer.is_closing() {
        return Err("the connection is gone".into());
    }
    if answers != panics || asker.peer.pending_requests() != 0 || asked.peer.shared.in_flight_len() != (0, 0)
    {
        return Err(format!("{answers} answers to {panics} panics"));
    }
    Ok(answers)
}
