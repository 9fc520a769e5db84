//! An agent on another machine: one connection that all sessions share.
//!
//! The hub dials the address of an agent, or the agent has dialled the hub. Both are a transport whose other side is an
//! agent, and a lost socket is replaced behind it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_http::{ConnectOptions, LinkState, RemoteLink, RemoteTransport, connect};
use duologue_rpc::{Lock as _, Transport};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot, watch};

use crate::abilities::AdvertisedAbilities;
use crate::credential::AgentCredential;
use crate::error::Error;
use crate::hosted_agent::{AgentEnd, AgentLane, AgentLines, HostedAgent};

/// Limit on the lines of the agent that wait for the hub.
const WAITING_LINES: usize = 64;
/// The time in which the last lines are sent when the hub ends.
const LAST_LINES: Duration = Duration::from_millis(250);

/// The connection to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AgentPresence {
    /// There is none.
    #[default]
    Absent,
    /// Its socket is open.
    Present,
    /// Its socket was lost, and another one can continue it.
    Paused,
}

/// A presence, and the number of the connection that it belongs to.
pub(crate) type NumberedPresence = (u64, AgentPresence);

/// The address of an agent that the hub dials.
#[derive(Debug)]
pub(crate) struct AgentAddress {
    pub(crate) url: String,
    pub(crate) credential: AgentCredential,
    pub(crate) transport: RemoteTransport,
}

/// An agent on another machine.
#[derive(Debug)]
pub(crate) struct RemoteAgent {
    /// Absent for an agent that dials the hub.
    address: Option<AgentAddress>,
    /// The connection of an agent that has dialled, until the hub uses it. The sender is dropped when it has ended.
    waiting: Mutex<Option<(Transport, oneshot::Sender<()>)>>,
    presence: watch::Sender<NumberedPresence>,
    /// One connection at a time is served.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl RemoteAgent {
    /// Creates an agent that the hub dials, or one that dials the hub.
    pub(crate) fn new(address: Option<AgentAddress>) -> Arc<Self> {
        let (waiting, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(RemoteAgent { address, waiting, presence: watch::Sender::default(), turn })
    }

    /// Returns true if the agent dials the hub.
    pub(crate) fn is_attached(&self) -> bool {
        self.address.is_none()
    }

    /// Returns the presence and its changes.
    pub(crate) fn presence(&self) -> watch::Receiver<NumberedPresence> {
        self.presence.subscribe()
    }

    /// Returns true if there is a connection that the hub has not used yet.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.lock_unpoisoned().is_some()
    }

    /// Refuses requests while the agent is away, so that nobody waits for a socket that may never come back.
    pub(crate) fn require_reachable(&self) -> Result<(), Error> {
        let (_, presence) = *self.presence.borrow();
        let is_away = match presence {
            AgentPresence::Present => false,
            AgentPresence::Absent => self.is_attached() && !self.has_waiting(),
            AgentPresence::Paused => true,
        };
        if is_away { Err(Error::Offline { reason: "its connection is lost".to_owned() }) } else { Ok(()) }
    }

    /// Gives the hub the connection of an agent that has dialled. The receiver resolves when the connection has ended.
    pub(crate) fn arrive(&self, transport: Transport) -> oneshot::Receiver<()> {
        let (guard, ended) = oneshot::channel();
        *self.waiting.lock_unpoisoned() = Some((transport, guard));
        self.begin();
        ended
    }

    /// Begins a connection.
    fn begin(&self) {
        self.presence.send_modify(|(number, presence)| {
            (*number, *presence) = (*number + 1, AgentPresence::Present);
        });
    }

    /// Notes the presence of the current connection.
    pub(crate) fn note(&self, new: AgentPresence) {
        self.presence.send_if_modified(|(_, presence)| {
            let is_new = *presence != new;
            *presence = new;
            is_new
        });
    }

    /// Opens the connection. It ends when `closing` becomes true.
    pub(crate) async fn start(
        self: &Arc<Self>,
        limit: Duration,
        closing: watch::Receiver<bool>,
    ) -> Result<HostedAgent, Error> {
        let Some(address) = &self.address else {
            let waiting = self.waiting.lock_unpoisoned().take();
            let (transport, guard) =
                waiting.ok_or_else(|| Error::Offline { reason: "it is not attached".to_owned() })?;
            return Ok(host(transport, limit, closing, guard));
        };
        let offline = |reason: String| Error::Offline { reason };
        // Its state is large, and each client of the hub would have it.
        let (transport, link) = Box::pin(address.connect()).await.map_err(offline)?;
        self.begin();
        let (guard, ended) = oneshot::channel();
        tokio::spawn(observe(self.clone(), link, ended));
        Ok(host(transport, limit, closing, guard))
    }
}

impl AgentAddress {
    async fn connect(&self) -> Result<(Transport, RemoteLink), String> {
        let mut options = ConnectOptions::default();
        options.transport = self.transport;
        // The client that waits for the agent learns at once that it is offline.
        options.open_time = Duration::ZERO;
        let token = self.credential.token().await?;
        options.bearer_token = token.as_deref().cloned();
        let dialled = connect(&self.url, options).await;
        if let Err(duologue_http::Error::Refused { status: 401, .. }) = &dialled {
            // The next attempt has a new one.
            self.credential.refuse(token.as_ref()).await;
        }
        dialled.map_err(|error| match error {
            // The rest is a text of the server, and users see the reason.
            duologue_http::Error::Refused { status, .. } => {
                format!("its server refused the connection with the status {status}")
            }
            error => error.to_string(),
        })
    }
}

/// Reports the state of a link until its transport is dropped.
async fn observe(agent: Arc<RemoteAgent>, mut link: RemoteLink, mut ended: oneshot::Receiver<()>) {
    loop {
        match link.state() {
            // The first attempt follows the loss at once, and most often succeeds.
            LinkState::Connected | LinkState::Silent | LinkState::Resuming { attempt: 0..=1 } => {
                agent.note(AgentPresence::Present)
            }
            LinkState::Resuming { .. } => agent.note(AgentPresence::Paused),
            _ => break,
        }
        tokio::select! {
            _ = link.changed() => {}
            _ = &mut ended => break,
        }
    }
    agent.note(AgentPresence::Absent);
}

/// Creates the hub's end of a transport. `guard` is dropped when it has ended.
fn host(
    transport: Transport,
    limit: Duration,
    mut closing: watch::Receiver<bool>,
    guard: oneshot::Sender<()>,
) -> HostedAgent {
    let (to_agent, mut lines) = mpsc::unbounded_channel::<Vec<u8>>();
    let (to_hub, from_agent) = mpsc::channel(WAITING_LINES);
    let waiting = Arc::new(AtomicUsize::new(0));
    let (reader, mut writer) = transport.into_split();
    let written = waiting.clone();
    let (ended, end) = watch::channel(None);
    let pump = tokio::spawn(async move {
        let mut input = AgentLines::new(reader);
        let read = async {
            while let Some(line) = input.next().await {
                if to_hub.send(line).await.is_err() {
                    return;
                }
            }
        };
        let write = async {
            while let Some(mut line) = lines.recv().await {
                written.fetch_sub(line.len(), Ordering::AcqRel);
                line.push(b'\n');
                // The reading half has the reason.
                if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
                    return std::future::pending().await;
                }
            }
            let _ = writer.shutdown().await;
        };
        let closed = async {
            let _ = closing.wait_for(|closing| *closing).await;
            tokio::time::sleep(LAST_LINES).await;
        };
        tokio::select! {
            () = read => {}
            () = write => {}
            () = closed => {}
        }
        drop((to_hub, guard));
        let cause = input.failure.unwrap_or_else(|| "the connection to the agent has ended".to_owned());
        ended.send_replace(Some(AgentEnd::of(cause)));
    });
    let lane = AgentLane { to_agent, waiting, from_agent, pump, end };
    HostedAgent::of_lane(lane, AdvertisedAbilities::ALL, limit)
}
