//! Builds tokio runtimes. If no file descriptors are left, tokio panics; this module returns an error.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Builds a runtime that runs on the calling thread.
///
/// # Errors
///
/// An error that names `ulimit -n` when the process may not open enough files.
pub(crate) fn current_thread() -> io::Result<Runtime> {
    build(Builder::new_current_thread())
}

/// Builds a runtime with `threads` threads of its own.
///
/// # Errors
///
/// As [`current_thread`].
pub(crate) fn multi_thread(threads: usize) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads);
    build(builder)
}

fn build(mut builder: Builder) -> io::Result<Runtime> {
    system::expect_descriptors()?;
    builder.enable_all().build()
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::os::unix::net::UnixStream;

    /// Half the number of descriptors that have to be free. Building a runtime opens at most seven.
    const PAIRS: usize = 4;

    /// Opens as many descriptors as a runtime needs, and closes them again.
    pub(super) fn expect_descriptors() -> io::Result<()> {
        let opened: io::Result<Vec<_>> = (0..PAIRS).map(|_| UnixStream::pair()).collect();
        opened.map(drop).map_err(|error| {
            let message =
                format!("cannot start, {} more open files are needed: {error}; raise `ulimit -n`", 2 * PAIRS);
            io::Error::new(error.kind(), message)
        })
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn expect_descriptors() -> std::io::Result<()> {
        Ok(())
    }
}
