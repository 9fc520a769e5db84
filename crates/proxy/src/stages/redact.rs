//! The stage that removes secrets.

use std::borrow::Cow;

use duologue_schema::{CreateElicitationRequest, Request as _, RequestPermissionRequest};
use duologue_transcript::{Secrets, StreamSecrets};

use crate::link::StageLink;
use crate::message::StageMessage;
use crate::stage::{Decision, ProxyStage};

/// Removes secrets from what the user of the client reads: notifications, permission requests, elicitations, errors and
/// lines that are not messages.
///
/// Other requests, results, and everything that the client sends keep them. A placeholder in a file that the agent writes,
/// or in the contents of a file that it reads, would replace the secret on the disk.
///
/// A secret that is streamed in pieces loses only the pieces after the one in which it is recognised, and a secret of an
/// unknown form is not found. See [`Secrets`].
///
/// ```
/// use duologue_proxy::{Proxy, RedactStage, Secrets};
///
/// let proxy = Proxy::new().stage(RedactStage::new().secrets(Secrets::default().pattern(r"ACME-\d+")?));
/// # drop(proxy);
/// # duologue_transcript::Result::Ok(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct RedactStage {
    secrets: Secrets,
    stream: StreamSecrets,
}

impl RedactStage {
    /// Creates the stage for the default secrets.
    pub fn new() -> Self {
        RedactStage::default()
    }

    /// Removes these secrets instead of the default ones.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }
}

/// Returns true for a message of the agent whose content only a user reads.
fn is_shown(message: &StageMessage<'_>) -> bool {
    if message.is_request() {
        let shown = [RequestPermissionRequest::METHOD, CreateElicitationRequest::METHOD];
        return message.method().is_some_and(|method| shown.contains(&method));
    }
    !message.is_response() || message.result().is_none()
}

impl ProxyStage for RedactStage {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        // A prompt ends the messages without an id.
        self.stream.other_side(message.line());
        Decision::Pass
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        if !is_shown(message) {
            return Decision::Pass;
        }
        match self.stream.redact(&self.secrets, message.line()) {
            Cow::Borrowed(_) => Decision::Pass,
            Cow::Owned(line) => message.with_line(line),
        }
    }
}
