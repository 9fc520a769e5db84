//! The requests of our end and the expected responses: a line of the report for each row.

use super::{delegate, dialogue, work};
use crate::interop::Result;
use duologue_agent::PeerAgent;
use duologue_agent::exchange::Error;
use duologue_agent::exchange::envelope::{AgentStatus, EnvelopeErrorCode, Importance};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

/// The response of both ends to most queries.
pub(super) const HEARD: &str = "heard é世界 😀";

/// Goes through all of it and reports each row.
pub(super) async fn run(peer: &PeerAgent, report: &str) -> Result<()> {
    let mut report = OpenOptions::new().create(true).append(true).open(report)?;
    let rows: Vec<(&str, BoxFuture<'_, Result<()>>)> = vec![
        ("ping", ping(peer).boxed()),
        ("discover", discover(peer).boxed()),
        ("query", query(peer).boxed()),
        ("null for what is left out", answered(peer, "nulls", "none").boxed()),
        ("query, refused", refused(peer).boxed()),
        ("query, refused without an envelope", refused_plainly(peer).boxed()),
        ("query, asked back", asked_back(peer).boxed()),
        ("query, answered twice", answered(peer, "twice", "once").boxed()),
        ("query, answered by notification", answered(peer, "by notification", "as a notification").boxed()),
        ("query, ended by error", ended(peer).boxed()),
        ("query, late", late(peer).boxed()),
        ("query, withdrawn", withdrawn(peer).boxed()),
        ("query, answers that do not fit", unfit(peer).boxed()),
        ("delegate, result", delegate::finished(peer, "finish").boxed()),
        ("delegate, failed", delegate::failed(peer).boxed()),
        ("delegate, partial", delegate::partial(peer).boxed()),
        ("delegate, ended by error", delegate::broken(peer).boxed()),
        ("delegate, progress", delegate::notified(peer).boxed()),
        ("delegate, refused", delegate::refused(peer).boxed()),
        ("delegate, no report", delegate::unreported(peer).boxed()),
        ("delegate, result before ack", delegate::finished(peer, "early").boxed()),
        ("delegate, ack by notification", delegate::finished(peer, "ack by notification").boxed()),
        ("delegate, ended twice", delegate::finished(peer, "end twice").boxed()),
        ("cancel", delegate::cancelled(peer).boxed()),
        ("overloaded", delegate::overloaded(peer).boxed()),
        ("notify", notify(peer).boxed()),
        ("dialogue, signed", dialogue::signed(peer).boxed()),
        ("dialogue, altered answer", dialogue::altered(peer).boxed()),
        ("dialogue, bargained", dialogue::bargained(peer).boxed()),
        ("dialogue, refused", dialogue::refused(peer).boxed()),
        ("work", work::done(peer).boxed()),
        ("work, not done", work::not_done(peer).boxed()),
        ("work, unknown recommendation", work::unknown_recommendation(peer).boxed()),
    ];
    for (row, run) in rows {
        let outcome = tokio::time::timeout(Duration::from_secs(8), run).await;
        let problem = match outcome {
            Ok(outcome) => outcome.err().map(|error| error.to_string()),
            Err(_) => Some("not done in 8 s".to_owned()),
        };
        writeln!(report, "{}", json!({"row": row, "ok": problem.is_none(), "detail": problem}))?;
    }
    Ok(())
}

pub(super) fn same<T: PartialEq + Debug>(came: T, expected: T) -> Result<()> {
    if came == expected { Ok(()) } else { Err(format!("{came:?} is not {expected:?}").into()) }
}

/// The fault of an answer, with its code, its message and whether to try again.
pub(super) fn fault<T: Debug>(
    answer: Result<T, Error>,
    code: EnvelopeErrorCode,
    message: &str,
    retryable: bool,
) -> Result<()> {
    match answer {
        Err(Error::Response(fault)) => {
            same((fault.code.clone(), fault.message.as_str(), fault.retryable), (code, message, retryable))
        }
        other => Err(format!("{other:?} is no fault of the other side").into()),
    }
}

async fn ping(peer: &PeerAgent) -> Result<()> {
    let pong = peer.ping().await?;
    same((pong.status, pong.active_tasks, pong.agent_name.as_str()), (AgentStatus::Idle, 0, "ts"))
}

async fn discover(peer: &PeerAgent) -> Result<()> {
    let capabilities = peer.discover().await?;
    same(capabilities.agent_name.as_str(), "ts")?;
    same(capabilities.max_concurrent_tasks, 2)?;
    same(capabilities.domains, vec!["family.calendar".to_owned()])
}

async fn query(peer: &PeerAgent) -> Result<()> {
    let query = peer.query("echo").domain("family.calendar").max_tokens(200).deadline(Duration::from_secs(5));
    let answer = query.await?;
    same((answer.summary.as_str(), answer.truncated), (HEARD, false))?;
    let data: Value = answer.data.ok_or("no data")?.parse()?;
    let sent =
        json!({"question": "echo", "domain": "family.calendar", "max_tokens": 200, "deadline_ms": 5000});
    same(data, sent)
}

async fn refused(peer: &PeerAgent) -> Result<()> {
    fault(peer.query("fault").await, EnvelopeErrorCode::UnknownDomain, "nobody knows", false)?;
    fault(peer.query("fault of its own").await, EnvelopeErrorCode::from("tired"), "after lunch", true)
}

async fn refused_plainly(peer: &PeerAgent) -> Result<()> {
    fault(peer.query("plain fault").await, EnvelopeErrorCode::InvalidParameter, "no envelope in here", false)
}

async fn asked_back(peer: &PeerAgent) -> Result<()> {
    same(peer.query("ask back").await?.summary.as_str(), HEARD)
}

async fn answered(peer: &PeerAgent, question: &str, summary: &str) -> Result<()> {
    same(peer.query(question).await?.summary.as_str(), summary)
}

async fn ended(peer: &PeerAgent) -> Result<()> {
    fault(peer.query("ended").await, EnvelopeErrorCode::Overloaded, "not today", true)
}

async fn late(peer: &PeerAgent) -> Result<()> {
    match peer.query("late").deadline(Duration::from_millis(100)).await {
        Err(Error::Timeout { .. }) => Ok(()),
        other => Err(format!("{other:?} is not too late").into()),
    }
}

async fn notify(peer: &PeerAgent) -> Result<()> {
    peer.notify("work.build", json!({"green": true})).importance(Importance::High).await?;
    for topic in ["family.dinner", "work.done"] {
        peer.notify(topic, json!(null)).await?;
    }
    // Notifications and requests need not wait for each other.
    loop {
        let told: Vec<String> = peer.query("told").await?.data.ok_or("no data")?.parse()?;
        if told.last().is_some_and(|last| last == "work.done") {
            return same(told, vec!["work.build".to_owned(), "work.done".to_owned()]);
        }
    }
}

/// Drops a query, and polls the number of withdrawn queries until it is one.
async fn withdrawn(peer: &PeerAgent) -> Result<()> {
    let asked = tokio::time::timeout(Duration::from_millis(50), peer.query("forever").into_future()).await;
    same(asked.is_err(), true)?;
    while peer.query("withdrawn").await?.data.ok_or("no data")?.parse::<u32>()? != 1 {}
    Ok(())
}

async fn unfit(peer: &PeerAgent) -> Result<()> {
    for question in ["wrong ref", "wrong kind", "no summary"] {
        match peer.query(question).await {
            Err(Error::Answer { .. }) => {}
            other => return Err(format!("{question}: {other:?}").into()),
        }
    }
    Ok(())
}
