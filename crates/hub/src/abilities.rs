//! The messages of an agent that a client can handle.

use std::sync::LazyLock;

use duologue_rpc::raw_message::member;
use duologue_schema::{
    ClientCapabilities, CreateElicitationRequest, CreateTerminalRequest, DuologueCapabilities,
    KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest, Request as _, RequestPermissionRequest,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest, envelope,
};
use memchr::memmem::Finder;
use serde_json::{Value, json};

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
    /// Shows notices.
    pub notices: bool,
    /// Shows compactions of the context.
    pub compactions: bool,
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
        notices: true,
        compactions: true,
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
        let session = capabilities.session.as_ref();
        Abilities {
            forms: elicitation.is_some_and(|elicitation| elicitation.form.is_some()),
            links: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
            reads_files: capabilities.fs.read_text_file,
            writes_files: capabilities.fs.write_text_file,
            terminals: capabilities.terminal,
            plans: capabilities.plan.is_some(),
            subagents: capabilities.subagents.is_some(),
            notices: session.is_some_and(|session| session.notices.is_some()),
            compactions: session.is_some_and(|session| session.compaction.is_some()),
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
            SharedQuestionKind::Form(_) => self.forms,
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
            notices: self.notices,
            compactions: self.compactions,
        }
    }

    /// Returns true if the client shows the update in a notification of an agent. Only updates that need a capability are
    /// read.
    pub(crate) fn show_update(self, frame: &[u8]) -> bool {
        /// Made once, because each line is searched.
        static OPTIONAL: LazyLock<[Finder<'static>; 2]> =
            LazyLock::new(|| [Finder::new(b"\"notice\""), Finder::new(b"\"compaction_")]);
        if self.notices && self.compactions || OPTIONAL.iter().all(|kind| kind.find(frame).is_none()) {
            return true;
        }
        let tag = ["params", "update", "sessionUpdate"]
            .iter()
            .try_fold(frame, |object, key| object.get(member(object, key)?))
            .and_then(|tag| serde_json::from_slice::<String>(tag).ok());
        match tag.as_deref() {
            Some("notice") => self.notices,
            Some("compaction_update" | "compaction_summary_chunk") => self.compactions,
            _ => true,
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

/// The abilities that the hub advertises to an agent if a client has them: the schemes of messages between agents, child
/// sessions, notices and compactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdvertisedAbilities {
    pub(crate) envelopes: bool,
    pub(crate) dialogues: bool,
    pub(crate) work: bool,
    pub(crate) subagents: bool,
    pub(crate) notices: bool,
    pub(crate) compactions: bool,
}

impl AdvertisedAbilities {
    pub(crate) const ALL: Self = AdvertisedAbilities {
        envelopes: true,
        dialogues: true,
        work: true,
        subagents: true,
        notices: true,
        compactions: true,
    };

    pub(crate) fn union(self, other: Self) -> Self {
        AdvertisedAbilities {
            envelopes: self.envelopes || other.envelopes,
            dialogues: self.dialogues || other.dialogues,
            work: self.work || other.work,
            subagents: self.subagents || other.subagents,
            notices: self.notices || other.notices,
            compactions: self.compactions || other.compactions,
        }
    }

    /// Returns the capabilities of the hub at an agent. `client_files` is true if files and terminals are those of the client.
    pub(crate) fn client_capabilities(self, client_files: bool) -> Value {
        let versions = if self.envelopes { vec![envelope::VERSION] } else { Vec::new() };
        let duologue = DuologueCapabilities::new()
            .message_clear(true)
            .envelope(versions)
            .dialogue(self.dialogues)
            .work(self.work);
        let mut meta = None;
        duologue.write_to(&mut meta);
        let mut capabilities = json!({
            "fs": {"readTextFile": client_files, "writeTextFile": client_files},
            "terminal": client_files,
            "elicitation": {"form": {}, "url": {}},
            "plan": {},
            "_meta": meta,
        });
        if self.subagents {
            capabilities["subagents"] = json!({});
        }
        for (is_shown, name) in [(self.notices, "notices"), (self.compactions, "compaction")] {
            if is_shown {
                capabilities["session"][name] = json!({});
            }
        }
        capabilities
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_learns_of_the_updates_that_a_client_shows() {
        let all = json!({"notices": {}, "compaction": {}});
        for session in [Value::Null, json!({"notices": {}}), json!({"compaction": {}}), all.clone()] {
            let client = serde_json::from_value(json!({ "session": session })).unwrap();
            let advertised = Abilities::of(&client).schemes();
            assert_eq!(advertised.client_capabilities(false)["session"], session);
            let others = AdvertisedAbilities::default().union(advertised);
            assert_eq!(others.client_capabilities(false)["session"], session, "any client of the session");
        }
        assert_eq!(AdvertisedAbilities::ALL.client_capabilities(false)["session"], all);
    }
}
