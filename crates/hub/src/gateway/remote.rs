//! The connections to agents on other machines, and their states in the registry.

use std::sync::Arc;
use std::time::Duration;

use duologue_store::{RegistryStatus, StoreBatch, StoreChange};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::error::Error;
use crate::gateway::hosted::HostedEntry;
use crate::gateway::pauses::DoublingPause;
use crate::gateway::rest_agent::RestPeer;
use crate::gateway::{GatewayShared, runner};
use crate::hub::Hub;
use crate::remote_agent::{AgentPresence, NumberedPresence, RemoteAgent};

/// The time between two signs of life in the registry.
const BEAT: Duration = Duration::from_secs(20);
/// The pause before an agent is dialled again.
const PAUSE: DoublingPause =
    DoublingPause { first: Duration::from_millis(500), longest: Duration::from_secs(15) };
/// The longest of these pauses for an agent that attaches.
const ATTACHED_PAUSE: Duration = Duration::from_secs(3);
/// The pause while an earlier connection of an agent ends.
const EARLIER_END: Duration = Duration::from_millis(20);

/// Starts the workers of agents that are attached while the gateway serves.
pub(crate) async fn serve_arrivals(
    gateway: Arc<GatewayShared>,
    mut arrivals: mpsc::UnboundedReceiver<String>,
) {
    let mut closing = gateway.closing.subscribe();
    let mut workers = JoinSet::new();
    loop {
        tokio::select! {
            Some(agent) = arrivals.recv() => runner::spawn(&mut workers, &gateway, &agent),
            _ = closing.wait_for(|closing| *closing) => break,
        }
    }
    while workers.join_next().await.is_some() {}
}

/// Keeps the connection to an agent on another machine open, and its state in the registry.
pub(crate) async fn keep_connected(gateway: Arc<GatewayShared>, entry: Arc<HostedEntry>) {
    let Some(remote) = entry.remote.clone() else { return };
    let mut closing = gateway.closing.subscribe();
    let keep = async {
        match &entry.rest {
            Some(agent) => look_again(&gateway, &entry, agent).await,
            None => connect_again(&gateway, &entry, &remote).await,
        }
    };
    tokio::select! {
        () = keep => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// Reads the capabilities of an agent that serves the REST interface itself, which is its sign of life.
async fn look_again(gateway: &GatewayShared, entry: &HostedEntry, rest: &RestPeer) {
    let agent = &entry.config.id;
    let mut failures = 0;
    loop {
        match rest.get(&["capabilities"]).await {
            Ok(_) => {
                failures = 0;
                record(gateway, agent, RegistryStatus::Online).await;
                entry.online.send_if_modified(|online| !std::mem::replace(online, true));
                sleep(BEAT).await;
            }
            Err(fault) => {
                if entry.online.send_replace(false) || failures == 0 {
                    tracing::warn!(%agent, why = fault.message, "an agent on another machine is not reached");
                    record(gateway, agent, RegistryStatus::Offline).await;
                }
                sleep(PAUSE.after(failures)).await;
                failures += 1;
            }
        }
    }
}

async fn connect_again(gateway: &GatewayShared, entry: &HostedEntry, remote: &RemoteAgent) {
    let agent = &entry.config.id;
    let mut presence = remote.presence();
    let mut failures = 0;
    loop {
        while remote.is_attached() && !remote.has_waiting() {
            if presence.changed().await.is_err() {
                return;
            }
        }
        match reach(&entry.hub, remote).await {
            Ok(()) => {
                failures = 0;
                follow(gateway, entry, remote, &mut presence).await;
                if entry.online.send_replace(false) {
                    record(gateway, agent, RegistryStatus::Offline).await;
                }
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%agent, %error, "an agent on another machine is not reached");
                }
                let pause = PAUSE.after(failures);
                // A program that attaches pauses itself, and another one can come in its place.
                let is_attached = remote.is_attached();
                sleep(if is_attached { pause.min(ATTACHED_PAUSE) } else { pause }).await;
                failures += 1;
            }
        }
    }
}

/// Connects to the agent, and introduces the hub to it.
async fn reach(hub: &Hub, remote: &RemoteAgent) -> Result<(), Error> {
    loop {
        hub.reach_agent().await?;
        if !remote.has_waiting() {
            return Ok(());
        }
        sleep(EARLIER_END).await;
    }
}

/// Writes the state of an agent to the registry until its connection ends.
async fn follow(
    gateway: &GatewayShared,
    entry: &HostedEntry,
    remote: &RemoteAgent,
    presence: &mut watch::Receiver<NumberedPresence>,
) {
    let number = presence.borrow().0;
    loop {
        let (current, state) = *presence.borrow_and_update();
        if current != number || state == AgentPresence::Absent || remote.has_waiting() {
            return;
        }
        let is_present = state == AgentPresence::Present;
        let was_present = entry.online.send_replace(is_present);
        if is_present {
            record(gateway, &entry.config.id, RegistryStatus::Online).await;
        } else if was_present {
            record(gateway, &entry.config.id, RegistryStatus::Offline).await;
        }
        tokio::select! {
            changed = presence.changed() => if changed.is_err() { return },
            () = sleep(BEAT) => {}
        }
    }
}

async fn record(gateway: &GatewayShared, agent: &str, status: RegistryStatus) {
    let change = StoreChange::Heartbeat { agent: agent.to_owned(), status };
    let batch = StoreBatch::new(gateway.time()).accepted().with(change);
    if let Err(refusal) = gateway.in_store(move |store| store.apply(batch)).await {
        tracing::debug!(%agent, %refusal, "the state of an agent was not recorded");
    }
}
