//! The conversations of sessions in files, for an agent that lists and restores them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use duologue_rpc::Lock;
use duologue_schema::{
    AgentCapabilities, ContentBlock, ContentChunk, Conversation, ListSessionsRequest, ListSessionsResponse,
    MessageKind, SessionDeleteCapabilities, SessionId, SessionInfo, SessionListCapabilities,
    SessionResumeCapabilities, SessionUpdate, ToolCallStatus,
};

use crate::error::{Error, Result};
use crate::session::Session;
use crate::turn::Turn;

/// The conversations of an agent's sessions, one file for each in a folder. It serves `session/load`, `session/resume`,
/// `session/list` and `session/delete`.
///
/// [`begin`](Self::begin) keeps the prompts of a session, and its messages, thoughts, tool calls and plans as they are sent. Modes,
/// options, commands and usage are not kept. A file grows with its session. It has one JSON value in each line, and can only be
/// read by its owner. If the disk is full, the error is logged, and the rest of the session is not kept.
///
/// ```
/// use duologue_agent::schema::{
///     AgentCapabilities, DeleteSessionRequest, ListSessionsRequest, ListSessionsResponse,
/// };
/// use duologue_agent::{Agent, Context, History, Prompt, Result, Session, SessionSetup, StopReason, Turn};
///
/// struct Rememberer(History);
///
/// impl Agent for Rememberer {
///     fn capabilities(&self) -> AgentCapabilities {
///         History::advertise(AgentCapabilities::new())
///     }
///
///     async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
///         self.0.begin(session)?;
///         Ok(SessionSetup::new())
///     }
///
///     async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
///         self.0.load(session).await?;
///         Ok(SessionSetup::new())
///     }
///
///     async fn resume_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
///         self.0.resume(session)?;
///         Ok(SessionSetup::new())
///     }
///
///     async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
///         self.0.list(&request).await
///     }
///
///     async fn delete_session(&self, _: &Context, request: DeleteSessionRequest) -> Result<()> {
///         self.0.delete(&request.session_id)
///     }
///
///     async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
///         // The context for a model: everything so far, with this prompt.
///         let conversation = self.0.conversation(turn.id()).await?;
///         turn.message().push(format!("{} messages", conversation.messages().count())).await?;
///         Ok(StopReason::EndTurn)
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct History {
    folder: PathBuf,
}

impl History {
    /// The most sessions on a page of [`list`](Self::list).
    pub const PAGE: usize = 50;

    /// Uses a folder, which is created if it is absent. Only one process at a time may run a session of it.
    ///
    /// # Errors
    ///
    /// The folder cannot be created.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|error| failed("create", &folder, &error))?;
        Ok(History { folder })
    }

    /// Adds the capabilities for the methods that this serves.
    #[must_use]
    pub fn advertise(mut capabilities: AgentCapabilities) -> AgentCapabilities {
        let sessions = &mut capabilities.session_capabilities;
        sessions.list = Some(SessionListCapabilities::new());
        sessions.resume = Some(SessionResumeCapabilities::new());
        sessions.delete = Some(SessionDeleteCapabilities::new());
        capabilities.load_session(true)
    }

    /// Keeps the conversation of a new session from now on. Call it first in [`Agent::new_session`](crate::Agent::new_session).
    ///
    /// # Errors
    ///
    /// The file cannot be created, or there is one for the id. An id has at most 128 of `A-Z`, `a-z`, `0-9`, `-`, `_` and `.`.
    pub fn begin(&self, session: &Session) -> Result<()> {
        let id = session.id();
        let path = self.path(id).ok_or_else(|| {
            Error::other(format!(
                "the session id {:?} is no file name; use letters, digits, - and _",
                id.as_str()
            ))
        })?;
        let log = HistoryFile::open(&path, OpenOptions::new().append(true).create_new(true))?;
        log.write(&SessionInfo::new(id.clone(), session.cwd()));
        session.set_history(log);
        Ok(())
    }

    /// Sends the conversation of a session to the client, and keeps the rest of it. It is sent as it was at last: whole messages
    /// without the texts that were cleared, tool calls with their last status, and the last plan. A tool call that a process has
    /// left open is `failed`.
    ///
    /// # Errors
    ///
    /// `-32002` for an unknown session, and as [`Session::update`].
    pub async fn load(&self, session: &Session) -> Result<()> {
        for update in replay(&self.conversation(session.id()).await?) {
            session.update(update).await?;
        }
        self.resume(session)
    }

    /// Keeps the rest of an earlier session, which is not sent again.
    ///
    /// # Errors
    ///
    /// `-32002` for an unknown session, and for a file that cannot be written.
    pub fn resume(&self, session: &Session) -> Result<()> {
        let path = self.path(session.id()).filter(|path| path.is_file()).ok_or_else(unknown)?;
        let log = HistoryFile::open(&path, OpenOptions::new().append(true))?;
        // Ends a line that was cut by the end of a process.
        log.write(&());
        session.set_history(log);
        Ok(())
    }

    /// Lists the sessions, the last used one first, on pages of [`PAGE`](Self::PAGE). The title is the beginning of the first
    /// prompt.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or the cursor is unknown.
    pub async fn list(&self, request: &ListSessionsRequest) -> Result<ListSessionsResponse> {
        let folder = self.folder.clone();
        let sessions = blocking(move || {
            let entries = fs::read_dir(&folder).map_err(|error| failed("read", &folder, &error))?;
            let mut sessions: Vec<_> = entries
                .filter_map(|entry| {
                    let path = entry.ok()?.path();
                    Some((path.metadata().ok()?.modified().ok()?, info(&path)?))
                })
                .collect();
            sessions.sort_by_key(|(modified, _)| std::cmp::Reverse(*modified));
            Ok(sessions.into_iter().map(|(_, info)| info).collect::<Vec<_>>())
        });
        Ok(request.page(sessions.await?, History::PAGE)?)
    }

    /// Deletes the conversation of a session. An unknown session is no error.
    ///
    /// # Errors
    ///
    /// The file cannot be deleted.
    pub fn delete(&self, id: &SessionId) -> Result<()> {
        let Some(path) = self.path(id) else { return Ok(()) };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("delete", &path, &error)),
            _ => Ok(()),
        }
    }

    /// Returns the conversation of a session so far, for example as the context of a model.
    ///
    /// # Errors
    ///
    /// `-32002` for an unknown session.
    pub async fn conversation(&self, id: &SessionId) -> Result<Conversation> {
        let path = self.path(id).ok_or_else(unknown)?;
        blocking(move || {
            let file = File::open(&path).map_err(|_| unknown())?;
            let mut conversation = Conversation::default();
            for line in BufReader::new(file).split(b'\n').skip(1).map_while(io::Result::ok) {
                if let Ok(update) = serde_json::from_slice(&line) {
                    conversation.apply(&update);
                }
            }
            Ok(conversation)
        })
        .await
    }

    /// Returns the file of a session. An id of a client must not name another file.
    fn path(&self, id: &SessionId) -> Option<PathBuf> {
        let id = id.as_str();
        let is_name = (1..=128).contains(&id.len())
            && !id.starts_with('.')
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        is_name.then(|| self.folder.join(format!("{id}.jsonl")))
    }
}

/// The file of a session that is kept. `None` after an error.
pub(crate) struct HistoryFile(Mutex<Option<File>>);

impl HistoryFile {
    fn open(path: &Path, options: &mut OpenOptions) -> Result<Self> {
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
        let file = options.open(path).map_err(|error| failed("open", path, &error))?;
        Ok(HistoryFile(Mutex::new(Some(file))))
    }

    /// Keeps a prompt.
    pub(crate) fn prompt(&self, blocks: &[ContentBlock]) {
        let id = Turn::new_message_id();
        for block in blocks {
            let chunk = ContentChunk::new(block.clone()).message_id(id.clone());
            self.write(&SessionUpdate::UserMessageChunk(chunk));
        }
    }

    /// Keeps an update that was sent, if it is part of the conversation.
    pub(crate) fn update(&self, update: &SessionUpdate) {
        if !matches!(
            update,
            SessionUpdate::CurrentModeUpdate(_)
                | SessionUpdate::ConfigOptionUpdate(_)
                | SessionUpdate::AvailableCommandsUpdate(_)
                | SessionUpdate::UsageUpdate(_)
                // The report of a prompt in version 2.
                | SessionUpdate::UserMessage(_)
        ) {
            self.write(update);
        }
    }

    fn write<T: serde::Serialize>(&self, value: &T) {
        let mut file = self.0.lock_unpoisoned();
        let Some(open) = &mut *file else { return };
        let written = serde_json::to_vec(value).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            open.write_all(&line)
        });
        if let Err(error) = written {
            tracing::error!(%error, "the history of a session cannot be written; the rest of it is not kept");
            *file = None;
        }
    }
}

/// Returns the updates that replay a conversation.
fn replay(conversation: &Conversation) -> Vec<SessionUpdate> {
    let mut updates: Vec<SessionUpdate> = Vec::new();
    for entry in conversation.entries() {
        if let Some(message) = entry.as_message() {
            let chunk = |block: &ContentBlock| {
                let mut chunk = ContentChunk::new(block.clone());
                chunk.message_id.clone_from(&message.id);
                match message.kind {
                    MessageKind::User => SessionUpdate::UserMessageChunk(chunk),
                    MessageKind::Thought => SessionUpdate::AgentThoughtChunk(chunk),
                    _ => SessionUpdate::AgentMessageChunk(chunk),
                }
            };
            updates.extend(message.content.iter().map(chunk));
        } else if let Some(call) = entry.as_tool_call() {
            let mut call = call.clone();
            if !call.status.is_final() {
                // Its process has ended.
                call.status = ToolCallStatus::Failed;
            }
            updates.push(call.into());
        }
    }
    updates.extend(conversation.plan().cloned().map(SessionUpdate::Plan));
    updates
}

/// Returns the entry of a file in the list, unless it is not one of a session or has no prompt.
fn info(path: &Path) -> Option<SessionInfo> {
    let mut lines = BufReader::new(File::open(path).ok()?).split(b'\n').map_while(io::Result::ok);
    let info: SessionInfo = serde_json::from_slice(&lines.next()?).ok()?;
    let prompt = lines.find_map(|line| match serde_json::from_slice(&line).ok()? {
        SessionUpdate::UserMessageChunk(chunk) => Some(chunk.content.as_text()?.to_owned()),
        _ => None,
    })?;
    Some(info.title(prompt.lines().next()?.chars().take(80).collect::<String>()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::other)?
}

fn unknown() -> Error {
    Error::not_found("there is no such session")
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> Error {
    Error::other(format!("cannot {verb} {} for the history of sessions: {error}", path.display()))
}
