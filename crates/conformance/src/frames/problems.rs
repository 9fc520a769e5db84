//! The problems of one frame.

use std::fmt::Display;

use super::{Problem, ProblemLevel};

/// The warnings of a frame that are kept. A line of some MB can have a million of them.
const MAX_WARNINGS: usize = 100;

/// Collects the problems of a frame: all errors, of which each rule finds one, and the first warnings.
#[derive(Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    warnings: usize,
    /// Set if members that were left out and read as their defaults are no problem.
    allows_additions: bool,
}

impl Problems {
    /// Creates an empty list that ignores members that were left out and read as their defaults.
    pub(super) fn without_additions() -> Self {
        Problems { allows_additions: true, ..Problems::default() }
    }

    /// Adds an error.
    pub(super) fn error(&mut self, path: impl Display, problem: impl Display) {
        self.list.push(Problem::error(path.to_string(), problem.to_string()));
    }

    /// Adds a warning. It is formatted only if it is kept.
    pub(super) fn warning(&mut self, path: impl Display, problem: impl Display) {
        if self.warnings < MAX_WARNINGS {
            self.list.push(Problem::warning(path.to_string(), problem.to_string()));
        }
        self.warnings += 1;
    }

    /// Adds a warning of a member that was left out and reads as its default.
    pub(super) fn addition(&mut self, path: impl Display, reads_as: impl Display) {
        if !self.allows_additions {
            self.warning(path, format_args!("was left out and reads as {reads_as}"));
        }
    }

    /// Adds a problem.
    pub(super) fn push(&mut self, problem: Problem) {
        match problem.level {
            ProblemLevel::Error => self.list.push(problem),
            ProblemLevel::Warning => self.warning(problem.path, problem.problem),
        }
    }

    /// Adds all problems of another list.
    pub(super) fn extend(&mut self, other: Problems) {
        let omitted = other.omitted();
        other.list.into_iter().for_each(|problem| self.push(problem));
        self.warnings += omitted;
    }

    /// Returns the number of problems, with those that are not kept.
    pub(super) fn len(&self) -> usize {
        self.list.len() + self.omitted()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn first_error(self) -> Option<Problem> {
        self.list.into_iter().find(|problem| problem.level == ProblemLevel::Error)
    }

    /// Returns the problems, and a last one with the number of those that were not kept.
    pub(super) fn into_vec(mut self) -> Vec<Problem> {
        match self.omitted() {
            0 => {}
            omitted => self.list.push(Problem::warning("$", format!("and {omitted} more warnings"))),
        }
        self.list
    }

    /// Returns the number of warnings that are not kept.
    fn omitted(&self) -> usize {
        self.warnings.saturating_sub(MAX_WARNINGS)
    }
}
