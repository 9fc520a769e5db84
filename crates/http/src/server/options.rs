//! The settings of a server.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::SecretText;

use crate::server::refusal_log::RefusalLog;
use crate::socket::WAITING_PINGS;

const MIB: usize = 1024 * 1024;

/// The values of the header `Host` that a router accepts.
///
/// A page in a browser can give its own name the address of this machine. Its requests then come from the browser of
/// the user, but their `Host` is the name of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllowedHosts {
    /// `localhost` and loopback addresses, for a listener on a loopback address.
    Loopback,
    /// Loopback names and these names, without ports.
    Names(Vec<String>),
    /// Every name, for a listener that requires a credential with each request.
    Any,
}

/// The settings of a [`router`](crate::router).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The path of the endpoint.
    pub path: String,
    /// The accepted values of the header `Host`.
    pub hosts: AllowedHosts,
    /// The accepted values of the header `Origin`, such as `https://example.com`. A request without the header is
    /// accepted, because programs other than browsers do not send it.
    pub origins: Vec<String>,
    /// The token that every request except `/health` has to send. Without one every program of this machine can connect.
    pub token: Option<SecretText>,
    /// The certificate and the key for [`serve`](crate::serve). Without them the connection is not encrypted.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::ServerTls>,
    /// The longest message of a client, in bytes.
    pub frame_bytes: usize,
    /// The most open sockets and SSE responses of one path. A server with several paths counts each for itself, so the agents
    /// that are attached to a hub take no places of its clients. [`serve`](crate::serve) accepts at most as many connections
    /// for all paths as this, `requests` and `strangers` together.
    pub sockets: usize,
    /// The most POST requests at a time.
    pub requests: usize,
    /// The most connections without an allowed request. A new one closes the oldest of them, so that programs without the
    /// token do not use the places of the others.
    pub strangers: usize,
    /// The longest id of a connection or session in a header, in bytes.
    pub id_bytes: usize,
    /// The time in which a new socket has to send its first message, and a connection the head of its next request.
    pub handshake_timeout: Duration,
    /// The time in which the agent has to answer `initialize` over HTTP with SSE.
    pub initialize_timeout: Duration,
    /// The time between two pings, and between two comments of an SSE response without events.
    pub keepalive: Duration,
    /// The number of missed pings after which a socket is dead.
    pub missed_keepalives: u32,
    /// The most pings of a client that wait because it does not read their pongs. The socket ends beyond it.
    pub waiting_pings: usize,
    /// The bytes that are sent before the client has confirmed earlier ones. The client confirms by answering pings.
    pub window_bytes: usize,
    /// The time after which a socket or an SSE response ends if its client does not read. The connection can be resumed.
    /// [`serve`](crate::serve) ends every other response too whose client takes nothing for this time.
    /// A POST request may take as long, its body and the acceptance of its message each.
    pub stall_timeout: Duration,
    /// The time between the frames of a client and their acknowledgement.
    pub ack_delay: Duration,
    /// The buffer for reading from a socket, in bytes. Each socket has one.
    pub read_buffer: usize,
    /// Clones share it, so that the limits of a listener and of its paths are one.
    pub(crate) refusals: Arc<RefusalLog>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            path: "/acp".into(),
            hosts: AllowedHosts::Loopback,
            origins: Vec::new(),
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
            frame_bytes: 16 * MIB,
            sockets: 1024,
            requests: 256,
            strangers: 64,
            id_bytes: 1024,
            handshake_timeout: Duration::from_secs(10),
            initialize_timeout: Duration::from_secs(120),
            keepalive: Duration::from_secs(15),
            missed_keepalives: 5,
            waiting_pings: WAITING_PINGS,
            window_bytes: 4 * MIB,
            stall_timeout: Duration::from_secs(60),
            ack_delay: Duration::from_millis(100),
            read_buffer: 4 * 1024,
            refusals: Arc::default(),
        }
    }
}

/// The settings of an [`AgentEndpoint`](crate::AgentEndpoint).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentEndpointOptions {
    /// The most connections, absent clients included. A new one beyond it ends that of the client that has been absent
    /// for the longest time, and is refused if no client is absent.
    pub connections: usize,
    /// The time after which the connection of an absent client ends.
    pub grace: Duration,
    /// The time that an agent has to end after its client has left.
    pub end_grace: Duration,
    /// The longest line of the agent, in bytes.
    pub frame_bytes: usize,
    /// The bytes of frames for the client that it has not confirmed. The agent waits at this value. A client confirms
    /// each 256 KiB, and fewer bytes after a second, so a smaller value is slow. Over HTTP with SSE it limits the bytes that
    /// were not written, and those that were written are kept up to this value, and for [`grace`](Self::grace), for a client
    /// that lost them.
    pub ring_bytes: usize,
    /// The number of these frames.
    pub ring_frames: usize,
    /// The bytes of confirmed frames that are kept for a client that lost them. Over HTTP with SSE those of closed sessions,
    /// which a client may have lost with the response to its `session/close`.
    pub retained_bytes: usize,
    /// The bytes of accepted frames that the agent has not read. The client waits at this value.
    pub input_bytes: usize,
    /// The most SSE streams of a connection: its own and one for each session.
    pub streams: usize,
    /// The time for which a response waits for the SSE stream of its session. Then it is sent on that of the connection.
    pub session_stream_wait: Duration,
    /// The time for which the agent waits at `ring_bytes` for an SSE stream that the client does not open, while it reads
    /// others. Then the frames of that stream are dropped, and the client is refused when it opens it.
    pub unread_stream_wait: Duration,
}

impl Default for AgentEndpointOptions {
    fn default() -> Self {
        AgentEndpointOptions {
            connections: 256,
            grace: Duration::from_secs(600),
            end_grace: Duration::from_secs(5),
            frame_bytes: 16 * MIB,
            ring_bytes: 16 * MIB,
            ring_frames: 100_000,
            retained_bytes: MIB,
            input_bytes: MIB,
            streams: 1024,
            session_stream_wait: Duration::from_secs(10),
            unread_stream_wait: Duration::from_secs(60),
        }
    }
}
