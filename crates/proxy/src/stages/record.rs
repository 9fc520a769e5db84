//! The stage that records.

use std::future::Future;
use std::pin::Pin;

use duologue_transcript::{Recorder, Side};

use crate::link::StageLink;
use crate::message::StageMessage;
use crate::stage::{Decision, ProxyStage};

/// Records every line that passes this place of the chain.
///
/// A line is in the file before it is passed on, so a slow disk delays the connection. A
/// [`lossy`](duologue_transcript::RecorderBuilder::lossy) recorder never does. A recording that fails does not end the
/// connection. The recorder removes secrets from the file, and stages before and after it see them.
///
/// ```
/// use duologue_proxy::{Proxy, RecordStage, Recorder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recorder = Recorder::in_memory()?;
/// let proxy = Proxy::new().stage(RecordStage::new(recorder.clone()));
/// # drop(proxy);
/// # recorder.finish().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecordStage {
    recorder: Recorder,
    /// True if a line was recorded since the last wait.
    has_new: bool,
}

impl RecordStage {
    /// Creates the stage. Keep a handle of the recorder to [finish](Recorder::finish) it.
    #[must_use]
    pub fn new(recorder: Recorder) -> Self {
        RecordStage { recorder, has_new: false }
    }

    fn line(&mut self, from: Side, message: &StageMessage<'_>) -> Decision {
        self.recorder.push_line(from, message.line(), message.end());
        self.has_new = true;
        Decision::Pass
    }
}

impl ProxyStage for RecordStage {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        self.line(Side::Client, message)
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        self.line(Side::Agent, message)
    }

    fn ended(&mut self, side: Side, _: &mut StageLink<'_>) {
        self.recorder.eof(side);
    }

    fn wait(&mut self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        if !std::mem::take(&mut self.has_new) {
            return None;
        }
        let recorder = self.recorder.clone();
        Some(Box::pin(async move { recorder.ahead().await }))
    }
}
