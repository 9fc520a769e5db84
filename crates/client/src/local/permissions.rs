//! Who answers an agent that asks for permission.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Mutex;

use duologue_rpc::Lock;
use duologue_schema::{
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionId, ToolCallContent,
    ToolCallUpdate, ToolKind, path_fault,
};

use super::Threads;
use crate::host::{ConnectionId, HostResult};
use crate::limits::QUESTION_PATHS;

type Answer = Pin<Box<dyn Future<Output = RequestPermissionOutcome> + Send>>;
type Ask = Box<dyn Fn(RequestPermissionRequest) -> Answer + Send + Sync>;

/// How many links to what is not there yet are followed.
const LINKS: u32 = 40;

/// Who answers an agent that asks for permission: rules, what the user said before, the user.
///
/// Without any of them the answer is no. In this order:
///
/// 1. What a [`deny`](Self::deny) or [`deny_in`](Self::deny_in) covers is rejected.
/// 2. What an [`allow`](Self::allow) or [`allow_in`](Self::allow_in) covers is allowed.
/// 3. What the user answered with an *always* is answered the same way again, in the same session: for
///    the same files if the call reads or edits files, else for the same call, its files, title and input
///    alike. A call that does not say its kind, and its files or its input, is asked about again.
///    An agent may mean more by its *always*; then it need not ask.
/// 4. The closure of [`ask`](Self::ask) puts the question to the user.
/// 5. It is rejected.
///
/// Rules answer *once*, or *always* if the agent offers nothing else, and `cancelled` if it offers no
/// fitting option at all.
///
/// All this goes by what the agent says of the tool call, in the request or
/// [before](crate::Host::request_permission); a call without a kind is covered by no rule about kinds.
/// It is help for the user of a well-meaning agent and no fence around another: an agent that means harm
/// does not ask.
///
/// Folders are absolute paths. A file is in one by its name and by where its links lead now: both have to
/// be for it to be allowed, one is enough for it to be denied. Of a relative path nobody knows where it
/// is, so it is in no folder that is allowed and in every one that is denied. The same holds for the paths of a call
/// that names more than [`QUESTION_PATHS`], from there on.
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

#[derive(Clone)]
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
    connection: Option<ConnectionId>,
    session: SessionId,
    kind: ToolKind,
    name: Option<String>,
    files: Vec<File>,
    /// Title and input, unless the files say it all.
    call: Option<(Option<String>, Option<String>)>,
}

/// A file or folder by all its names.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
enum File {
    /// Its name without `..`, and where its links lead.
    At(Vec<PathBuf>),
    /// Nobody knows where it is.
    Somewhere(PathBuf),
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

    /// Forgets what was to be answered the same way again on a connection, or on all.
    pub(super) fn forget(&self, connection: Option<ConnectionId>) {
        let mut remembered = self.remembered.lock_unpoisoned();
        remembered.retain(|subject, _| connection.is_some() && subject.connection != connection);
    }

    pub(super) async fn answer(
        &self,
        request: RequestPermissionRequest,
        connection: Option<Option<ConnectionId>>,
        threads: &Threads,
    ) -> RequestPermissionOutcome {
        let Ok((ruled, files)) = self.look_up(&request.tool_call, threads).await else {
            return request.outcome(false);
        };
        if let Some(allow) = ruled {
            return request.outcome(allow);
        }
        let subject = connection.and_then(|connection| Subject::of(&request, connection, files));
        let remembered = || self.remembered.lock_unpoisoned();
        if let Some(allow) = subject.as_ref().and_then(|subject| remembered().get(subject).copied()) {
            return request.outcome(allow);
        }
        let Some(ask) = &self.ask else { return request.outcome(false) };
        let outcome = ask(request.clone()).await;
        let RequestPermissionOutcome::Selected(selected) = &outcome else {
            return RequestPermissionOutcome::Cancelled;
        };
        let Some(option) = request.option(&selected.option_id) else {
            return RequestPermissionOutcome::Cancelled;
        };
        let always = match option.kind {
            PermissionOptionKind::AllowAlways => Some(true),
            PermissionOptionKind::RejectAlways => Some(false),
            _ => None,
        };
        if let (Some(subject), Some(allow)) = (subject, always) {
            remembered().insert(subject, allow);
        }
        outcome
    }
}

/// Paths of a question that are looked up in one go, so that others have their turn between them.
const PATHS_AT_ONCE: usize = 16;

impl Permissions {
    /// Looks up the files of a tool call, and returns what the rules say of them. The files are `None` if they are too many
    /// to know the same call again.
    async fn look_up(
        &self,
        call: &ToolCallUpdate,
        threads: &Threads,
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
            files.extend(threads.run(look_up).await?);
        }
        files.sort();
        files.dedup();
        let is_complete = unknown.is_none();
        files.extend(unknown);
        let (rules, kind) = (self.rules.clone(), call.kind.clone());
        let (ruled, files) = match rules.is_empty() {
            true => (None, files),
            false => threads.run(move || Ok((ruled(&rules, kind.as_ref(), &files), files))).await?,
        };
        Ok((ruled, is_complete.then_some(files)))
    }
}

/// What the rules say, if they say anything.
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
    /// `None` if the request says too little to know the same thing again.
    fn of(
        request: &RequestPermissionRequest,
        connection: Option<ConnectionId>,
        files: Option<Vec<File>>,
    ) -> Option<Self> {
        let files = files?;
        let call = &request.tool_call;
        let kind = call.kind.clone()?;
        let input = call.raw_input.as_ref().map(|input| input.get().to_owned());
        // Agents announce calls whose input they do not have yet with an empty one.
        let empty = |input: &String| !input.contains(|c: char| !c.is_whitespace() && !"{}[]\"".contains(c));
        if files.is_empty() && input.as_ref().is_none_or(empty) {
            return None;
        }
        let files_say_it = !files.is_empty() && matches!(kind, ToolKind::Read | ToolKind::Edit);
        let call_says = (!files_say_it).then(|| (call.title.clone(), input));
        let (session, name) = (request.session_id.clone(), call.name.clone());
        Some(Subject { connection, session, kind, name, files, call: call_says })
    }
}

/// The paths a tool call names.
fn paths(call: &ToolCallUpdate) -> impl Iterator<Item = &Path> {
    let locations = call.locations.iter().flatten().map(|location| location.path.as_path());
    let changes = call.content.iter().flatten().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(diff.path.as_path()),
        _ => None,
    });
    locations.chain(changes)
}

impl File {
    fn of(path: &Path) -> Self {
        if path_fault(path).is_some() {
            return File::Somewhere(path.to_owned());
        }
        let plain = plain(path);
        // `..` behind a link leads elsewhere for the system than by name.
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

/// Where the links of a path lead, as far as it exists.
fn real(path: &Path, links: u32) -> Option<PathBuf> {
    let ancestors: Vec<_> = path.ancestors().collect();
    let there = *ancestors.get(ancestors.partition_point(|path| path.canonicalize().is_err()))?;
    let real = there.canonicalize().ok()?;
    let rest = path.strip_prefix(there).ok()?;
    let mut parts = rest.components();
    let Some(next) = parts.next() else { return Some(real) };
    match real.join(next).read_link() {
        // To something that is not there.
        Ok(target) => self::real(&real.join(target).join(parts.as_path()), links.checked_sub(1)?),
        Err(_) => Some(plain(&real.join(rest))),
    }
}
