//! A correspondent that does a little of everything, and a walkthrough through all of it. Both sides of the pipes
//! have the one and make the other.

use std::sync::{Arc, Mutex};

use duologue_exchange::envelope::*;
use duologue_exchange::{PeerAgent, Result};
use serde_json::json;

/// Follows its instructions, and keeps the received notifications.
#[derive(Clone, Default)]
pub(crate) struct Twin(pub(crate) Arc<Mutex<Vec<String>>>);

impl EnvelopeHandler for Twin {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("twin").domains(["meta.twins".to_owned()]).max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        match query.domain.as_deref() {
            Some(domain) if domain != "meta.twins" => Err(EnvelopeError::unknown_domain(domain)),
            _ => {
                Ok(QueryResponse::new(format!("{}?", query.question)).data(json!({"asked": query.question})))
            }
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        if task.task == "wait" {
            task.cancelled().await;
            return Err(EnvelopeError::internal("stopped"));
        }
        task.progress(json!("half")).await.map_err(|error| error.fault())?;
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(format!("{} is done", task.task)))
    }

    async fn notify(&self, news: Received<Notify>) {
        self.0.lock().unwrap().push(format!("{} ({})", news.topic, news.importance));
    }

    async fn result(&self, result: Received<DelegationOutcome>) {
        self.0.lock().unwrap().push(result.outcome.clone());
    }
}

/// Uses every kind that there is a call for.
pub(crate) async fn walkthrough(peer: &PeerAgent) -> Result<String> {
    let mut said = Vec::new();
    let pong = peer.ping().await?;
    said.push(format!("{} {}", pong.status, pong.agent_name));
    let capabilities = peer.discover().await?;
    said.push(format!("{} takes {}", capabilities.domains.join(" "), capabilities.max_concurrent_tasks));
    let response = peer.query("who").domain("meta.twins").await?;
    said.push(format!(
        "{} {}",
        response.summary,
        response.data.map_or("nothing".to_owned(), |it| it.to_string())
    ));
    let error = peer.query("how much").domain("work.tiles").await.unwrap_err();
    said.push(error.fault().to_string());

    let task = peer.delegate("paint").await?;
    while let Some(Ok(news)) = task.progress().next().await {
        said.push(
            news.data.as_ref().map_or("nothing".to_owned(), |it| it.get().trim_matches('"').to_owned()),
        );
    }
    said.push(task.result().await?.outcome);
    let task = peer.delegate("wait").await?;
    let urgent = peer.delegate("wait").urgent().await?;
    let full = peer.delegate("paint").urgent().await.unwrap_err();
    said.push(format!("busy after {}, full: {}", "wait", full.code()));
    urgent.cancel("enough").await?;
    said.push(urgent.result().await.unwrap_err().fault().to_string());
    said.push(urgent.cancel("enough").await?.reason.unwrap_or_default());
    task.cancel("enough").await?;
    let _ = task.result().await;

    // The other side receives the notification, and this side the end of the task.
    peer.notify("meta.twins.walkthrough", json!(null)).importance(Importance::High).await?;
    drop(peer.delegate("the rest").await?);
    Ok(said.join("\n"))
}
