//! The requests of an agent that a client can answer.

use duologue_schema::{
    ClientCapabilities, CreateElicitationRequest, CreateTerminalRequest, KillTerminalRequest,
    ReadTextFileRequest, ReleaseTerminalRequest, Request as _, RequestPermissionRequest,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};

use crate::question::SharedQuestionKind;

/// The requests of an agent that a client can answer, from its capabilities.
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
}

impl Abilities {
    /// Returns the abilities that a client has advertised.
    #[must_use]
    pub fn of(capabilities: &ClientCapabilities) -> Self {
        let elicitation = capabilities.elicitation.as_ref();
        Abilities {
            forms: elicitation.is_some_and(|elicitation| elicitation.form.is_some()),
            links: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
            reads_files: capabilities.fs.read_text_file,
            writes_files: capabilities.fs.write_text_file,
            terminals: capabilities.terminal,
        }
    }

    /// Returns true if the client can show a question to its user. Every client shows permission requests.
    pub(crate) fn show(self, kind: &SharedQuestionKind) -> bool {
        match kind {
            SharedQuestionKind::Permission { .. } => true,
            SharedQuestionKind::Form => self.forms,
            SharedQuestionKind::Link => self.links,
        }
    }

    /// Returns true if the client handles a method that acts on its machine. Extension methods go to every client.
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
            method => method.starts_with('_'),
        }
    }
}
