//! The presence of the client of a connection.

use std::sync::Arc;

use crate::server::agent_connection::AgentConnectionShared;

/// The presence of a client: it is present while a socket or an SSE stream of its connection is open. An absent client can
/// come back within [`AgentEndpointOptions::grace`](crate::AgentEndpointOptions::grace).
pub struct ClientPresence {
    connection: Arc<AgentConnectionShared>,
    last: bool,
}

impl ClientPresence {
    pub(crate) fn new(connection: Arc<AgentConnectionShared>) -> Self {
        ClientPresence { connection, last: false }
    }

    /// Waits for a change, and returns true if the client is present now. The client of a new connection is absent until its
    /// first socket or stream is open.
    ///
    /// # Cancel safety
    ///
    /// No change is lost if the future is dropped.
    pub async fn changed(&mut self) -> bool {
        self.last = self.connection.other_presence(self.last).await;
        self.last
    }
}

impl std::fmt::Debug for ClientPresence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientPresence").field("last", &self.last).finish_non_exhaustive()
    }
}
