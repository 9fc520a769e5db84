//! Priorities of tasks, and the interruption of others by an urgent one.

use std::time::Duration;

use duologue_client::exchange::envelope::*;

use super::pair::{Heard, pair};

/// Works for three seconds, and pauses while an urgent task runs.
struct Patient(Heard);

impl EnvelopeHandler for Patient {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("patient").max_concurrent_tasks(1)
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        if task.task == "refused" {
            tokio::time::sleep(Duration::from_secs(1)).await;
            return Err(EnvelopeError::not_authorized("no"));
        }
        Ok(Ack::new(true))
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        let add = |what: &str| self.0.add(format!("{} {what}", task.task));
        add("begins");
        for _ in 0..3 {
            let step = tokio::time::sleep(Duration::from_secs(1));
            tokio::select! {
                () = step => {}
                () = task.interrupted() => {
                    add("pauses");
                    task.resumed().await;
                    add("goes on");
                }
            }
        }
        add(if task.is_interrupted() { "was interrupted" } else { "ends" });
        Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    }
}

#[tokio::test(start_paused = true)]
async fn an_urgent_task_interrupts_the_others() {
    let heard = Heard::default();
    let (_session, peer) = pair((), Patient(heard.clone())).await;
    let usual = peer.delegate("usual").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let urgent = peer.delegate("urgent").urgent().await.unwrap();
    urgent.result().await.unwrap();
    usual.result().await.unwrap();
    assert_eq!(
        heard.all(),
        ["usual begins", "urgent begins", "usual pauses", "urgent ends", "usual goes on", "usual ends"]
    );
}

#[tokio::test(start_paused = true)]
async fn urgent_and_critical_tasks_may_use_the_slot_above_the_limit() {
    let (_session, peer) = pair((), Patient(Heard::default())).await;
    for (name, admitted) in [
        ("low", false),
        ("medium", false),
        ("high", false),
        ("later", false),
        ("critical", true),
        ("urgent", true),
    ] {
        let first = peer.delegate("first").await.unwrap();
        let second = peer.delegate("second").priority(Priority::from(name)).await;
        assert_eq!(second.is_ok(), admitted, "{name}");
        first.result().await.unwrap();
        if let Ok(second) = second {
            second.result().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_urgent_task_interrupts_nothing_before_it_is_accepted() {
    let heard = Heard::default();
    let (_session, peer) = pair((), Patient(heard.clone())).await;
    let usual = peer.delegate("usual").await.unwrap();
    peer.delegate("refused").urgent().await.unwrap_err();
    usual.result().await.unwrap();
    assert_eq!(heard.all(), ["usual begins", "usual ends"]);
}
