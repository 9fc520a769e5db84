//! Rules that answer permission requests.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Mutex;

use duologue_rpc::Lock;
#[cfg(feature = "protocol-v2")]
use duologue_schema::v2::{DiffChange, DiffOperation};
use duologue_schema::{
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    ToolCallContent, ToolCallUpdate, ToolKind, path_fault,
};

use super::Threads;
use super::folders::SessionKey;
use crate::context::{ConnectionId, HostContext};
use crate::host::HostResult;
use crate::limits::QUESTION_PATHS;

type Answer = Pin<Box<dyn Future<Output = RequestPermissionResponse> + Send>>;
type Ask = Box<dyn Fn(HostContext, RequestPermissionRequest) -> Answer + Send + Sync>;

/// The most links to missing files that are followed.
const LINKS: u32 = 40;

/// Answers permission requests by rules, by earlier answers of the user, or by a closure.
///
/// The first step that applies decides:
///
/// 1. A rule of [`deny`](Self::deny) or [`deny_in`](Self::deny_in) rejects the call.
/// 2. A rule of [`allow`](Self::allow) or [`allow_in`](Self::allow_in) allows it.
/// 3. An earlier *always* answer of the user in the same session is repeated. For calls that read or edit
///    files it applies to the same files, otherwise to a call with the same files, title and input. A call
///    without a kind, or with neither files nor input, is not remembered.
/// 4. The closure of [`ask`](Self::ask) passes the request to the user.
/// 5. The call is rejected.
///
/// Rules select a *once* option, or an *always* option if there is no other. Without a matching option the
/// response is `cancelled`.
///
/// The rules use the fields of the tool call, from the request or from
/// [earlier updates](crate::Host::request_permission). A call without a kind matches no rule about kinds.
/// Permissions are not a sandbox: a malicious agent can act without a permission request.
///
/// Folders are absolute paths. A file is in a folder by its name and by the current target of its links. An
/// allow rule needs both, a deny rule needs one of them. The location of a relative path is unknown, so no
/// allow rule and every deny rule covers it. The same applies to paths of a call beyond the first
/// [`QUESTION_PATHS`], and to a change of version 2 whose files cannot be read.
///
/// ```
/// use duologue_client::Permissions;
/// use duologue_client::schema::{RequestPermissionOutcome, ToolKind};
///
/// let permissions = Permissions::new()
///     .allow(ToolKind::Read)
///     .allow_in(ToolKind::Edit, "/home/me/project/src")
///     .deny_in("/home/me/project/.git")
///     .ask(async |_, question| {
///         // Show question.tool_call and question.options to the user.
///         match question.options.first() {
///             Some(option) => RequestPermissionOutcome::selected(option.option_id.clone()),
///             None => RequestPermissionOutcome::Cancelled,
///         }
///     });
/// # let _ = permissions;
/// ```
#[must_use = "pass the permissions to LocalHost::permissions"]
#[derive(Default)]
pub struct Permissions {
    rules: Vec<Rule>,
    ask: Option<Ask>,
    remembered: Mutex<HashMap<Subject, bool>>,
}

#[derive(Clone)]
struct Rule {
    allow: bool,
    /// The kind of the call, or `None` for all kinds.
    kind: Option<ToolKind>,
    /// The folder of the files, or `None` for all folders.
    folder: Option<PathBuf>,
}

/// The calls to which an *always* answer applies.
#[derive(PartialEq, Eq, Hash)]
struct Subject {
    session: SessionKey,
    kind: ToolKind,
    name: Option<String>,
    files: Vec<File>,
    /// The title and the input, unless the files identify the call.
    call: Option<(Option<String>, Option<String>)>,
}

/// The location of a file or folder.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
enum File {
    /// The path without `..`, and the targets of its links.
    At(Vec<PathBuf>),
    /// An unknown location.
    Somewhere(PathBuf),
}

impl Permissions {
    /// Creates permissions that reject everything.
    pub fn new() -> Self {
        Permissions::default()
    }

    /// Allows tool calls of this kind.
    pub fn allow(self, kind: ToolKind) -> Self {
        self.rule(true, Some(kind), None)
    }

    /// Allows tool calls of this kind that name files, if all files are in `folder`.
    pub fn allow_in(self, kind: ToolKind, folder: impl Into<PathBuf>) -> Self {
        self.rule(true, Some(kind), Some(folder.into()))
    }

    /// Rejects tool calls of this kind, even if another rule allows them.
    pub fn deny(self, kind: ToolKind) -> Self {
        self.rule(false, Some(kind), None)
    }

    /// Rejects tool calls of every kind that name `folder` or a file in it, even if another rule allows
    /// them.
    pub fn deny_in(self, folder: impl Into<PathBuf>) -> Self {
        self.rule(false, None, Some(folder.into()))
    }

    fn rule(mut self, allow: bool, kind: Option<ToolKind>, folder: Option<PathBuf>) -> Self {
        self.rules.push(Rule { allow, kind, folder });
        self
    }

    /// Passes the other requests to the user. An option that the agent did not offer counts as `cancelled`. The
    /// closure returns the outcome, or a response with a `_meta`.
    ///
    /// If the turn is cancelled, the client responds and the future is dropped. An `async` closure that captures
    /// variables does not compile here; [`ask_with`](Self::ask_with) passes state to the closure.
    pub fn ask<F, Fut>(mut self, ask: F) -> Self
    where
        F: Fn(HostContext, RequestPermissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Into<RequestPermissionResponse>> + Send + 'static,
    {
        self.ask = Some(Box::new(move |context, request| {
            let answer = ask(context, request);
            Box::pin(async move { answer.await.into() })
        }));
        self
    }

    /// Passes the other requests to the user, as [`ask`](Self::ask), and passes a clone of `state` to the closure.
    ///
    /// ```
    /// use duologue_client::Permissions;
    /// use duologue_client::schema::RequestPermissionOutcome;
    /// use tokio::sync::{mpsc, oneshot};
    ///
    /// // The user interface receives each question with a sender for its answer.
    /// let (ui, questions) = mpsc::channel(1);
    /// let permissions = Permissions::new().ask_with(ui, async |ui, _, question| {
    ///     let (answer, answered) = oneshot::channel();
    ///     let _ = ui.send((question, answer)).await;
    ///     answered.await.unwrap_or(RequestPermissionOutcome::Cancelled)
    /// });
    /// # let _ = (permissions, questions);
    /// ```
    pub fn ask_with<S, F, Fut>(self, state: S, ask: F) -> Self
    where
        S: Clone + Send + Sync + 'static,
        F: Fn(S, HostContext, RequestPermissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Into<RequestPermissionResponse>> + Send + 'static,
    {
        self.ask(move |context, request| ask(state.clone(), context, request))
    }

    /// Forgets the *always* answers of a connection.
    pub(super) fn forget(&self, connection: ConnectionId) {
        self.remembered.lock_unpoisoned().retain(|subject, _| subject.session.connection != connection);
    }

    pub(super) async fn answer(
        &self,
        context: &HostContext,
        request: RequestPermissionRequest,
        threads: &Threads,
    ) -> RequestPermissionResponse {
        let connection = context.connection_id();
        let Ok((ruled, files)) = self.look_up(&request.tool_call, threads, connection).await else {
            return request.outcome(false).into();
        };
        // Of several options that allow it, such as the answers to a question, no rule chooses one.
        let is_choice = request.has_several(true);
        if let Some(allow) = ruled.filter(|allow| !(*allow && is_choice)) {
            return request.outcome(allow).into();
        }
        let session = SessionKey::of(context, &request.session_id);
        let subject = Subject::of(&request, session, files);
        let remembered = || self.remembered.lock_unpoisoned();
        let known = subject.as_ref().and_then(|subject| remembered().get(subject).copied());
        if let Some(allow) = known.filter(|allow| !(*allow && is_choice)) {
            return request.outcome(allow).into();
        }
        let Some(ask) = &self.ask else {
            let is_allowed = ruled.or(known) == Some(true);
            return if is_allowed { RequestPermissionOutcome::Cancelled } else { request.outcome(false) }
                .into();
        };
        let mut response = ask(context.clone(), request.clone()).await;
        let option = match &response.outcome {
            RequestPermissionOutcome::Selected(selected) => request.option(&selected.option_id),
            _ => None,
        };
        let Some(option) = option else {
            response.outcome = RequestPermissionOutcome::Cancelled;
            return response;
        };
        let always = match option.kind {
            PermissionOptionKind::AllowAlways => Some(true),
            PermissionOptionKind::RejectAlways => Some(false),
            _ => None,
        };
        if let (Some(subject), Some(allow)) = (subject, always) {
            remembered().insert(subject, allow);
        }
        response
    }
}

/// The paths of a request that are looked up at once. Others have their turn between them.
const PATHS_AT_ONCE: usize = 16;

impl Permissions {
    /// Looks up the files of a tool call. Returns the decision of the rules and the files, which are `None` if there are
    /// too many to recognize the same call.
    async fn look_up(
        &self,
        call: &ToolCallUpdate,
        threads: &Threads,
        connection: ConnectionId,
    ) -> HostResult<(Option<bool>, Option<Vec<File>>)> {
        let mut known = HashSet::new();
        let mut unknown = None;
        for path in paths(call) {
            if known.len() < QUESTION_PATHS || known.contains(path) {
                known.insert(path);
            } else {
                unknown = Some(File::Somewhere(path.to_owned()));
                break;
            }
        }
        let known: Vec<PathBuf> = known.into_iter().map(Path::to_owned).collect();
        let mut files = Vec::new();
        for paths in known.chunks(PATHS_AT_ONCE) {
            let paths = paths.to_vec();
            let look_up = move || Ok(paths.iter().map(|path| File::of(path)).collect::<Vec<_>>());
            files.extend(threads.run(connection, look_up).await?);
        }
        files.sort();
        files.dedup();
        if changes_unknown_files(call) {
            unknown.get_or_insert_with(|| File::Somewhere(PathBuf::new()));
        }
        let is_complete = unknown.is_none();
        files.extend(unknown);
        let (rules, kind) = (self.rules.clone(), call.kind.clone());
        let (ruled, files) = match rules.is_empty() {
            true => (None, files),
            false => {
                threads.run(connection, move || Ok((ruled(&rules, kind.as_ref(), &files), files))).await?
            }
        };
        Ok((ruled, is_complete.then_some(files)))
    }
}

/// Returns the decision of the rules, if a rule covers the call.
fn ruled(rules: &[Rule], kind: Option<&ToolKind>, files: &[File]) -> Option<bool> {
    let covers = |rule: &&Rule| {
        let folder = rule.folder.as_deref().map(File::of);
        let folder = folder.is_none_or(|folder| match rule.allow {
            true => !files.is_empty() && files.iter().all(|file| file.is_surely_in(&folder)),
            false => files.iter().any(|file| file.may_be_in(&folder)),
        });
        folder && (rule.kind.is_none() || rule.kind.as_ref() == kind)
    };
    let mut covering = rules.iter().filter(covers).map(|rule| rule.allow).peekable();
    covering.peek()?;
    Some(covering.all(|allow| allow))
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rules, asks) = (self.rules.len(), self.ask.is_some());
        f.debug_struct("Permissions").field("rules", &rules).field("asks", &asks).finish_non_exhaustive()
    }
}

impl Subject {
    /// Returns `None` if the request has too few fields to recognize the same call.
    fn of(request: &RequestPermissionRequest, session: SessionKey, files: Option<Vec<File>>) -> Option<Self> {
        let files = files?;
        let call = &request.tool_call;
        let kind = call.kind.clone()?;
        let input = call.raw_input.as_ref().map(|input| input.get().to_owned());
        // Agents send an empty input if they do not have the input yet.
        let empty = |input: &String| !input.contains(|c: char| !c.is_whitespace() && !"{}[]\"".contains(c));
        if files.is_empty() && input.as_ref().is_none_or(empty) {
            return None;
        }
        let files_suffice = !files.is_empty() && matches!(kind, ToolKind::Read | ToolKind::Edit);
        let title_and_input = (!files_suffice).then(|| (call.title.clone(), input));
        Some(Subject { session, kind, name: call.name.clone(), files, call: title_and_input })
    }
}

/// Returns the paths of a tool call.
fn paths(call: &ToolCallUpdate) -> impl Iterator<Item = &Path> {
    let locations = call.locations.iter().flatten().map(|location| location.path.as_path());
    let changes = call.content.iter().flatten().flat_map(|content| match content {
        ToolCallContent::Diff(diff) => vec![diff.path.as_path()],
        #[cfg(feature = "protocol-v2")]
        ToolCallContent::Changes(diff) => diff.paths().map(PathBuf::as_path).collect(),
        _ => Vec::new(),
    });
    locations.chain(changes)
}

/// Returns true if a change of the tool call names no file that this program can read.
fn changes_unknown_files(call: &ToolCallUpdate) -> bool {
    #[cfg(feature = "protocol-v2")]
    return call.content.iter().flatten().any(|content| match content {
        ToolCallContent::Changes(diff) => {
            let is_unknown = |change: &DiffChange| matches!(change.operation, DiffOperation::Unknown(_));
            diff.changes.is_empty() || diff.changes.iter().any(is_unknown)
        }
        _ => false,
    });
    #[cfg(not(feature = "protocol-v2"))]
    {
        let _ = call;
        false
    }
}

impl File {
    fn of(path: &Path) -> Self {
        if path_fault(path).is_some() {
            return File::Somewhere(path.to_owned());
        }
        let plain = plain(path);
        // For the system, `..` after a link is relative to the target of the link.
        match (real(path, LINKS), real(&plain, LINKS)) {
            (Some(real), Some(plainly_real)) => {
                let mut names = vec![plain, real, plainly_real];
                names.sort();
                names.dedup();
                File::At(names)
            }
            _ => File::Somewhere(path.to_owned()),
        }
    }

    fn may_be_in(&self, folder: &File) -> bool {
        match (self, folder) {
            (File::At(names), File::At(folders)) => names.iter().any(|name| is_in(name, folders)),
            _ => true,
        }
    }

    fn is_surely_in(&self, folder: &File) -> bool {
        match (self, folder) {
            (File::At(names), File::At(folders)) => names.iter().all(|name| is_in(name, folders)),
            _ => false,
        }
    }
}

fn is_in(name: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| name.starts_with(folder))
}

/// Returns the path without `.` and `..`.
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

/// Resolves the links of a path, as far as it exists.
fn real(path: &Path, links: u32) -> Option<PathBuf> {
    let ancestors: Vec<_> = path.ancestors().collect();
    let there = *ancestors.get(ancestors.partition_point(|path| path.canonicalize().is_err()))?;
    let real = there.canonicalize().ok()?;
    let rest = path.strip_prefix(there).ok()?;
    let mut parts = rest.components();
    let Some(next) = parts.next() else { return Some(real) };
    match real.join(next).read_link() {
        // The link leads to a missing file.
        Ok(target) => self::real(&real.join(target).join(parts.as_path()), links.checked_sub(1)?),
        Err(_) => Some(plain(&real.join(rest))),
    }
}
