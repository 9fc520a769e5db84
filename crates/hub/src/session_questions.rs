//! The open questions of a session, for a user who has not opened it.

use duologue_schema::SessionId;
use duologue_store::{Log as _, LogRecord};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::hub::{Hub, read_behind_damage};
use crate::record::ClientKey;
use crate::session_task::SessionCommand;

/// The reason for which an answer to a question was not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerFault {
    /// The question is not open.
    #[error("the session has no such open question")]
    NotOpen,
    /// The answer names no question, and several are open.
    #[error("the session has several open questions; name one")]
    Several,
    /// The answer does not fit the question, which stays open. The reason names the member.
    #[error("the answer does not fit the question: {0}")]
    Invalid(String),
    /// The session is that of a task or a message, whose worker answers.
    #[error("the session runs a task or a message; answer the questions of a task at the task")]
    Work,
    /// The log of the session has failed.
    #[error("{0}")]
    Session(#[from] Error),
}

impl Hub {
    /// Returns true if a question of a session waits for an answer.
    #[cfg(feature = "gateway")]
    pub(crate) fn has_open_question(&self, principal: &str, id: &str) -> bool {
        let live = self.shared.live(&principal.into(), &SessionId::from(id));
        live.is_some_and(|live| !live.questions.borrow().is_empty())
    }

    /// Returns the records of the open questions of a session, the oldest first: at most `max_bytes` of them but at least one.
    /// A session that does not run, or that runs a task or a message, has none.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the log cannot be read.
    pub async fn open_questions(
        &self,
        principal: &str,
        id: &str,
        max_bytes: usize,
    ) -> Result<Vec<LogRecord>, Error> {
        let id = SessionId::from(id);
        let Some(live) = self.shared.live(&principal.into(), &id) else { return Ok(Vec::new()) };
        let positions = live.questions.borrow().clone();
        let Some(log) = live.log.upgrade().filter(|_| !positions.is_empty()) else { return Ok(Vec::new()) };
        let read = move || -> Result<Vec<LogRecord>, Error> {
            let (mut records, mut bytes) = (Vec::new(), 0);
            for position in positions {
                let page = read_behind_damage(&id, position - 1, |after| log.read(after, 1))?;
                let record = page.records.into_iter().find(|record| record.position.number() == position);
                bytes += record.as_ref().map_or(0, |record| record.line.len());
                if bytes > max_bytes && !records.is_empty() {
                    break;
                }
                records.extend(record);
            }
            Ok(records)
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Error::Closed)?
    }

    /// Answers an open question of a session as one more client, which the log names: a permission with `{"optionId": "…"}` or
    /// `null`, an elicitation with its result. `question` is the position of the question, or `None` for the only one. Returns
    /// the position when the answer survives a power cut.
    ///
    /// # Errors
    ///
    /// [`AnswerFault`]
    ///
    /// # Cancel safety
    ///
    /// The answer may count if the future is dropped.
    pub async fn answer_question(
        &self,
        principal: &str,
        id: &str,
        client: ClientKey,
        question: Option<u64>,
        answer: Value,
    ) -> Result<u64, AnswerFault> {
        self.give_answer(principal, id, client, (question, false), answer).await
    }

    /// Answers a question of the session of a task, which its worker has.
    #[cfg(feature = "gateway")]
    pub(crate) async fn answer_for_work(
        &self,
        principal: &str,
        id: &str,
        client: ClientKey,
        question: u64,
        answer: Value,
    ) -> Result<u64, AnswerFault> {
        self.give_answer(principal, id, client, (Some(question), true), answer).await
    }

    async fn give_answer(
        &self,
        principal: &str,
        id: &str,
        client: ClientKey,
        (question, is_of_work): (Option<u64>, bool),
        answer: Value,
    ) -> Result<u64, AnswerFault> {
        let live = self.shared.live(&principal.into(), &SessionId::from(id)).ok_or(AnswerFault::NotOpen)?;
        let (done, given) = oneshot::channel();
        let command = SessionCommand::Answer { client, question, is_of_work, answer, done };
        live.commands.send(command).await.map_err(|_| AnswerFault::NotOpen)?;
        let given = given.await.map_err(|_| AnswerFault::NotOpen)??;
        let written = live.visible.clone().wait_for(|visible| *visible >= given.end).await.is_ok();
        if written { Ok(given.question) } else { Err(live.end().into()) }
    }
}
