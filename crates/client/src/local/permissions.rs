//! Who answers an agent that asks for permission.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use duologue_schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    ToolCallContent, ToolCallUpdate, ToolKind,
};

type Answer = Pin<Box<dyn Future<Output = RequestPermissionOutcome> + Send>>;
type Ask = Box<dyn Fn(RequestPermissionRequest) -> Answer + Send + Sync>;

/// Who answers an agent that asks for permission: rules, what the user said before, the user.
///
/// Without any of them the answer is no. In this order:
///
/// 1. What a [`deny`](Self::deny) or [`deny_in`](Self::deny_in) covers is rejected.
/// 2. What an [`allow`](Self::allow) or [`allow_in`](Self::allow_in) covers is allowed.
/// 3. What the user answered with an *always* is answered the same way again, in the same session: for
///    the same files if the call reads or edits files, else for the same call, its title and input alike.
///    An agent may mean more by its *always*; then it need not ask.
/// 4. The closure of [`ask`](Self::ask) puts the question to the user.
/// 5. It is rejected.
///
/// Rules answer *once*, or *always* if the agent offers nothing else, and `cancelled` if it offers no
/// fitting option at all.
///
/// All this goes by what the request says of the tool call; one that names no kind, as the call was
/// announced before, is covered by no rule about kinds. It is help for the user of a well-meaning
/// agent and no fence around another: an agent that means harm does not ask.
///
/// ```
/// use duologue_client::Permissions;
/// use duologue_client::schema::{RequestPermissionOutcome, ToolKind};
///
/// let permissions = Permissions::new()
///     .allow(ToolKind::Read)
///     .allow_in(ToolKind::Edit, "/home/me/project/src")
///     .deny_in("/home/me/project/.git")
///     .ask(async |question| {
///         // Show question.tool_call and question.options to the user.
///         match question.options.first() {
///             Some(option) => RequestPermissionOutcome::selected(option.option_id.clone()),
///             None => RequestPermissionOutcome::Cancelled,
///         }
///     });
/// # let _ = permissions;
/// ```
#[must_use = "give it to LocalHost::permissions"]
#[derive(Default)]
pub struct Permissions {
    rules: Vec<Rule>,
    ask: Option<Ask>,
    remembered: Mutex<HashMap<Subject, bool>>,
}

struct Rule {
    allow: bool,
    /// `None` is every kind.
    kind: Option<ToolKind>,
    /// `None` is everywhere.
    folder: Option<PathBuf>,
}

/// What an *always* is about.
#[derive(PartialEq, Eq, Hash)]
struct Subject {
    session: SessionId,
    kind: Option<ToolKind>,
    name: Option<String>,
    what: What,
}

#[derive(PartialEq, Eq, Hash)]
enum What {
    Files(Vec<PathBuf>),
    Call { title: Option<String>, input: Option<String> },
}

impl Permissions {
    /// Rejects everything.
    pub fn new() -> Self {
        Permissions::default()
    }

    /// Allows tool calls of this kind.
    pub fn allow(self, kind: ToolKind) -> Self {
        self.rule(true, Some(kind), None)
    }

    /// Allows tool calls of this kind that name files, all of them in `folder`.
    pub fn allow_in(self, kind: ToolKind, folder: impl Into<PathBuf>) -> Self {
        self.rule(true, Some(kind), Some(folder.into()))
    }

    /// Rejects tool calls of this kind, whatever is allowed.
    pub fn deny(self, kind: ToolKind) -> Self {
        self.rule(false, Some(kind), None)
    }

    /// Rejects tool calls of every kind that name a file in `folder`, or `folder` itself, whatever is
    /// allowed.
    pub fn deny_in(self, folder: impl Into<PathBuf>) -> Self {
        self.rule(false, None, Some(folder.into()))
    }

    fn rule(mut self, allow: bool, kind: Option<ToolKind>, folder: Option<PathBuf>) -> Self {
        self.rules.push(Rule { allow, kind, folder });
        self
    }

    /// Puts the other questions to the user. An answer that was not offered counts as `cancelled`.
    ///
    /// When the turn is cancelled the question is answered for you, and the future is dropped.
    pub fn ask<F, Fut>(mut self, ask: F) -> Self
    where
        F: Fn(RequestPermissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = RequestPermissionOutcome> + Send + 'static,
    {
        self.ask = Some(Box::new(move |request| Box::pin(ask(request))));
        self
    }

    pub(super) async fn answer(&self, request: RequestPermissionRequest) -> RequestPermissionOutcome {
        let options = request.options.clone();
        if let Some(allow) = self.ruled(&request.tool_call) {
            return choose(&options, allow);
        }
        let subject = Subject::of(&request);
        if let Some(&allow) = self.remembered.lock().unwrap_or_else(PoisonError::into_inner).get(&subject) {
            return choose(&options, allow);
        }
        let Some(ask) = &self.ask else { return choose(&options, false) };
        let outcome = ask(request).await;
        let RequestPermissionOutcome::Selected(selected) = &outcome else {
            return RequestPermissionOutcome::Cancelled;
        };
        let mut chosen = options.iter().filter(|option| option.option_id == selected.option_id);
        // Of two options with one id, nobody knows which the agent will take it for.
        let (Some(option), None) = (chosen.next(), chosen.next()) else {
            return RequestPermissionOutcome::Cancelled;
        };
        let always = match option.kind {
            PermissionOptionKind::AllowAlways => Some(true),
            PermissionOptionKind::RejectAlways => Some(false),
            _ => None,
        };
        if let Some(allow) = always {
            self.remembered.lock().unwrap_or_else(PoisonError::into_inner).insert(subject, allow);
        }
        outcome
    }

    fn ruled(&self, call: &ToolCallUpdate) -> Option<bool> {
        let files = files(call);
        let covers = |rule: &&Rule| {
            let kind = rule.kind.is_none() || rule.kind == call.kind;
            let folder = rule.folder.as_deref().is_none_or(|folder| match rule.allow {
                true => !files.is_empty() && files.iter().all(|file| is_in(file, folder)),
                false => files.iter().any(|file| is_in(file, folder)),
            });
            kind && folder
        };
        let mut covering = self.rules.iter().filter(covers).map(|rule| rule.allow).peekable();
        covering.peek()?;
        Some(covering.all(|allow| allow))
    }
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rules, asks) = (self.rules.len(), self.ask.is_some());
        f.debug_struct("Permissions").field("rules", &rules).field("asks", &asks).finish_non_exhaustive()
    }
}

impl Subject {
    fn of(request: &RequestPermissionRequest) -> Self {
        let call = &request.tool_call;
        let files = files(call);
        let what = match call.kind {
            Some(ToolKind::Read | ToolKind::Edit) if !files.is_empty() => What::Files(files),
            _ => What::Call {
                title: call.title.clone(),
                input: call.raw_input.as_ref().map(|input| input.get().to_owned()),
            },
        };
        let session = request.session_id.clone();
        Subject { session, kind: call.kind.clone(), name: call.name.clone(), what }
    }
}

/// The files a tool call names, `..` resolved by name.
fn files(call: &ToolCallUpdate) -> Vec<PathBuf> {
    let locations = call.locations.iter().flatten().map(|location| &location.path);
    let changes = call.content.iter().flatten().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(&diff.path),
        _ => None,
    });
    let mut files: Vec<_> = locations.chain(changes).map(|path| plain(path)).collect();
    files.sort();
    files.dedup();
    files
}

fn is_in(file: &Path, folder: &Path) -> bool {
    file.starts_with(plain(folder))
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The option that says this and no more, else the one that says it for always.
fn choose(options: &[PermissionOption], allow: bool) -> RequestPermissionOutcome {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

    let kinds = if allow { [AllowOnce, AllowAlways] } else { [RejectOnce, RejectAlways] };
    let fitting = kinds.iter().find_map(|kind| options.iter().find(|option| option.kind == *kind));
    fitting.map_or(RequestPermissionOutcome::Cancelled, |option| {
        RequestPermissionOutcome::selected(option.option_id.clone())
    })
}
