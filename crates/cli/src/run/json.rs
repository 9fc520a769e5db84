//! The session as JSON for scripts, one object a line:
//!
//! - `{"sessionId":…,"update":{…}}`: a session update, as the protocol has it;
//! - `{"sessionId":…,"outcome":{"stopReason":…}}`: the end of a turn, the answer to its prompt;
//! - `{"sessionId":…,"error":{"message":…}}`: the end of a turn that failed, or of everything; with `code` and
//!   `data` if the agent answered so. The id is null if there is no session yet;
//! - `{"sessionId":…,"write":{"path":…,"bytes":…,"outcome":…}}`: a file that the agent wrote through this program,
//!   with the outcome `done`, `refused`, `failed` or `unfinished`, and a `reason` for the two in the middle;
//! - `{"sessionId":…,"terminal":{"command":…,"args":…,"env":…,"cwd":…,"outcome":…}}`: a program that the agent
//!   started, with the same outcomes;
//! - `{"sessionId":…,"answer":{"toolCallId":…,"title":…,"kind":…,"command":…,"outcome":…,"option":…,"by":…}}`: the
//!   answer to a question, with the outcome `allowed`, `rejected`, `cancelled` or `refused`; `by` is `rule` (with
//!   the `rule`) or `nobody`. A form has a `message` in place of the tool call;
//! - `{"sessionId":…,"settings":{"modes":…,"configOptions":…}}`: the modes and options of the session, as the
//!   protocol has them; only with `--settings`.

use std::io;

use duologue_client::Error;
use duologue_schema::{
    PromptResponse, SessionConfigOption, SessionId, SessionModeState, SessionState, SessionUpdate,
};
use serde::Serialize;

use super::audit::AuditEntry;
use crate::error;
use crate::ui::json_line;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutputLine<'a, B> {
    session_id: Option<&'a SessionId>,
    #[serde(flatten)]
    body: B,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum OutputBody<'a> {
    Update(&'a SessionUpdate),
    Outcome(&'a PromptResponse),
    Error(serde_json::Value),
    #[serde(rename_all = "camelCase")]
    Settings {
        #[serde(skip_serializing_if = "Option::is_none")]
        modes: &'a Option<SessionModeState>,
        config_options: &'a [SessionConfigOption],
    },
}

/// Writes an update.
pub(super) fn update(session: &SessionId, update: &SessionUpdate) -> io::Result<()> {
    write(Some(session), OutputBody::Update(update))
}

/// Writes the modes and options of the session.
pub(super) fn settings(session: &SessionId, state: &SessionState) -> io::Result<()> {
    let body = OutputBody::Settings { modes: &state.modes, config_options: &state.config_options };
    write(Some(session), body)
}

/// Writes an entry of the audit trail.
pub(super) fn audit(entry: &AuditEntry) -> io::Result<()> {
    write(entry.session.as_ref(), entry.object())
}

/// Writes the end of a turn.
pub(super) fn outcome(session: &SessionId, outcome: &Result<PromptResponse, Error>) -> io::Result<()> {
    let body = match outcome {
        Ok(response) => OutputBody::Outcome(response),
        Err(error) => OutputBody::Error(value(error)?),
    };
    write(Some(session), body)
}

/// Writes the error that ended the command.
pub(super) fn failure(session: Option<&SessionId>, error: &error::Error) -> io::Result<()> {
    let value = match error {
        error::Error::Agent(error) => value(error)?,
        error => serde_json::json!({ "message": error.to_string() }),
    };
    write(session, OutputBody::Error(value))
}

fn value(error: &Error) -> serde_json::Result<serde_json::Value> {
    match error {
        Error::Response(error) => serde_json::to_value(error),
        error => Ok(serde_json::json!({ "message": error.to_string() })),
    }
}

fn write(session_id: Option<&SessionId>, body: impl Serialize) -> io::Result<()> {
    json_line(&mut io::stdout().lock(), &OutputLine { session_id, body })
}
