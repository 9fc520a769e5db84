//! Terminals that the agent runs, and whose output the client displays.

use std::path::PathBuf;

use duologue_schema::v2::{
    TerminalCancelCapabilities, TerminalCapabilities, TerminalExitStatus, TerminalOutputChunk, TerminalUpdate,
};
use duologue_schema::{Patch, SessionNotification, TerminalId, ToolCallContent};

use crate::error::Result;
use crate::session::Session;
use crate::tool_call::ToolCallHandle;

/// The limit on the bytes of one piece of output. Longer output is sent in several pieces.
const PIECE: usize = 32 * 1024;

impl Session {
    /// Shows a terminal whose command the agent runs itself. A client of version 1 does not show it.
    ///
    /// ```
    /// use duologue_agent::schema::v2::TerminalExitStatus;
    ///
    /// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
    /// let call = turn.tool_call("Run the tests").start().await?;
    /// let mut terminal = turn.display_terminal("cargo test").start().await?;
    /// call.display(&terminal).await?;
    /// terminal.append("running 2 tests\n").await?;
    /// terminal.exit(TerminalExitStatus::new().exit_code(0)).await?;
    /// call.complete().await
    /// # }
    /// ```
    pub fn display_terminal(&self, command: impl Into<String>) -> NewDisplayTerminal {
        let update = TerminalUpdate::new(uuid::Uuid::new_v4().to_string()).command(command.into());
        NewDisplayTerminal { session: self.clone(), update: update.cwd(self.cwd().to_owned()) }
    }
}

/// A terminal of the agent that is not shown yet, see [`Session::display_terminal`].
#[must_use = "call start to show the terminal"]
#[derive(Debug)]
pub struct NewDisplayTerminal {
    session: Session,
    update: TerminalUpdate,
}

impl NewDisplayTerminal {
    /// Sets the id. It is a random UUID by default.
    pub fn id(mut self, id: impl Into<TerminalId>) -> Self {
        self.update.terminal_id = id.into();
        self
    }

    /// Sets the working directory of the command. It is that of the session by default.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.update.cwd = Patch::Set(cwd.into());
        self
    }

    /// Lets the client end the command. [`Agent::cancel_terminal`](crate::Agent::cancel_terminal) receives the request.
    pub fn cancellable(mut self) -> Self {
        let offer = TerminalCapabilities::new().cancel(TerminalCancelCapabilities::new());
        self.update.capabilities = Patch::Set(offer);
        self
    }

    /// Shows the terminal.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits shows nothing.
    pub async fn start(self) -> Result<TerminalWriter> {
        let NewDisplayTerminal { session, update } = self;
        let id = update.terminal_id.clone();
        session.update(update).await?;
        Ok(TerminalWriter { session, id, has_ended: false })
    }
}

/// A terminal of the agent that the client displays. It may outlive the turn.
///
/// Dropping it reports the end of the command without an exit code.
#[derive(Debug)]
pub struct TerminalWriter {
    session: Session,
    id: TerminalId,
    has_ended: bool,
}

impl TerminalWriter {
    /// Returns the id of the terminal.
    #[must_use]
    pub fn id(&self) -> &TerminalId {
        &self.id
    }

    /// Appends output of the command. The bytes may be any, also a part of a character.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits can leave out the end of the output.
    pub async fn append(&mut self, output: impl AsRef<[u8]>) -> Result<()> {
        for piece in output.as_ref().chunks(PIECE) {
            self.session.update(TerminalOutputChunk::of_bytes(self.id.clone(), piece)).await?;
        }
        Ok(())
    }

    /// Changes other fields of the terminal, such as its size. Fields that are not set keep their value.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn update(&mut self, change: impl FnOnce(TerminalUpdate) -> TerminalUpdate) -> Result<()> {
        self.session.update(change(TerminalUpdate::new(self.id.clone()))).await
    }

    /// Reports the end of the command.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits reports the end without its status.
    pub async fn exit(mut self, status: TerminalExitStatus) -> Result<()> {
        self.session.update(ended(&self.id, status)).await?;
        self.has_ended = true;
        Ok(())
    }
}

/// Returns the last update of a terminal, which cannot be cancelled any longer.
fn ended(id: &TerminalId, status: TerminalExitStatus) -> TerminalUpdate {
    TerminalUpdate::new(id.clone()).exit_status(status).clear_capabilities()
}

impl Drop for TerminalWriter {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let update = ended(&self.id, TerminalExitStatus::new());
        let update = SessionNotification::new(self.session.id().clone(), update);
        let sent = if self.session.client().is_v2() { self.session.send_now(&update) } else { Ok(()) };
        if let Err(error) = sent {
            tracing::debug!(session = %self.session.id(), %error, "the end of a terminal could not be reported");
        }
    }
}

impl ToolCallHandle {
    /// Embeds a terminal of the agent. A client of version 1 does not show it.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`](crate::Turn::update).
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub async fn display(&self, terminal: &TerminalWriter) -> Result<()> {
        self.add(ToolCallContent::display_terminal(terminal.id().clone())).await
    }
}
