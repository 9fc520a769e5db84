//! A client of system calls for misbehaviour: it knows the pipes it gave to the
//! agent, reads only on demand, and closes them in any way.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::trees::PATIENCE;

/// The kind of the agent's stdin and stdout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire {
    Pipes,
    Fifos,
    /// A pair for each direction, as Node does it.
    Sockets,
    /// One pair for both.
    Socket,
    Terminal,
}

/// Ours, the agent's, and where they meet.
struct Ends {
    input: Box<dyn Write + Send>,
    output: Box<dyn Read + Send>,
    stdin: OwnedFd,
    stdout: OwnedFd,
    /// Descriptors of ours that must not change their mode.
    ours: Vec<OwnedFd>,
}

fn copy(fd: impl std::os::fd::AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("a descriptor")
}

fn fifo() -> (File, File) {
    let name = format!("duologue-fifo-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .expect("a fifo");
    // Open both ways first, because the opening of one end waits for the other.
    let both = File::options().read(true).write(true).open(&path).expect("the fifo");
    let ends =
        (File::open(&path).expect("to read"), File::options().write(true).open(&path).expect("to write"));
    drop(both);
    std::fs::remove_file(path).expect("the fifo");
    ends
}

fn terminal() -> (File, File) {
    use rustix::pty::OpenptFlags;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::grantpt(&ours).expect("a terminal");
    rustix::pty::unlockpt(&ours).expect("a terminal");
    let name = rustix::pty::ptsname(&ours, Vec::new()).expect("a name");
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
        .expect("the other end");
    let mut modes = rustix::termios::tcgetattr(&theirs).expect("modes");
    modes.make_raw();
    rustix::termios::tcsetattr(&theirs, rustix::termios::OptionalActions::Now, &modes).expect("modes");
    (ours.into(), theirs.into())
}

impl Wire {
    fn ends(self) -> Ends {
        match self {
            Wire::Pipes => {
                let ((stdin, input), (output, stdout)) =
                    (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
                let ours = vec![copy(&stdin), copy(&stdout)];
                let (stdin, stdout) = (stdin.into(), stdout.into());
                Ends { input: Box::new(input), output: Box::new(output), stdin, stdout, ours }
            }
            Wire::Fifos => {
                let ((stdin, input), (output, stdout)) = (fifo(), fifo());
                let ours = vec![copy(&stdin), copy(&stdout)];
                let (stdin, stdout) = (stdin.into(), stdout.into());
                Ends { input: Box::new(input), output: Box::new(output), stdin, stdout, ours }
            }
            Wire::Sockets => {
                let (input, stdin) = UnixStream::pair().expect("sockets");
                let (output, stdout) = UnixStream::pair().expect("sockets");
                let ours = vec![copy(&input), copy(&output)];
                let (stdin, stdout) = (stdin.into(), stdout.into());
                Ends { input: Box::new(input), output: Box::new(output), stdin, stdout, ours }
            }
            Wire::Socket => {
                let (input, stdin) = UnixStream::pair().expect("sockets");
                let output = input.try_clone().expect("a descriptor");
                let (ours, stdout) = (vec![copy(&input)], copy(&stdin));
                Ends { input: Box::new(input), output: Box::new(output), stdin: stdin.into(), stdout, ours }
            }
            Wire::Terminal => {
                let (input, stdin) = terminal();
                let output = input.try_clone().expect("a descriptor");
                let (ours, stdout) = (vec![copy(&input), copy(&stdin)], copy(&stdin));
                Ends { input: Box::new(input), output: Box::new(output), stdin: stdin.into(), stdout, ours }
            }
        }
    }
}

pub(crate) struct RawClient {
    child: Child,
    pub(crate) input: Option<Box<dyn Write + Send>>,
    output: Option<BufReader<Box<dyn Read + Send>>>,
    ours: Vec<OwnedFd>,
    last_id: u64,
    /// Kills an agent that hangs, so that no read of ours waits for ever.
    _watchdog: mpsc::Sender<()>,
}

impl RawClient {
    pub(crate) fn start(program: &[&str], wire: Wire) -> Self {
        let Ends { input, output, stdin, stdout, ours } = wire.ends();
        let mut command = Command::new(program[0]);
        let child = command.args(&program[1..]).stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn();
        // The command holds the agent's ends until it is dropped.
        drop(command);
        let child = child.expect("starts");
        let (watchdog, over) = mpsc::channel();
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a number");
        std::thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = Some(BufReader::new(output));
        RawClient { child, input: Some(input), output, ours, last_id: 0, _watchdog: watchdog }
    }

    /// A client with a session.
    pub(crate) fn introduced(program: &[&str], wire: Wire) -> (Self, String) {
        let mut client = Self::start(program, wire);
        client.ask("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let (session, _) = client.ask("session/new", json!({"cwd": "/", "mcpServers": []}));
        let id = session["sessionId"].as_str().expect("an id").to_owned();
        (client, id)
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let frame = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        let input = self.input.as_mut().expect("not hung up");
        input.write_all(format!("{frame}\n").as_bytes()).expect("the agent reads");
        input.flush().expect("the agent reads");
        self.last_id
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let content = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": content}))
    }

    /// The next line as it is.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.output.as_mut().expect("not hung up").read_until(b'\n', &mut line).expect("a line");
        line
    }

    /// The next line, which has to be a message.
    pub(crate) fn line(&mut self) -> Value {
        let line = self.bytes();
        let text = String::from_utf8_lossy(&line);
        serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{error} in {text:?}"))
    }

    /// The answer to a request, and the text of the updates before it.
    pub(crate) fn answer(&mut self, id: u64) -> (Value, String) {
        let mut text = String::new();
        loop {
            let mut line = self.line();
            text += line["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
            if line["id"] == id {
                assert!(line["error"].is_null(), "{line}");
                return (line["result"].take(), text);
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> (Value, String) {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Returns true if a descriptor shared with the agent, or our end, was made non-blocking.
    pub(crate) fn mode_leaked(&self) -> bool {
        let nonblocking = |fd| rustix::fs::fcntl_getfl(fd).expect("flags").contains(OFlags::NONBLOCK);
        self.ours.iter().any(nonblocking)
    }

    pub(crate) fn stop_reading(&mut self) {
        self.ours.clear();
        self.output = None;
    }

    /// Waits for an agent that leaves by itself.
    pub(crate) fn left(mut self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        // Keeps its input open for longer than it may take.
        let input = self.input.take();
        let status = loop {
            match self.child.try_wait().expect("a status") {
                Some(status) => break status,
                None if begun.elapsed() > PATIENCE => panic!("it hangs"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        drop(input);
        (status, begun.elapsed())
    }

    /// Ends the agent's input and tells how it left, and when.
    pub(crate) fn hang_up(mut self, both: bool) -> (ExitStatus, Duration) {
        self.ours.clear();
        self.input = None;
        if both {
            self.output = None;
        }
        let begun = Instant::now();
        let status = self.child.wait().expect("a status");
        (status, begun.elapsed())
    }
}
