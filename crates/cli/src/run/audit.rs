//! The audit trail: one entry for each action of the agent through this program, and for each
//! decision about one. An entry is a line on the screen and an object for scripts.

use duologue_schema::{
    AgentRequest, CreateElicitationRequest, CreateTerminalRequest, ElicitationAction, Error as WireError,
    ErrorCode, PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, ToolKind, WriteTextFileRequest,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::oneshot;

use super::blocks::NORMAL;
use super::details::{self, shell_words, short};
use super::rows::Span;
use super::ui_queue::UiEvent;
use crate::ui::{BAD, GOOD, MARK, plural};

/// A request of the agent and its outcome.
#[derive(Debug)]
pub(super) struct AuditEntry {
    pub(super) session: Option<SessionId>,
    action: Action,
    /// The target of the action on the screen.
    target: String,
    /// The members of the action for scripts.
    members: Value,
    outcome: ActionOutcome,
}

#[derive(Debug)]
enum Action {
    Write,
    Terminal,
    /// A question for permission, with the kind of its tool.
    Permission(Option<ToolKind>),
    Form,
}

#[derive(Debug)]
enum ActionOutcome {
    /// Dropped before its end: the agent cancelled it, its turn was cancelled, or the connection ended.
    Unfinished,
    Done,
    /// A rule forbids it, for this reason.
    Refused(String),
    /// It was allowed and did not succeed, for this reason.
    Failed(String),
    /// A question was answered.
    Answered {
        answer: Answer,
        option: Option<PermissionOption>,
        by: Decider,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    Rejected,
    Cancelled,
}

/// The origin of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decider {
    User,
    /// An option of the command line, as it is typed.
    Rule(String),
    /// An earlier answer of the user that was meant for always.
    EarlierAnswer,
    /// The default without a user.
    NoUser,
    /// No rule, because several options allow it.
    SeveralOptions,
}

impl AuditEntry {
    pub(super) fn of_write(request: &WriteTextFileRequest) -> Self {
        let (path, bytes) = (request.path.to_string_lossy(), request.content.len());
        let target = format!("{} ({})", short(&path), plural(bytes, "byte"));
        let members = json!({ "path": path, "bytes": bytes });
        AuditEntry::new(Some(&request.session_id), Action::Write, target, members)
    }

    pub(super) fn of_terminal(request: &CreateTerminalRequest) -> Self {
        let CreateTerminalRequest { session_id, command, args, env, cwd, .. } = request;
        let cwd = cwd.as_ref().map(|cwd| cwd.to_string_lossy());
        let set = env.iter().map(|env| format!("{}={} ", env.name, shell_words(&[&env.value])));
        let line = format!("{}{}", set.collect::<String>(), command_line(command, args));
        let folder = cwd.as_ref().map(|cwd| format!(" (in {})", short(cwd))).unwrap_or_default();
        let target = format!("$ {}{folder}", short(&line));
        let env: Vec<_> = env.iter().map(|env| json!({ "name": env.name, "value": env.value })).collect();
        let members = json!({ "command": command, "args": args, "env": env, "cwd": cwd });
        AuditEntry::new(Some(session_id), Action::Terminal, target, members)
    }

    pub(super) fn of_permission(request: &RequestPermissionRequest) -> Self {
        let call = &request.tool_call;
        let id = call.tool_call_id.as_str();
        let title = call.title.as_deref().unwrap_or(id);
        let command = call.raw_input.as_ref().and_then(details::command);
        let target = match &command {
            Some(command) if command != title => format!("{}  $ {}", details::title(title), short(command)),
            _ => details::title(title),
        };
        let kind = call.kind.as_ref().map(ToolKind::as_str);
        let members = json!({ "toolCallId": id, "title": title, "kind": kind, "command": command });
        AuditEntry::new(Some(&request.session_id), Action::Permission(call.kind.clone()), target, members)
    }

    pub(super) fn of_form(request: &CreateElicitationRequest) -> Self {
        let (target, members) = (details::title(&request.message), json!({ "message": request.message }));
        AuditEntry::new(request.mode.session_id(), Action::Form, target, members)
    }

    /// Returns the entry of a request that was rejected before it reached the host. `None` for
    /// requests that change nothing.
    pub(super) fn of_rejected(request: &AgentRequest, error: &WireError) -> Option<Self> {
        let mut entry = match request {
            AgentRequest::WriteTextFile(request) => AuditEntry::of_write(request),
            AgentRequest::CreateTerminal(request) => AuditEntry::of_terminal(request),
            AgentRequest::RequestPermission(request) => AuditEntry::of_permission(request),
            AgentRequest::CreateElicitation(request) => AuditEntry::of_form(request),
            _ => return None,
        };
        let reason = match (error.code, &entry.action) {
            (ErrorCode::METHOD_NOT_FOUND, _) => "--read-only or --no-tools forbids it".to_owned(),
            (_, Action::Form) => "no user can answer".to_owned(),
            _ => error.message.to_string(),
        };
        entry.outcome = ActionOutcome::Refused(reason);
        Some(entry)
    }

    fn new(session: Option<&SessionId>, action: Action, target: String, members: Value) -> Self {
        let outcome = ActionOutcome::Unfinished;
        AuditEntry { session: session.cloned(), action, target, members, outcome }
    }

    fn is_question(&self) -> bool {
        matches!(self.action, Action::Permission(_) | Action::Form)
    }

    /// Returns true if the user, a rule or the lack of a user rejected the request.
    pub(super) fn is_refusal(&self) -> bool {
        match &self.outcome {
            ActionOutcome::Refused(_) => true,
            ActionOutcome::Answered { answer, .. } => *answer != Answer::Allowed,
            ActionOutcome::Unfinished | ActionOutcome::Done | ActionOutcome::Failed(_) => false,
        }
    }

    /// Returns the line on the screen.
    pub(super) fn line(&self) -> Vec<Span> {
        let (style, mark) = match &self.outcome {
            ActionOutcome::Done => (MARK, "· "),
            ActionOutcome::Answered { answer: Answer::Allowed, .. } => (GOOD, "✓ "),
            _ => (BAD, "✗ "),
        };
        vec![Span::new(style, mark), Span::line(NORMAL, &self.words())]
    }

    fn words(&self) -> String {
        let target = &self.target;
        let (did, did_not) = match self.action {
            Action::Write => ("wrote", "write"),
            Action::Terminal => ("started", "start"),
            Action::Permission(_) | Action::Form => ("answered", "ask"),
        };
        match &self.outcome {
            ActionOutcome::Done => format!("{did} {target}"),
            ActionOutcome::Refused(reason) => format!("refused to {did_not} {target}: {}", short(reason)),
            ActionOutcome::Failed(reason) => format!("could not {did_not} {target}: {}", short(reason)),
            ActionOutcome::Unfinished if self.is_question() => format!("not answered: {target}"),
            ActionOutcome::Unfinished => {
                format!("withdrawn by the agent while it was done: {did_not} {target}")
            }
            ActionOutcome::Answered { answer, option, by } => {
                let kind = match &self.action {
                    Action::Permission(Some(kind)) => kind.as_str(),
                    _ => "…",
                };
                let chosen = option.as_ref().map(|option| {
                    format!(" ({}, {:?})", option.kind.as_str().replace('_', " "), short(&option.name))
                });
                let chosen = chosen.unwrap_or_default();
                let answer = answer.word_for(&self.action);
                match by {
                    Decider::User => format!("{answer} by you{chosen}: {target}"),
                    Decider::Rule(rule) => format!("{answer} by {rule}{chosen}: {target}"),
                    Decider::EarlierAnswer => format!("{answer} as you answered before{chosen}: {target}"),
                    Decider::SeveralOptions => {
                        format!(
                            "not answered: several options allow it, and only a user can choose one: {target}"
                        )
                    }
                    Decider::NoUser => {
                        format!("refused: no user can answer (--yes or --allow {kind} allows it): {target}")
                    }
                }
            }
        }
    }

    /// Returns the object for scripts.
    pub(super) fn object(&self) -> Value {
        let name = match self.action {
            Action::Write => "write",
            Action::Terminal => "terminal",
            Action::Permission(_) | Action::Form => "answer",
        };
        let mut value = self.members.clone();
        match &self.outcome {
            ActionOutcome::Unfinished if self.is_question() => value["outcome"] = "cancelled".into(),
            ActionOutcome::Unfinished => value["outcome"] = "unfinished".into(),
            ActionOutcome::Done => value["outcome"] = "done".into(),
            ActionOutcome::Refused(reason) | ActionOutcome::Failed(reason) => {
                let failed = matches!(self.outcome, ActionOutcome::Failed(_));
                value["outcome"] = if failed { "failed" } else { "refused" }.into();
                value["reason"] = reason.as_str().into();
            }
            ActionOutcome::Answered { answer, option, by } => {
                value["outcome"] = answer.word_for(&self.action).into();
                if let Some(PermissionOption { option_id, name, kind, .. }) = option {
                    value["option"] =
                        json!({ "optionId": option_id.as_str(), "name": name, "kind": kind.as_str() });
                }
                value["by"] = by.as_str().into();
                if let Decider::Rule(rule) = by {
                    value["rule"] = rule.as_str().into();
                }
            }
        }
        json!({ name: value })
    }
}

impl Answer {
    fn word_for(self, action: &Action) -> &'static str {
        match (self, action) {
            (Answer::Allowed, Action::Form) => "accepted",
            (Answer::Allowed, _) => "allowed",
            (Answer::Rejected, Action::Form) => "declined",
            (Answer::Rejected, _) => "rejected",
            (Answer::Cancelled, _) => "cancelled",
        }
    }
}

impl Decider {
    fn as_str(&self) -> &'static str {
        match self {
            Decider::User => "user",
            Decider::Rule(_) => "rule",
            Decider::EarlierAnswer => "earlier_answer",
            Decider::NoUser | Decider::SeveralOptions => "nobody",
        }
    }
}

/// An entry that is written when its action has ended, however it ends. Its room is reserved before the
/// action begins, so that no action is left without its entry.
#[must_use = "the entry is written when this is dropped"]
pub(super) struct OpenEntry(Option<(OwnedPermit<UiEvent>, AuditEntry)>);

impl OpenEntry {
    /// Begins an entry. Without a permit the reader is gone.
    pub(super) fn new(permit: Option<OwnedPermit<UiEvent>>, entry: AuditEntry) -> Self {
        OpenEntry(permit.map(|permit| (permit, entry)))
    }

    /// Writes the entry and waits until it is shown, so that the agent cannot act on the answer before.
    async fn end(mut self, outcome: ActionOutcome) {
        if let Some((permit, mut entry)) = self.0.take() {
            entry.outcome = outcome;
            let (shown, is_shown) = oneshot::channel();
            permit.send(UiEvent::Audit { entry: Box::new(entry), shown: Some(shown) });
            // Without a reader it is dropped, and the wait ends at once.
            let _ = is_shown.await;
        }
    }

    /// Ends the entry of a write or a terminal.
    pub(super) async fn done<T>(self, result: &Result<T, WireError>) {
        let outcome = match result {
            Ok(_) => ActionOutcome::Done,
            Err(error) => match error.code {
                ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND => {
                    ActionOutcome::Refused(error.message.to_string())
                }
                _ => ActionOutcome::Failed(error.message.to_string()),
            },
        };
        self.end(outcome).await;
    }

    /// Ends the entry of a question for permission.
    pub(super) async fn decided(
        self,
        request: &RequestPermissionRequest,
        outcome: &RequestPermissionOutcome,
        by: Decider,
    ) {
        let option = match outcome {
            RequestPermissionOutcome::Selected(selected) => request.option(&selected.option_id),
            _ => None,
        };
        let answer = match option.map(|option| &option.kind) {
            Some(PermissionOptionKind::AllowOnce | PermissionOptionKind::AllowAlways) => Answer::Allowed,
            Some(_) => Answer::Rejected,
            None => Answer::Cancelled,
        };
        self.end(ActionOutcome::Answered { answer, option: option.cloned(), by }).await;
    }

    /// Ends the entry of a form.
    pub(super) async fn filled_in(self, action: &ElicitationAction) {
        let answer = match action {
            ElicitationAction::Accept(_) => Answer::Allowed,
            ElicitationAction::Decline => Answer::Rejected,
            // The turn ended before the user answered.
            _ => return,
        };
        self.end(ActionOutcome::Answered { answer, option: None, by: Decider::User }).await;
    }
}

impl Drop for OpenEntry {
    fn drop(&mut self) {
        if let Some((permit, entry)) = self.0.take() {
            permit.send(UiEvent::Audit { entry: Box::new(entry), shown: None });
        }
    }
}

/// Returns the command line of a terminal. A command without arguments may already be a line for a
/// shell.
fn command_line(command: &str, args: &[String]) -> String {
    match args {
        [] => command.to_owned(),
        args => {
            let words: Vec<&str> = [command].into_iter().chain(args.iter().map(String::as_str)).collect();
            shell_words(&words)
        }
    }
}

#[cfg(test)]
mod tests {
    use duologue_schema::{
        PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
        ToolCallUpdate,
    };

    use super::super::ui_queue::{UiEvent, UiQueue};
    use super::{AuditEntry, Decider};

    /// Every kind of option that is not known to allow counts as a refusal.
    #[tokio::test]
    async fn only_an_answer_that_allows_is_no_refusal() {
        let kinds = [
            (Some("allow_once"), "allowed", false),
            (Some("allow_always"), "allowed", false),
            (Some("reject_once"), "rejected", true),
            (Some("reject_always"), "rejected", true),
            (Some("allow_later"), "rejected", true),
            (None, "cancelled", true),
        ];
        for (kind, outcome, is_refusal) in kinds {
            let options =
                kind.map(|kind| PermissionOption::new("o", "Name", PermissionOptionKind::from(kind)));
            let options: Vec<_> = options.into_iter().collect();
            let request = RequestPermissionRequest::new("s", ToolCallUpdate::new("t"), options);
            let answer = match kind {
                Some(_) => RequestPermissionOutcome::selected("o"),
                None => RequestPermissionOutcome::Cancelled,
            };
            let (ui, mut events) = UiQueue::new();
            let entry = ui.begin(AuditEntry::of_permission(&request)).await;
            let decided = entry.decided(&request, &answer, Decider::User);
            let seen = async {
                let Some(UiEvent::Audit { entry, .. }) = events.events.recv().await else {
                    panic!("no entry")
                };
                entry
            };
            let ((), entry) = tokio::join!(decided, seen);
            let object = entry.object();
            assert_eq!(object["answer"]["outcome"], outcome, "{kind:?}");
            assert_eq!(entry.is_refusal(), is_refusal, "{kind:?}");
        }
    }

    /// An action whose handler is dropped leaves an entry, and refuses nothing.
    #[tokio::test]
    async fn a_dropped_action_is_an_entry_too() {
        let request = RequestPermissionRequest::new("s", ToolCallUpdate::new("t"), Vec::new());
        let (ui, mut events) = UiQueue::new();
        drop(ui.begin(AuditEntry::of_permission(&request)).await);
        let Some(UiEvent::Audit { entry, .. }) = events.events.recv().await else { panic!("no entry") };
        assert_eq!(entry.object()["answer"]["outcome"], "cancelled");
        assert!(!entry.is_refusal());
    }
}
