//! Guards for user code that runs while a message is sent or received: key stores and parameter types.
//!
//! Key stores and parameter types may read any dialogue, because no lock is taken around them.
//! Sending or receiving there would wait for the message that waits for the callback, so it is an
//! error.

use std::cell::Cell;

use super::error::Error;

thread_local! {
    /// The callback that this thread is in.
    static RUNNING: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Restores the outer callback after the inner one has returned or panicked.
struct Outer(Option<&'static str>);

impl Drop for Outer {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// Runs a callback. `name` appears in the error of [`refuse`].
pub(crate) fn call<T>(name: &'static str, callback: impl FnOnce() -> T) -> T {
    let _outer = Outer(RUNNING.replace(Some(name)));
    callback()
}

/// Returns true inside a callback, where the message that calls it is not finished.
pub(crate) fn is_inside() -> bool {
    RUNNING.get().is_some()
}

/// Returns an error if a callback sends or receives.
pub(crate) fn refuse() -> Result<(), Error> {
    RUNNING.get().map_or(Ok(()), |callback| Err(Error::InCallback { callback }))
}
