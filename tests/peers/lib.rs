//! Peers without an SDK, and the processes that a test watches: the code that test targets share with the programs
//! of `bin/`. The peers use none of our crates. They are independent witnesses of what goes over the wire.

pub mod hostile_lines;
pub mod process;
pub mod raw_client;

use std::fmt;

/// The result of anything that can fail in a harness.
pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A wrong action of the subject: an error of a scenario that counts as its result. Any other error is the
/// harness's own.
#[derive(Debug)]
pub struct Failed(String);

impl Failed {
    /// Returns the error of a scenario.
    pub fn because<T>(what: impl Into<String>) -> Result<T> {
        Err(Failed(what.into()).into())
    }

    /// Separates a failure of the subject from an error of the harness.
    pub fn of<T>(outcome: Result<T>) -> Result<Result<T, String>> {
        match outcome {
            Ok(value) => Ok(Ok(value)),
            Err(error) => error.downcast::<Failed>().map(|failed| Err(failed.0)),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}
