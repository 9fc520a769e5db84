//! An agent that we start, to talk to it: what the buyer has in the seller, and the seller in who knows the cars.

use std::path::{Path, PathBuf};

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Prompt, StopReason, Turn};
use duologue_client::exchange::dialogue::Dialogues;
use duologue_client::{Client, Command, Connection, Exchange, PeerAgent, Session};
use duologue_transcript::{Recorder, Side};

use crate::keys::{self, Pair};
use crate::{Result, tasks};

/// An agent's process, with a recording of all its messages.
pub(crate) struct Partner {
    connection: Connection,
    session: Session,
    recorder: Recorder,
}

impl Partner {
    /// Starts this program as `role`, in `folder`. The variable `SELLER_AGENT` or `CAR_DETAILS_AGENT` names a program
    /// to start in its place.
    pub(crate) async fn start(role: &str, pair: Pair, folder: &Path) -> Result<Self> {
        let variable = format!("{}_AGENT", role.to_uppercase().replace('-', "_"));
        let program = match std::env::var_os(variable) {
            Some(program) => program.into(),
            None => std::env::current_exe()?,
        };
        let (keys, secrets) = keys::new(pair)?;
        let command = Command::new(program).arg(role).cwd(folder).env(keys::VARIABLE, secrets);

        let dialogues = Dialogues::new(pair[0])?.keys(keys).parameters(tasks::parameters());
        let recorder = Recorder::builder().replace(recording(folder, role))?;
        let connection = Client::new(())
            .exchange(Exchange::new().dialogue(dialogues))
            .tap(recorder.tap(Side::Client))
            .spawn(command)
            .await?;
        let session = connection.new_session(std::path::absolute(folder)?).await?;
        Ok(Partner { connection, session, recorder })
    }

    /// The agent, to open dialogues with.
    pub(crate) fn agent(&self) -> PeerAgent {
        self.session.peer_agent()
    }

    /// Ends its process.
    pub(crate) async fn leave(self) -> Result {
        self.connection.close().await;
        Ok(self.recorder.finish().await?)
    }
}

/// Returns the path of the recording for an agent's role.
pub(crate) fn recording(folder: &Path, role: &str) -> PathBuf {
    folder.join(format!("{role}.jsonl"))
}

/// The ACP side of an agent that supports only dialogues.
#[derive(Clone, Copy)]
pub(crate) struct OnlyDialogues;

impl Agent for OnlyDialogues {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("car-dealer", env!("CARGO_PKG_VERSION")).title("Car dealer"))
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::Refusal)
    }
}
