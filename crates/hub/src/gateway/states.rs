//! The names of states in the REST interface and in callbacks.

use duologue_schema::envelope::TaskState;

use crate::gateway::types::RestTaskStatus;

/// Returns the status of a task.
pub(crate) fn task_status(state: &TaskState) -> RestTaskStatus {
    match state {
        TaskState::Submitted => RestTaskStatus::Pending,
        TaskState::Completed => RestTaskStatus::Completed,
        TaskState::Cancelled => RestTaskStatus::Cancelled,
        TaskState::Failed | TaskState::Rejected | TaskState::Expired => RestTaskStatus::Failed,
        // Working, with or without a question, cancelling, or a state of a later version.
        _ => RestTaskStatus::Processing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_status() {
        for (state, status) in [
            (TaskState::Submitted, RestTaskStatus::Pending),
            (TaskState::Working, RestTaskStatus::Processing),
            (TaskState::InputRequired, RestTaskStatus::Processing),
            (TaskState::Cancelling, RestTaskStatus::Processing),
            (TaskState::Completed, RestTaskStatus::Completed),
            (TaskState::Failed, RestTaskStatus::Failed),
            (TaskState::Cancelled, RestTaskStatus::Cancelled),
            (TaskState::Rejected, RestTaskStatus::Failed),
            (TaskState::Expired, RestTaskStatus::Failed),
        ] {
            assert_eq!(task_status(&state), status, "{state:?}");
        }
    }
}
