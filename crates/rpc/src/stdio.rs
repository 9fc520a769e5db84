//! The stdin and stdout of this process as a transport (rule 9), with the operating-system code for it.
//!
//! The descriptors are moved before the first byte is read: fd 0 becomes `/dev/null` and fd 1 becomes
//! stderr. Therefore a `println!`, a C library or a child process can neither write into the
//! connection nor read from it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::transport::Transport;

/// The stdin and stdout of this process, reserved for a connection.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stdio {
    /// The transport over both.
    pub transport: Transport,
    /// Detects the end of the input, even while nothing reads it.
    pub end: InputWatch,
    /// Detects that nothing reads the output any more, even while nothing is written.
    pub output: OutputWatch,
}

impl Stdio {
    /// Takes stdin and stdout. This works once per process.
    ///
    /// On Linux, pipes are reopened through `/proc/self/fd`, because `O_NONBLOCK` on the original would
    /// affect the parent, which shares it. If that fails, and for files and terminals, blocking
    /// threads read and write.
    ///
    /// # Errors
    ///
    /// Fails on the second call, and if a descriptor cannot be duplicated.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O enabled.
    pub fn take() -> io::Result<Stdio> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(io::Error::other(
                "stdin and stdout are in use by another connection of this process",
            ));
        }
        system::take()
    }
}

/// Detects the end of the input from outside the reader.
#[derive(Debug)]
pub struct InputWatch(system::EndWatch);

/// The reason why [`InputWatch::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputEndReason {
    /// All writers of the input have closed it, or the file was read to its end.
    Input,
    /// The process that was the parent when stdin was taken has exited, while another process keeps the
    /// input open. It is unknown if that process speaks the protocol.
    Parent,
}

impl InputWatch {
    /// Blocks this thread until the input ends.
    ///
    /// The input ends when all its writers have closed it, or when a file was read to its end. On Linux
    /// it also ends when the process exits that was the parent at the call of [`Stdio::take`]. On
    /// devices, and on systems other than Unix, the end cannot be detected and this never returns.
    ///
    /// The parent may differ from the process that started this one. If that process exited before, as
    /// some launchers do, the parent is the first process or the nearest subreaper, such as
    /// `systemd --user`. The first process of the machine or container is not watched, and neither is a
    /// parent in another container.
    ///
    /// Call this on a thread of its own, to end a process whose runtime is stuck.
    pub fn wait(&self) -> InputEndReason {
        self.0.wait()
    }

    /// Ignores the parent, so that only the input can end.
    #[must_use]
    pub fn without_parent(self) -> Self {
        InputWatch(self.0.without_parent())
    }
}

/// Detects from outside the writer that nothing reads the output any more. It keeps the output open until it is dropped.
#[derive(Debug)]
pub struct OutputWatch(system::ReaderWatch);

impl OutputWatch {
    /// Returns true if all readers of the output have closed it. For files, and on systems other than Unix, it is
    /// always false.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.0.is_unread()
    }
}

/// Blocks the thread forever.
fn never() -> ! {
    loop {
        std::thread::park();
    }
}

#[cfg(unix)]
mod system {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::net::UnixStream as StdUnixStream;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{FileType, OFlags, fstat, tell};
    use rustix::io::fcntl_dupfd_cloexec;
    use rustix::stdio::{dup2_stdin, dup2_stdout};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::UnixStream;
    use tokio::net::unix::pipe;

    use super::{InputEndReason, InputWatch, OutputWatch, Stdio, never};
    use crate::transport::Transport;

    /// The interval at which the position in a file is polled. Files have no event to wait for.
    const FILE_POLL: Duration = Duration::from_millis(100);

    type Input = Box<dyn AsyncRead + Send + Unpin>;
    type Output = Box<dyn AsyncWrite + Send + Unpin>;

    pub(super) fn take() -> io::Result<Stdio> {
        // Private copies above the three standard descriptors, closed in child processes.
        let input = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        let end = EndWatch { input: fcntl_dupfd_cloexec(&input, 3)?, parent: parent() };
        let watch = OutputWatch(ReaderWatch { output: fcntl_dupfd_cloexec(&output, 3)? });
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(rustix::stdio::stderr())?;
        let (output, at_once) = writer(output)?;
        let transport = Transport::new(reader(input)?, output);
        let transport = if at_once { transport.writes_at_once() } else { transport };
        Ok(Stdio { transport, end: InputWatch(end), output: watch })
    }

    fn kind(fd: &OwnedFd) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
    }

    fn reopened(fd: &OwnedFd, write: bool) -> io::Result<File> {
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new()
            .read(!write)
            .write(write)
            .custom_flags(nonblocking)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
    }

    fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
        // Node gives its child processes socket pairs. Any stream socket works like one.
        let socket = StdUnixStream::from(fd);
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)
    }

    fn reader(fd: OwnedFd) -> io::Result<Input> {
        Ok(match kind(&fd)? {
            FileType::Fifo => match reopened(&fd, false).and_then(pipe::Receiver::from_file) {
                Ok(pipe) => Box::new(pipe),
                Err(_) => Box::new(tokio::fs::File::from_std(fd.into())),
            },
            FileType::Socket => Box::new(socket(fd)?),
            FileType::CharacterDevice => Box::new(Terminal(tokio::fs::File::from_std(fd.into()))),
            _ => Box::new(tokio::fs::File::from_std(fd.into())),
        })
    }

    /// A terminal. A hang-up, which the system reports as an error, is the end of the input.
    struct Terminal(tokio::fs::File);

    impl AsyncRead for Terminal {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf).map(|read| match read {
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(()),
                read => read,
            })
        }
    }

    /// Returns the output, and true if senders may write to it.
    fn writer(fd: OwnedFd) -> io::Result<(Output, bool)> {
        Ok(match kind(&fd)? {
            FileType::Fifo => match reopened(&fd, true).and_then(pipe::Sender::from_file) {
                Ok(pipe) => (Box::new(pipe), true),
                Err(_) => (Box::new(tokio::fs::File::from_std(fd.into())), false),
            },
            FileType::Socket => (Box::new(socket(fd)?), true),
            _ => (Box::new(tokio::fs::File::from_std(fd.into())), false),
        })
    }

    #[derive(Debug)]
    pub(super) struct EndWatch {
        input: OwnedFd,
        /// Becomes readable when the parent exits; `None` if that cannot be detected.
        parent: Option<OwnedFd>,
    }

    #[derive(Debug)]
    pub(super) struct ReaderWatch {
        output: OwnedFd,
    }

    impl ReaderWatch {
        pub(super) fn is_unread(&self) -> bool {
            // No event is awaited except the ones that are always reported: a hang-up and an error.
            let mut watched = [PollFd::new(&self.output, PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut watched, Some(&now)).is_ok()
                && watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
        }
    }

    /// Opens the current parent process. Its id alone is not enough, because ids are reused.
    #[cfg(target_os = "linux")]
    fn parent() -> Option<OwnedFd> {
        use rustix::process::{PidfdFlags, getppid, pidfd_open};
        let parent = getppid()?;
        // The first process is not watched: it starts services, and it adopts orphans.
        if parent.is_init() {
            return None;
        }
        let watched = pidfd_open(parent, PidfdFlags::empty()).ok()?;
        // The parent may have exited between the two calls and its id may have been reused.
        (getppid() == Some(parent)).then_some(watched)
    }

    #[cfg(not(target_os = "linux"))]
    fn parent() -> Option<OwnedFd> {
        None
    }

    impl EndWatch {
        pub(super) fn without_parent(self) -> Self {
            EndWatch { parent: None, ..self }
        }

        pub(super) fn wait(&self) -> InputEndReason {
            #[cfg(target_os = "linux")]
            let half_closed = PollFlags::RDHUP;
            #[cfg(not(target_os = "linux"))]
            let half_closed = PollFlags::empty();
            while kind(&self.input).is_ok_and(|kind| kind == FileType::RegularFile) {
                // The position in the file is shared with the reader.
                let (Ok(read), Ok(file)) = (tell(&self.input), fstat(&self.input)) else { break };
                if read >= file.st_size.cast_unsigned() {
                    return InputEndReason::Input;
                }
                std::thread::sleep(FILE_POLL);
            }
            // Data is not awaited: only a hang-up or the exit of the parent wakes this.
            let input = PollFd::new(&self.input, half_closed);
            let parent = self.parent.as_ref().map(|parent| PollFd::new(parent, PollFlags::IN));
            let mut watched = [input.clone(), parent.unwrap_or(input)];
            while let Err(error) = poll(&mut watched, None) {
                if error != rustix::io::Errno::INTR {
                    never();
                }
            }
            // A client closes its pipes and exits, so both events may be present at once.
            if watched[0].revents().is_empty() { InputEndReason::Parent } else { InputEndReason::Input }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_parent_that_has_exited_can_be_ignored() {
            let (input, writer) = std::io::pipe().unwrap();
            // A pipe whose writer is gone is readable, as the exit of a process is.
            let (parent, _) = std::io::pipe().unwrap();
            let watch = EndWatch { input: input.into(), parent: Some(parent.into()) };
            assert_eq!(watch.wait(), InputEndReason::Parent);
            drop(writer);
            assert_eq!(watch.without_parent().wait(), InputEndReason::Input);
        }
    }
}

#[cfg(not(unix))]
mod system {
    use super::{InputEndReason, InputWatch, OutputWatch, Stdio, never};
    use crate::transport::Transport;

    pub(super) fn take() -> std::io::Result<Stdio> {
        Ok(Stdio {
            transport: Transport::new(tokio::io::stdin(), tokio::io::stdout()),
            end: InputWatch(EndWatch),
            output: OutputWatch(ReaderWatch),
        })
    }

    #[derive(Debug)]
    pub(super) struct ReaderWatch;

    impl ReaderWatch {
        pub(super) fn is_unread(&self) -> bool {
            false
        }
    }

    #[derive(Debug)]
    pub(super) struct EndWatch;

    impl EndWatch {
        pub(super) fn without_parent(self) -> Self {
            self
        }

        pub(super) fn wait(&self) -> InputEndReason {
            never()
        }
    }
}
