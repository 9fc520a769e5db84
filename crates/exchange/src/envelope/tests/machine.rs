//! Events of the machine, and the actions that follow from them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::envelope::delegation::{DelegationEnd, DelegationSignal};
use crate::envelope::machine::{EnvelopeAction, EnvelopeActions, EnvelopeMachine};
use crate::envelope::subscription::{Subscriber, SubscriptionQueue};
use crate::envelope::*;
use crate::{Error, Exchange, Hops, PeerAgent};

/// Returns a machine with a pending delegation that waits for its `ack`.
fn delegated() -> (EnvelopeMachine, PeerAgent, EnvelopeId) {
    let (peer, _) = Exchange::new().in_memory(Exchange::new());
    let (mut machine, id) = (EnvelopeMachine::new(Instant::now()), EnvelopeId::from("task"));
    machine.pending.add_delegation(id.clone(), DelegationSignal::new(id.clone()));
    machine.pending.add_request(id.clone(), EnvelopeKind::Ack, oneshot::channel().0);
    (machine, peer, id)
}

fn received<P: Payload>(peer: &PeerAgent, about: &EnvelopeId, payload: P) -> Received<P> {
    Received::new(peer.envelope(payload).reference(about), peer.clone(), Hops::default(), None)
}

fn completed() -> DelegationOutcome {
    DelegationOutcome::new(OutcomeStatus::Completed)
}

fn notification(topic: &str) -> Notify {
    Notify::new(topic).data(json!(1))
}

fn names(actions: EnvelopeActions) -> Option<Vec<&'static str>> {
    let name = |action| match action {
        EnvelopeAction::Reply(..) => "reply",
        EnvelopeAction::Fail(..) => "fail",
        EnvelopeAction::Wake(..) => "wake",
        EnvelopeAction::Push(..) => "push",
        EnvelopeAction::Close(..) => "close",
        EnvelopeAction::Deliver(..) => "deliver",
    };
    actions.map(|actions| actions.into_iter().map(name).collect())
}

#[tokio::test]
async fn a_result_ends_a_delegation_and_its_ack() {
    let (mut machine, peer, id) = delegated();
    let actions = machine.result(received(&peer, &id, completed()), 1);
    // The end is stored before the actions are performed.
    assert!(matches!(machine.end_of(&id), Some(DelegationEnd::Result(..))));
    assert_eq!(names(actions), Some(vec!["fail", "wake"]));
    assert_eq!(names(machine.result(received(&peer, &id, completed()), 1)), Some(vec![]));
    assert_eq!(machine.stats.repeated, 1);
}

#[tokio::test]
async fn an_end_is_read_by_the_handle_or_returned_by_its_drop() {
    let (mut machine, peer, id) = delegated();
    machine.result(received(&peer, &id, completed()), 1);
    assert!(machine.claim(&id).is_some() && machine.claim(&id).is_some());
    assert!(machine.drop_delegation(&id).is_none());
    let (mut machine, peer, id) = delegated();
    machine.result(received(&peer, &id, completed()), 1);
    assert!(machine.drop_delegation(&id).is_some());
    assert!(machine.end_of(&id).is_none() && machine.drop_delegation(&id).is_none());
    // Without a handler, nobody receives the end of a dropped delegation.
    let (mut machine, peer, id) = delegated();
    assert!(machine.drop_delegation(&id).is_none());
    assert_eq!(names(machine.result(received(&peer, &id, completed()), 1)), None);
}

#[tokio::test]
async fn an_error_ends_the_request_first() {
    let (mut machine, peer, id) = delegated();
    let fault = || EnvelopeError::internal("broken");
    assert_eq!(names(machine.error(received(&peer, &id, fault()), 1)), Some(vec!["reply"]));
    assert!(machine.end_of(&id).is_none());
    assert_eq!(names(machine.error(received(&peer, &id, fault()), 1)), Some(vec![]));
    assert_eq!(names(machine.invalid(&EnvelopeKind::Error, &"peer".into(), &id, &fault())), None);
}

#[tokio::test]
async fn an_invalid_result_ends_a_delegation() {
    let (mut machine, _, id) = delegated();
    let fault = EnvelopeError::internal("invalid");
    assert_eq!(names(machine.invalid(&EnvelopeKind::Pong, &"peer".into(), &id, &fault)), None);
    assert_eq!(
        names(machine.invalid(&EnvelopeKind::Result, &"peer".into(), &id, &fault)),
        Some(vec!["fail", "wake"])
    );
    let kind = match machine.claim(&id) {
        Some(DelegationEnd::Lost(Error::Answer { kind, .. })) => kind,
        _ => panic!("the delegation was not lost"),
    };
    assert_eq!(kind, EnvelopeKind::Delegate);
}

#[tokio::test]
async fn late_responses_are_counted() {
    let (mut machine, peer, id) = delegated();
    let envelope = || -> EnvelopeResult {
        let ack = EnvelopeResult::new(peer.envelope(Ack::new(true)).reference(&id));
        serde_json::from_value(serde_json::to_value(ack).unwrap()).unwrap()
    };
    assert_eq!(names(machine.reply_notification(&EnvelopeKind::Ack, envelope())), Some(vec!["reply"]));
    assert_eq!(names(machine.reply_notification(&EnvelopeKind::Ack, envelope())), None);
    assert_eq!(names(machine.response(&id, Ok(envelope()))), None);
    assert_eq!(machine.stats.late, 2);
}

#[tokio::test]
async fn notifications_go_to_subscriptions_and_progress_to_its_handle() {
    let (mut machine, peer, id) = delegated();
    let [family, ours] = ["family.*", PROGRESS].map(|pattern| {
        let queue = SubscriptionQueue::new();
        machine.subscribe(Subscriber::new(pattern.into(), None, &queue));
        queue
    });
    let mut send = |topic| names(machine.notify(received(&peer, &id, notification(topic)), 1));
    assert_eq!(send("family.calendar"), Some(vec!["push"]));
    assert_eq!(send("work"), None);
    assert_eq!(send(PROGRESS), Some(vec!["push", "push"]));
    drop((family, ours));
    assert_eq!(send("family.calendar"), None);
    assert_eq!(send(PROGRESS), Some(vec!["push"]));
    let twice = received(&peer, &id, notification("work"));
    machine.notify(twice.clone(), 1);
    assert_eq!(names(machine.notify(twice, 1)), Some(vec![]));
    assert_eq!(machine.stats.repeated, 1);
}

#[tokio::test]
async fn the_end_of_the_connection_ends_everything() {
    let (mut machine, _, id) = delegated();
    let queue = SubscriptionQueue::new();
    let subscriber = || Subscriber::new("*".into(), None, &queue);
    assert!(machine.subscribe(subscriber()));
    let error = Error::Cancelled;
    assert_eq!(names(machine.close(&error)), Some(vec!["fail", "wake", "close"]));
    assert!(matches!(machine.claim(&id), Some(DelegationEnd::Lost(_))));
    assert!(!machine.subscribe(subscriber()));
    assert_eq!((names(machine.close(&error)), Arc::strong_count(&queue)), (Some(vec![]), 1));
}

/// Otherwise each subscription would be remembered until the connection ends.
#[test]
fn dropped_subscriptions_are_forgotten() {
    let mut machine = EnvelopeMachine::new(Instant::now());
    let kept = SubscriptionQueue::new();
    for _ in 0..100 {
        machine.subscribe(Subscriber::new("*".into(), None, &SubscriptionQueue::new()));
    }
    machine.subscribe(Subscriber::new("*".into(), None, &kept));
    assert_eq!(machine.subscribers().count(), 1);
    assert_eq!(names(machine.close(&Error::Cancelled)), Some(vec!["close"]));
}

/// The handle of an ended delegation still has its end under the id.
#[tokio::test]
async fn an_id_is_in_use_until_its_handle_is_dropped() {
    let (mut machine, peer, id) = delegated();
    let signal = || Some(DelegationSignal::new(id.clone()));
    assert!(!machine.add_delegation(&id, signal()));
    machine.result(received(&peer, &id, completed()), 1);
    assert!(!machine.add_delegation(&id, signal()));
    machine.claim(&id);
    assert!(!machine.add_delegation(&id, signal()));
    machine.drop_delegation(&id);
    assert!(machine.add_delegation(&id, signal()));
}

#[test]
fn errors_about_invalid_messages_are_limited() {
    let start = Instant::now();
    let mut machine = EnvelopeMachine::new(start);
    let mut sent = |seconds| {
        let now = start + Duration::from_secs(seconds);
        (0..20).filter(|_| machine.count_invalid(Some(now))).count()
    };
    assert_eq!([sent(0), sent(1), sent(3), sent(100)], [10, 1, 2, 10]);
    // Without an address no error is sent.
    assert!(!machine.count_invalid(None));
    assert_eq!(machine.stats.dropped, 81);
}

#[tokio::test]
async fn a_handle_without_a_report_removes_no_other() {
    struct Silent;

    impl EnvelopeHandler for Silent {
        fn capabilities(&self) -> Capabilities {
            Capabilities::new("silent").max_concurrent_tasks(1)
        }

        async fn delegate(&self, _: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
            Ok(completed())
        }
    }

    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Silent));
    let silent = peer.delegate("t").id("task").report_back(false).await.unwrap();
    let id = EnvelopeId::from("task");
    let signal = DelegationSignal::new(id.clone());
    assert!(peer.link.envelopes.with(|machine| machine.add_delegation(&id, Some(signal))));
    drop(silent);
    assert!(peer.link.envelopes.with(|machine| machine.pending.awaits(&id)));
}
