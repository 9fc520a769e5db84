//! Signals that request the end of this process.
//!
//! A thread of their own receives them, so that a command ends even if it is blocked in a write.
//!
//! SIGXFSZ is caught and discarded: a write beyond `ulimit -f` then fails with an error, and the conversation goes
//! on. It is not ignored instead, since child processes inherit ignored signals.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::runtime;

/// The time after which an unhandled signal ends the process.
const HANDLING_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of signals that can be pending.
const QUEUE_LENGTH: usize = 16;

/// A signal that requests the end of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The terminal was closed.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// A request to terminate.
    Terminate,
}

impl Signal {
    /// Returns the exit code of a shell for a process that the signal ended: 128 plus its number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Signal::Hangup => 129,
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

type LastResort = Box<dyn FnOnce() + Send>;

/// The received signals, in order. One that is not handled within two seconds ends the process.
pub(crate) struct Signals {
    signals: mpsc::Receiver<Signal>,
    last_resort: Arc<Mutex<Option<LastResort>>>,
}

impl Signals {
    /// Installs the handlers. After that no signal ends this process directly.
    pub(crate) fn listen() -> io::Result<Self> {
        let (sender, signals) = mpsc::channel(QUEUE_LENGTH);
        let last_resort = Arc::new(Mutex::new(None::<LastResort>));
        let resort = last_resort.clone();
        let runtime = runtime::current_thread()?;
        let mut handlers = {
            let _entered = runtime.enter();
            system::SignalHandlers::new()?
        };
        std::thread::Builder::new().name("duologue-signals".into()).spawn(move || {
            runtime.block_on(async move {
                let mut last_received = None;
                loop {
                    tokio::select! {
                        signal = handlers.next() => {
                            let _ = sender.try_send(signal);
                            last_received = Some((signal, Instant::now() + HANDLING_TIMEOUT));
                        }
                        signal = handling_timeout(last_received) => {
                            last_received = None;
                            if sender.is_closed() || sender.capacity() < QUEUE_LENGTH {
                                if let Some(act) = resort.lock_unpoisoned().take() {
                                    act();
                                }
                                std::process::exit(signal.code().into());
                            }
                        }
                    }
                }
            });
        })?;
        Ok(Signals { signals, last_resort })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.signals.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Runs a part of a command until it or a signal ends it. The command ends with the code of that signal.
    ///
    /// # Errors
    ///
    /// The signal. The part is dropped then.
    pub(crate) async fn interrupt<T>(&mut self, running: impl Future<Output = T>) -> Result<T, Signal> {
        tokio::select! {
            ended = running => Ok(ended),
            signal = self.next() => Err(signal),
        }
    }

    /// Sets a short action to run before an unhandled signal ends the process.
    pub(crate) fn last_resort(&self, act: impl FnOnce() + Send + 'static) {
        *self.last_resort.lock_unpoisoned() = Some(Box::new(act));
    }
}

async fn handling_timeout(received: Option<(Signal, Instant)>) -> Signal {
    match received {
        Some((signal, until)) => {
            tokio::time::sleep_until(until).await;
            signal
        }
        None => std::future::pending().await,
    }
}

#[cfg(unix)]
mod system {
    use tokio::signal::unix::{Signal as Each, SignalKind, signal};

    use super::Signal;

    pub(super) struct SignalHandlers {
        ends: [Each; 3],
        /// Keeps the handler installed; the signal itself is discarded.
        _file_size: Each,
    }

    impl SignalHandlers {
        pub(super) fn new() -> std::io::Result<Self> {
            let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
            let [hangup, interrupt, terminate] = kinds.map(signal);
            let file_size = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
            Ok(SignalHandlers { ends: [hangup?, interrupt?, terminate?], _file_size: file_size })
        }

        pub(super) async fn next(&mut self) -> Signal {
            let [hangup, interrupt, terminate] = &mut self.ends;
            tokio::select! {
                _ = hangup.recv() => Signal::Hangup,
                _ = interrupt.recv() => Signal::Interrupt,
                _ = terminate.recv() => Signal::Terminate,
            }
        }
    }
}

#[cfg(not(unix))]
mod system {
    use super::Signal;

    pub(super) struct SignalHandlers;

    impl SignalHandlers {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(SignalHandlers)
        }

        pub(super) async fn next(&mut self) -> Signal {
            match tokio::signal::ctrl_c().await {
                Ok(()) => Signal::Interrupt,
                Err(_) => std::future::pending().await,
            }
        }
    }
}
