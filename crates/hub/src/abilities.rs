//! The messages of an agent that a client can handle.

use duologue_schema::{
    ClientCapabilities, CreateElicitationRequest, CreateTerminalRequest, DuologueCapabilities,
    KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest, Request as _, RequestPermissionRequest,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest, envelope,
};

use crate::exchange_state::ExchangeScheme;
use crate::question::SharedQuestionKind;

/// The messages of an agent that a client can handle, from its capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// Shows forms.
    pub forms: bool,
    /// Shows links.
    pub links: bool,
    /// Reads files.
    pub reads_files: bool,
    /// Writes files.
    pub writes_files: bool,
    /// Runs programs in terminals.
    pub terminals: bool,
    /// Shows plans by their ids.
    pub plans: bool,
    /// Shows child sessions.
    pub subagents: bool,
    /// Clears messages of the agent (RFD 0001).
    pub clears: bool,
    /// Handles envelopes (RFD 0004).
    pub envelopes: bool,
    /// Handles dialogue messages (RFD 0005).
    pub dialogues: bool,
    /// Handles work orders (RFD 0006).
    pub work: bool,
}

impl Abilities {
    /// The abilities of a client that sees each message as the agent has sent it.
    pub(crate) const EXACT: Self = Abilities {
        forms: true,
        links: true,
        reads_files: false,
        writes_files: false,
        terminals: false,
        plans: true,
        subagents: false,
        clears: true,
        envelopes: true,
        dialogues: true,
        work: true,
    };

    /// Returns the abilities that a client has advertised.
    #[must_use]
    pub fn of(capabilities: &ClientCapabilities) -> Self {
        let duologue = DuologueCapabilities::of(capabilities.meta.as_ref());
        let elicitation = capabilities.elicitation.as_ref();
        Abilities {
            forms: elicitation.is_some_and(|elicitation| elicitation.form.is_some()),
            links: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
            reads_files: capabilities.fs.read_text_file,
            writes_files: capabilities.fs.write_text_file,
            terminals: capabilities.terminal,
            plans: capabilities.plan.is_some(),
            subagents: capabilities.subagents.is_some(),
            clears: duologue.message_clear,
            envelopes: duologue.speaks_envelopes(),
            dialogues: duologue.dialogue,
            work: duologue.work,
        }
    }

    /// Returns the abilities without files and terminals, for a server that keeps its agents off the machines of clients.
    #[must_use]
    pub fn without_files(self) -> Self {
        Abilities { reads_files: false, writes_files: false, terminals: false, ..self }
    }

    /// Returns true if the client can show a question to its user. Every client shows permission requests.
    pub(crate) fn show(self, kind: &SharedQuestionKind) -> bool {
        match kind {
            SharedQuestionKind::Permission { .. } => true,
            SharedQuestionKind::Form => self.forms,
            SharedQuestionKind::Link => self.links,
        }
    }

    /// Returns the abilities that the hub advertises to an agent for the client.
    pub(crate) fn schemes(self) -> AdvertisedAbilities {
        AdvertisedAbilities {
            envelopes: self.envelopes,
            dialogues: self.dialogues,
            work: self.work,
            subagents: self.subagents,
        }
    }

    /// Returns true if the client handles the messages of a scheme.
    pub(crate) fn speak(self, scheme: ExchangeScheme) -> bool {
        match scheme {
            ExchangeScheme::Envelopes => self.envelopes,
            ExchangeScheme::Dialogues => self.dialogues,
            ExchangeScheme::Work => self.work,
        }
    }

    /// Returns true if the client handles a method that acts on its machine, or that is a message between agents. Other
    /// extension methods go to every client.
    pub(crate) fn handle(self, method: &str) -> bool {
        match method {
            ReadTextFileRequest::METHOD => self.reads_files,
            WriteTextFileRequest::METHOD => self.writes_files,
            CreateTerminalRequest::METHOD
            | KillTerminalRequest::METHOD
            | ReleaseTerminalRequest::METHOD
            | TerminalOutputRequest::METHOD
            | WaitForTerminalExitRequest::METHOD => self.terminals,
            RequestPermissionRequest::METHOD | CreateElicitationRequest::METHOD => false,
            method => match ExchangeScheme::of(method) {
                Some(scheme) => self.speak(scheme),
                None => method.starts_with('_'),
            },
        }
    }
}

/// The abilities that the hub advertises to an agent if a client has them: the schemes of messages between agents, and child
/// sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdvertisedAbilities {
    pub(crate) envelopes: bool,
    pub(crate) dialogues: bool,
    pub(crate) work: bool,
    pub(crate) subagents: bool,
}

impl AdvertisedAbilities {
    pub(crate) const ALL: Self =
        AdvertisedAbilities { envelopes: true, dialogues: true, work: true, subagents: true };

    pub(crate) fn union(self, other: Self) -> Self {
        AdvertisedAbilities {
            envelopes: self.envelopes || other.envelopes,
            dialogues: self.dialogues || other.dialogues,
            work: self.work || other.work,
            subagents: self.subagents || other.subagents,
        }
    }

    /// Returns the capabilities of the hub at an agent.
    pub(crate) fn capabilities(self) -> DuologueCapabilities {
        let versions = if self.envelopes { vec![envelope::VERSION] } else { Vec::new() };
        DuologueCapabilities::new()
            .message_clear(true)
            .envelope(versions)
            .dialogue(self.dialogues)
            .work(self.work)
    }
}

/// Returns what the hub passes on of an agent's capabilities.
pub(crate) fn passed_on(capabilities: DuologueCapabilities) -> DuologueCapabilities {
    let mut passed = DuologueCapabilities::new()
        .envelope(capabilities.envelope)
        .dialogue(capabilities.dialogue)
        .work(capabilities.work);
    passed.agent_id = capabilities.agent_id;
    passed
}
