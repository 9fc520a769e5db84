//! A program in a pseudo terminal, and what its user sees.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Terminal {
    child: Child,
    master: File,
    /// Kept open while the program runs: the terminal ends with the last one who has it open.
    slave: Option<File>,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts the command with a terminal of its own, in a folder that is called the same everywhere.
    pub(crate) fn start(rows: u16, columns: u16, args: &[&str], env: &[(&str, &str)]) -> Terminal {
        Terminal::start_in(Path::new("/"), rows, columns, args, env)
    }

    /// Starts the command in this folder.
    pub(crate) fn start_in(
        folder: &Path,
        rows: u16,
        columns: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let master = File::from(master);
        tcsetwinsize(&master, size(rows, columns)).unwrap();

        let stdio = || Stdio::from(slave.try_clone().unwrap());
        // A session of its own, with this terminal: there is no safe way to ask the standard library.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_duologue")).args(args);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.envs(env.iter().copied()).current_dir(folder);
        let child = command.spawn().unwrap();

        let (sender, output) = channel();
        let mut reader = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let [rows, columns] = [rows, columns].map(|count| NonZeroU16::new(count).unwrap());
        let parser = vt100::Parser::new(rows, columns, 10_000);
        Terminal { child, master, slave: Some(slave), output, parser, bytes: Vec::new() }
    }

    /// Waits until the text is seen.
    pub(crate) fn wait_for(&mut self, text: &str) {
        self.wait_for_one(&[text]);
    }

    /// Waits until one of the texts is seen, and returns its index.
    pub(crate) fn wait_for_one(&mut self, texts: &[&str]) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen_with_cursor();
            if let Some(index) = texts.iter().position(|text| screen.contains(text)) {
                return index;
            }
            assert!(Instant::now() < deadline, "{texts:?} is not to be seen:\n{}", self.screen());
            self.take(Duration::from_millis(100));
        }
    }

    /// Waits for the end of the program, and gives its exit code.
    pub(crate) fn end(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            self.take(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.screen());
        };
        // Now all of its output can be read, and then there is an end.
        self.slave = None;
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.process(bytes);
        }
        status.code().unwrap()
    }

    fn take(&mut self, wait: Duration) {
        if let Ok(bytes) = self.output.recv_timeout(wait) {
            self.process(bytes);
        }
    }

    fn process(&mut self, bytes: Vec<u8>) {
        self.parser.process(&bytes);
        self.bytes.extend(bytes);
    }

    /// The rows, without what is empty at their ends.
    pub(crate) fn screen(&self) -> String {
        let text = self.parser.screen().contents();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    /// Returns all rows, those that have scrolled out of the window first.
    pub(crate) fn everything(&mut self) -> String {
        let screen = self.parser.screen_mut();
        screen.set_scrollback(usize::MAX);
        let scrolled = screen.scrollback();
        let (height, columns) = screen.size();
        let mut rows: Vec<String> = Vec::new();
        for above in (1..=scrolled).rev() {
            screen.set_scrollback(above);
            rows.extend(screen.rows(0, columns.get()).next());
        }
        screen.set_scrollback(0);
        rows.extend(screen.rows(0, columns.get()).take(usize::from(height.get())));
        rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    /// The rows up to the cursor.
    fn screen_with_cursor(&self) -> String {
        let screen = self.parser.screen();
        let (row, column) = screen.cursor_position();
        let (_, columns) = screen.size();
        let rows: Vec<String> = screen.rows(0, columns.get()).take(usize::from(row)).collect();
        let last = screen.rows(0, column.max(1)).nth(usize::from(row)).unwrap_or_default();
        let last = format!("{last:width$}", width = usize::from(column));
        let below: Vec<String> = screen.rows(0, columns.get()).skip(usize::from(row)).collect();
        format!(
            "{}\n{last}\n{}",
            rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n"),
            below.join("\n")
        )
    }

    pub(crate) fn bytes(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns true if any output is bold, dim or coloured.
    pub(crate) fn has_styles(&self) -> bool {
        let bytes = self.bytes();
        bytes.split('\u{1b}').skip(1).any(|sequence| {
            sequence.split_once('m').is_some_and(|(codes, _)| {
                codes.starts_with('[') && !codes.contains(['A', 'K', 'J', 'l', 'h'])
            })
        })
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.type_keys(&format!("{line}\n"));
    }

    /// The window gets another size.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(&self.master, size(rows, columns)).unwrap();
        let [rows, columns] = [rows, columns].map(|count| NonZeroU16::new(count).unwrap());
        self.parser.screen_mut().set_size(rows, columns);
    }

    /// Returns true if the program gets keys one by one, and not lines.
    pub(crate) fn reads_keys(&self) -> bool {
        !tcgetattr(&self.master).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Returns true if the terminal shows typed keys.
    pub(crate) fn echoes(&self) -> bool {
        tcgetattr(&self.master).unwrap().local_modes.contains(LocalModes::ECHO)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
