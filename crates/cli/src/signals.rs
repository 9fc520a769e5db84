//! The signals that ask this process to end.
//!
//! A thread of their own hears them, so that a command which is stuck in a write that nobody takes still ends.
//!
//! SIGXFSZ is caught too, and nothing waits for it: a write beyond `ulimit -f` then fails with an error, and the
//! conversation goes on. It is caught and not ignored, since programs that are started inherit what is ignored.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::runtime;

/// How long a command may leave a signal untaken before it is ended without being asked.
const PATIENCE: Duration = Duration::from_millis(500);
/// So many signals may wait to be taken.
const WAITING: usize = 16;

/// A signal that asks this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The terminal is gone.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// Somebody wants this process gone.
    Terminate,
}

impl Signal {
    /// What a shell says of a process that it ended: 128 and its number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Signal::Hangup => 129,
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

type LastResort = Box<dyn FnOnce() + Send>;

/// The signals, one after the other. One that is not taken within half a second ends the process.
pub(crate) struct Signals {
    signals: mpsc::Receiver<Signal>,
    last_resort: Arc<Mutex<Option<LastResort>>>,
}

impl Signals {
    /// Begins to listen. From here on no signal ends this process by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        let (sender, signals) = mpsc::channel(WAITING);
        let last_resort = Arc::new(Mutex::new(None::<LastResort>));
        let resort = last_resort.clone();
        let runtime = runtime::current_thread()?;
        let mut heard = {
            let _entered = runtime.enter();
            system::Heard::new()?
        };
        std::thread::Builder::new().name("duologue-signals".into()).spawn(move || {
            runtime.block_on(async move {
                let mut heard_last = None;
                loop {
                    tokio::select! {
                        signal = heard.next() => {
                            let _ = sender.try_send(signal);
                            heard_last = Some((signal, Instant::now() + PATIENCE));
                        }
                        signal = patience(heard_last) => {
                            heard_last = None;
                            if sender.is_closed() || sender.capacity() < WAITING {
                                if let Some(act) = resort.lock().unwrap_or_else(PoisonError::into_inner).take() {
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

    /// Waits for the next one.
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

    /// What has to be done, and quickly, before the process is ended without being asked.
    pub(crate) fn last_resort(&self, act: impl FnOnce() + Send + 'static) {
        *self.last_resort.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
    }
}

async fn patience(heard: Option<(Signal, Instant)>) -> Signal {
    match heard {
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

    pub(super) struct Heard {
        ends: [Each; 3],
        /// Holds the handler; the signal itself is passed over.
        _file_size: Each,
    }

    impl Heard {
        pub(super) fn new() -> std::io::Result<Self> {
            let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
            let [hangup, interrupt, terminate] = kinds.map(signal);
            let file_size = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
            Ok(Heard { ends: [hangup?, interrupt?, terminate?], _file_size: file_size })
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

    pub(super) struct Heard;

    impl Heard {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(Heard)
        }

        pub(super) async fn next(&mut self) -> Signal {
            match tokio::signal::ctrl_c().await {
                Ok(()) => Signal::Interrupt,
                Err(_) => std::future::pending().await,
            }
        }
    }
}
