//! The process's own stdin and stdout as a transport (rule 9). Operating-system code lives here.
//!
//! The descriptors are moved away before the first byte is read: fd 0 becomes `/dev/null` and fd 1
//! becomes stderr, so that a `println!`, a C library or a child process can neither write into the
//! conversation nor eat from it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::transport::Transport;

/// The process's stdin and stdout, taken for a conversation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stdio {
    /// The two pipes.
    pub transport: Transport,
    /// Tells when the other side is gone, even while nobody reads.
    pub end: InputEnd,
}

impl Stdio {
    /// Takes stdin and stdout. Works once in a process.
    ///
    /// Pipes are reopened through `/proc/self/fd` on Linux, so that switching them to non-blocking
    /// does not reach the parent, which shares the original. Where that fails, and for files and
    /// terminals, blocking threads do the work.
    ///
    /// # Errors
    ///
    /// When they were taken before, or a descriptor cannot be duplicated.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O enabled.
    pub fn take() -> io::Result<Stdio> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(io::Error::other("stdin and stdout have been taken for a conversation before"));
        }
        system::take()
    }
}

/// Sees the end of the input from outside the reader.
#[derive(Debug)]
pub struct InputEnd(system::EndWatch);

/// What [`InputEnd::wait`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputEnded {
    /// Every writer of the input is gone, or the file was read to its end.
    Input,
    /// The process that was the parent when stdin was taken is gone, and the input is open: somebody
    /// else holds the other end. Whether that one speaks the protocol cannot be seen.
    Parent,
}

impl InputEnd {
    /// Blocks this thread until every writer of the input is gone, until a file has been read to
    /// its end, or, on Linux, until the process is gone that was the parent when [`Stdio::take`] was
    /// called. Never returns where the system cannot tell (devices, systems other than Unix).
    ///
    /// That parent need not be the one that started this process: when that one has left before, as some
    /// launchers do at once, it is the first process, or the nearest one that takes orphans in
    /// (`systemd --user`, say). The first process of the machine or the container is not waited for, nor
    /// is a parent in another container.
    ///
    /// Meant for a thread of its own that ends a process whose runtime is stuck.
    pub fn wait(&self) -> InputEnded {
        self.0.wait()
    }
}

/// For a thread that has nothing to see.
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

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{FileType, OFlags, fstat, tell};
    use rustix::io::fcntl_dupfd_cloexec;
    use rustix::stdio::{dup2_stdin, dup2_stdout};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::UnixStream;
    use tokio::net::unix::pipe;

    use super::{InputEnd, InputEnded, Stdio, never};
    use crate::transport::Transport;

    /// How often the place in a file is looked at: there is nothing to wait on.
    const FILE_POLL: Duration = Duration::from_millis(100);

    type Input = Box<dyn AsyncRead + Send + Unpin>;
    type Output = Box<dyn AsyncWrite + Send + Unpin>;

    pub(super) fn take() -> io::Result<Stdio> {
        // Private copies above the three standard numbers, closed in children.
        let input = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        let end = EndWatch { input: fcntl_dupfd_cloexec(&input, 3)?, parent: parent() };
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(rustix::stdio::stderr())?;
        Ok(Stdio { transport: Transport::new(reader(input)?, writer(output)?), end: InputEnd(end) })
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
        // Any stream socket reads and writes alike; Node gives its children socket pairs.
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

    /// A terminal that was hung up says so by an error; it is the end of the input like any other.
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

    fn writer(fd: OwnedFd) -> io::Result<Output> {
        Ok(match kind(&fd)? {
            FileType::Fifo => match reopened(&fd, true).and_then(pipe::Sender::from_file) {
                Ok(pipe) => Box::new(pipe),
                Err(_) => Box::new(tokio::fs::File::from_std(fd.into())),
            },
            FileType::Socket => Box::new(socket(fd)?),
            _ => Box::new(tokio::fs::File::from_std(fd.into())),
        })
    }

    #[derive(Debug)]
    pub(super) struct EndWatch {
        input: OwnedFd,
        /// Becomes readable when the parent is gone; none where that cannot be seen.
        parent: Option<OwnedFd>,
    }

    /// The parent as it is now. Its number alone could soon be somebody else's.
    #[cfg(target_os = "linux")]
    fn parent() -> Option<OwnedFd> {
        use rustix::process::{PidfdFlags, getppid, pidfd_open};
        let parent = getppid()?;
        // Whoever was started by the first process, or was left to it, has nobody to follow.
        if parent.is_init() {
            return None;
        }
        let watched = pidfd_open(parent, PidfdFlags::empty()).ok()?;
        // Gone between the two calls, and the number given to another?
        (getppid() == Some(parent)).then_some(watched)
    }

    #[cfg(not(target_os = "linux"))]
    fn parent() -> Option<OwnedFd> {
        None
    }

    impl EndWatch {
        pub(super) fn wait(&self) -> InputEnded {
            #[cfg(target_os = "linux")]
            let half_closed = PollFlags::RDHUP;
            #[cfg(not(target_os = "linux"))]
            let half_closed = PollFlags::empty();
            while kind(&self.input).is_ok_and(|kind| kind == FileType::RegularFile) {
                // The place in the file is shared with the reader.
                let (Ok(read), Ok(file)) = (tell(&self.input), fstat(&self.input)) else { break };
                if read >= file.st_size.cast_unsigned() {
                    return InputEnded::Input;
                }
                std::thread::sleep(FILE_POLL);
            }
            // No interest in data: only a hang-up wakes this, or the end of the parent.
            let input = PollFd::new(&self.input, half_closed);
            let parent = self.parent.as_ref().map(|parent| PollFd::new(parent, PollFlags::IN));
            let mut watched = [input.clone(), parent.unwrap_or(input)];
            while let Err(error) = poll(&mut watched, None) {
                if error != rustix::io::Errno::INTR {
                    never();
                }
            }
            // A client that leaves closes its pipes, and then it ends: both may be seen at once.
            if watched[0].revents().is_empty() { InputEnded::Parent } else { InputEnded::Input }
        }
    }
}

#[cfg(not(unix))]
mod system {
    use super::{InputEnd, InputEnded, Stdio, never};
    use crate::transport::Transport;

    pub(super) fn take() -> std::io::Result<Stdio> {
        Ok(Stdio {
            transport: Transport::new(tokio::io::stdin(), tokio::io::stdout()),
            end: InputEnd(EndWatch),
        })
    }

    #[derive(Debug)]
    pub(super) struct EndWatch;

    impl EndWatch {
        pub(super) fn wait(&self) -> InputEnded {
            never()
        }
    }
}
