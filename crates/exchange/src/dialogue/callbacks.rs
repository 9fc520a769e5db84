//! The user's code that runs in the middle of sending or taking a message: keys, forms of parameters, and a tap that is
//! shown a receipt.
//!
//! Keys and forms may look at any dialogue, since no lock is held meanwhile. Sending or receiving from a callback would
//! wait for the message that waits for the callback, so that is an error.

use std::cell::Cell;

use super::error::Error;

thread_local! {
    /// The callback that this thread is in.
    static RUNNING: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Restores the callback around one that has returned or panicked.
struct Outer(Option<&'static str>);

impl Drop for Outer {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// Calls the user's code; `name` is for the error.
pub(crate) fn call<T>(name: &'static str, callback: impl FnOnce() -> T) -> T {
    let _outer = Outer(RUNNING.replace(Some(name)));
    callback()
}

/// Returns true inside a callback, when locks of dialogues may be held by this thread.
pub(crate) fn is_inside() -> bool {
    RUNNING.get().is_some()
}

/// Refuses to send or receive from within a callback.
pub(crate) fn refuse() -> Result<(), Error> {
    RUNNING.get().map_or(Ok(()), |callback| Err(Error::InCallback { callback }))
}
