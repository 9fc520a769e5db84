//! A process under watch: its memory, its descriptors, its children, and its end.

use std::fs;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::Result;

/// The interval between samples of a process' memory.
const EVERY: Duration = Duration::from_millis(10);
/// A process that takes more memory than this is ended by its scenario: the machine has to be left to others.
pub const TOO_LARGE_KIB: u64 = 2 * 1024 * 1024;

/// A process in a group of its own, which ends with this value.
pub struct ObservedProcess {
    child: Child,
    peak: Arc<AtomicU64>,
}

impl ObservedProcess {
    /// Starts it with pipes for stdin and stdout; stderr is thrown away unless the command says otherwise.
    pub fn start(command: &mut Command) -> Result<Self> {
        ObservedProcess::start_with(command, Stdio::null())
    }

    /// [`start`](Self::start) with another stderr.
    pub fn start_with(command: &mut Command, stderr: Stdio) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let peak = Arc::new(AtomicU64::new(0));
        std::thread::spawn({
            let (pid, peak) = (child.id(), peak.clone());
            // The kernel keeps the high-water mark, but not beyond the end of the process.
            move || {
                while let Some(kib) = status(pid, "VmHWM:") {
                    peak.fetch_max(kib, Relaxed);
                    std::thread::sleep(EVERY);
                }
            }
        });
        Ok(ObservedProcess { child, peak })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Our end of its stdin, once.
    pub fn stdin(&mut self) -> Result<ChildStdin> {
        self.child.stdin.take().ok_or_else(|| "its stdin was taken".into())
    }

    /// Our end of its stdout, once.
    pub fn stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().ok_or_else(|| "its stdout was taken".into())
    }

    /// The most memory it had at once so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let now = status(self.pid(), "VmHWM:").unwrap_or_default();
        self.peak.fetch_max(now, Relaxed).max(now)
    }

    /// The memory it has now, in KiB; 0 once it is gone.
    pub fn memory_kib(&self) -> u64 {
        status(self.pid(), "VmRSS:").unwrap_or_default()
    }

    /// Waits for its end, at most this long; `None` if it is still there.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if begun.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for ObservedProcess {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Does all the jobs, so many at once; what came of each, in their order.
pub fn side_by_side<J: Sync, T: Send>(
    jobs: &[J],
    at_once: usize,
    work: impl Fn(&J) -> Result<T> + Sync,
) -> Vec<Result<T, String>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let outcome = work(job).map_err(|error| error.to_string());
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// A number from the status of a process.
pub fn status(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// KiB as MiB, for people.
pub fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}
