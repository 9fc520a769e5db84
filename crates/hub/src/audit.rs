//! The audit lines: refused access, and answers to questions.
//!
//! Each is one `tracing` event of the target [`TARGET`]. Texts that a client has chosen are recorded as strings and
//! never as `Display`, so that a subscriber writes their control characters escaped.

use crate::input::QuestionDecision;

/// The target of the events.
const TARGET: &str = "duologue::audit";
/// The most bytes of a path that are recorded.
#[cfg(feature = "gateway")]
const PATH_BYTES: usize = 512;

/// Records a request that was refused. `principal` is absent if its key was not valid.
#[cfg(feature = "gateway")]
pub(crate) fn refused(principal: Option<&str>, method: &str, path: &str, code: &str) {
    let path = duologue_rpc::raw_message::beginning(path, PATH_BYTES);
    tracing::warn!(target: TARGET, event = "access_refused", principal, method, path, code);
}

/// Records a login of the page.
#[cfg(feature = "page")]
pub(crate) fn logged_in(principal: &str) {
    tracing::info!(target: TARGET, event = "page_login", principal);
}

/// The place of a question.
pub(crate) struct AuditedQuestion<'a> {
    pub(crate) agent: &'a str,
    pub(crate) session: Option<&'a str>,
    pub(crate) task: Option<&'a str>,
    pub(crate) question: &'a str,
}

/// Records the answer of a principal to a question of an agent.
pub(crate) fn answered(principal: &str, place: &AuditedQuestion<'_>, decision: &QuestionDecision) {
    let AuditedQuestion { agent, session, task, question } = place;
    let QuestionDecision { option, is_allowed } = decision;
    let option = option.as_str();
    tracing::info!(
        target: TARGET,
        event = "question_answered",
        principal,
        agent,
        session,
        task,
        question,
        option,
        allowed = is_allowed,
    );
}
