//! The codes of messages and tasks that have failed, beside those of the store and of the agents.

use crate::gateway::RefusalCode;

/// Declares the codes, and the list of all.
macro_rules! failure_codes {
    ($($(#[$doc:meta])* $name:ident = $code:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $code;)*

        #[cfg(test)]
        const ALL: &[&str] = &[$($name,)*];
    };
}

failure_codes! {
    /// The agent has failed, or its answer cannot be read.
    AGENT_FAILED = "agent_failed";
    /// The turn of a message was cancelled.
    CANCELLED = "cancelled";
    /// The server has failed.
    INTERNAL = RefusalCode::Internal.as_str();
    /// The agent requires a login.
    LOGIN_REQUIRED = "login_required";
    /// The agent that has delegated a task is gone.
    PARENT_LOST = "parent_lost";
    /// A limit on the sessions or the disk of a principal or of the server is reached.
    OVERLOADED = RefusalCode::Overloaded.as_str();
    /// The agent refuses to work on a task.
    REFUSED = "refused";
    /// The work took too long.
    TIMEOUT = RefusalCode::Timeout.as_str();
    /// The answer is larger than a limit.
    TOO_LARGE = RefusalCode::TooLarge.as_str();
    /// A message has no other code.
    UNDELIVERABLE = "undeliverable";
    /// The agent cannot be reached, or does not start.
    UNREACHABLE = RefusalCode::Unreachable.as_str();
}

#[cfg(test)]
mod tests {
    use duologue_store::TaskFailure;

    use super::*;

    const CHAPTER: &str = include_str!("../../../../docs/src/rest.md");

    /// Returns the cells of the rows of a table, which begins with this line.
    fn rows(head: &str) -> Vec<Vec<String>> {
        let (_, table) = CHAPTER.split_once(head).expect("the table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
            .collect()
    }

    #[test]
    fn the_chapter_has_each_code_of_a_refusal() {
        let documented: Vec<_> = rows("| `code` | status | `retryable` | when |")
            .into_iter()
            .map(|row| {
                assert!(row.len() == 4 && !row[3].is_empty(), "{row:?}");
                row[..3].join(" ")
            })
            .collect();
        let mut declared: Vec<_> = RefusalCode::ALL
            .iter()
            .map(|code| format!("`{}` {} {}", code.as_str(), code.status(), code.is_retryable()))
            .collect();
        declared.sort_by_key(|row| row.split(' ').nth(1).map(str::to_owned));
        assert_eq!(documented, declared);
    }

    #[test]
    fn the_chapter_has_each_code_of_a_failure() {
        let documented: Vec<_> =
            rows("| `error.code` | when |").into_iter().map(|row| row[0].clone()).collect();
        let declared = ALL.iter().chain(TaskFailure::CODES);
        let mut declared: Vec<_> = declared.map(|code| format!("`{code}`")).collect();
        declared.sort();
        assert_eq!(documented, declared);
    }
}
