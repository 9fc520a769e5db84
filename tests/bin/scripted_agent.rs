//! An agent that follows a script and breaks the protocol where the script says so. It uses one thread of the
//! plain standard library, so it does to its pipes exactly what is written here.
//!
//! Frames count from one: the answers to `initialize` and `session/new`, the updates of a turn, its
//! answer. With the default of 17 updates a turn ends with frame 20.
#![allow(clippy::print_stderr, reason = "the tail of stderr is what is tested")]

use std::io::{BufRead, Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, getpid, getppid, kill_process};
use serde_json::{Value, json};

/// The command line: `--name value`, in any order.
struct Script {
    /// The frame after which `act` happens.
    at: usize,
    act: String,
    updates: usize,
    /// The text of each update, in bytes.
    size: usize,
    /// Written as updates right after `session/new`, before anything else is read.
    ahead: usize,
    /// The reaction to the end of input: `leave`, `stay`, or a number of bytes to write before leaving.
    on_eof: String,
    /// Written to stderr before the first line is read.
    stderr: usize,
    /// Lines of noise on stdout before the first line is read.
    noise: usize,
    /// The number of `fs/read_text_file` requests right after `session/new`.
    reads: usize,
    /// The size of the two pipes, where it is not the usual one.
    pipe: usize,
}

impl Script {
    fn read() -> Self {
        let mut script = Script {
            at: usize::MAX,
            act: String::new(),
            updates: 17,
            size: 16,
            ahead: 0,
            on_eof: "leave".into(),
            stderr: 0,
            noise: 0,
            reads: 0,
            pipe: 0,
        };
        let mut args = std::env::args().skip(1);
        while let (Some(name), Some(value)) = (args.next(), args.next()) {
            let number = || value.parse().expect("a number");
            match name.as_str() {
                "--at" => script.at = number(),
                "--do" => script.act = value,
                "--updates" => script.updates = number(),
                "--size" => script.size = number(),
                "--ahead" => script.ahead = number(),
                "--on-eof" => script.on_eof = value,
                "--stderr" => script.stderr = number(),
                "--noise" => script.noise = number(),
                "--reads" => script.reads = number(),
                "--pipe" => script.pipe = number(),
                other => panic!("{other} is no part of a script"),
            }
        }
        script
    }
}

struct Agent {
    script: Script,
    out: std::io::Stdout,
    sent: usize,
}

impl Agent {
    fn send(&mut self, frame: &Value) {
        let mut line = frame.to_string();
        line.push('\n');
        let mut out = self.out.lock();
        if self.script.act == "half" && self.sent + 1 == self.script.at {
            let half = line.len() / 2;
            let _ = out.write_all(line.as_bytes().get(..half).unwrap_or_default());
            let _ = out.flush();
        } else if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(32);
        }
        drop(out);
        self.sent += 1;
        self.act();
    }

    fn act(&self) {
        if self.sent != self.script.at {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        eprintln!("after frame {} at {} ns", self.sent, now.as_nanos());
        match self.script.act.split_once(':').unwrap_or((&self.script.act, "")) {
            ("kill" | "half", _) => die(getpid(), Signal::KILL),
            ("segv", _) => die(getpid(), Signal::SEGV),
            ("kill-parent", _) => die(getppid().expect("a parent"), Signal::KILL),
            ("exit", code) => std::process::exit(code.parse().expect("a code")),
            ("hang", _) => hang(),
            (other, _) => panic!("{other} is nothing one can do"),
        }
    }

    fn update(&mut self, text: String) {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        let params = json!({"sessionId": "s", "update": update});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    fn updates(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let size = bytes.min(32 * 1024);
            self.update("x".repeat(size));
            bytes -= size;
        }
    }

    fn answer(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn line(&mut self, line: &Value) {
        let id = &line["id"];
        match line["method"].as_str() {
            Some("initialize") => {
                let pid = std::process::id().to_string();
                let info = json!({"name": "scripted", "version": pid});
                self.answer(id, &json!({"protocolVersion": 1, "agentInfo": info, "agentCapabilities": {}}));
            }
            Some("session/new") => {
                self.answer(id, &json!({"sessionId": "s"}));
                self.updates(self.script.ahead);
                for number in 0..self.script.reads {
                    let params = json!({"sessionId": "s", "path": "/file"});
                    let id = format!("read-{number}");
                    self.send(
                        &json!({"jsonrpc": "2.0", "id": id, "method": "fs/read_text_file", "params": params}),
                    );
                }
            }
            Some("session/prompt") => {
                let padding = " ".repeat(self.script.size);
                for number in 0..self.script.updates {
                    self.update(format!("{number}{padding}"));
                }
                self.answer(id, &json!({"stopReason": "end_turn"}));
            }
            Some("ask") | None => {}
            Some(_) if !id.is_null() => self.answer(id, &json!({})),
            Some(_) => {}
        }
    }

    fn before(&mut self) {
        if self.script.pipe > 0 {
            let size = self.script.pipe;
            rustix::pipe::fcntl_setpipe_size(std::io::stdin(), size).expect("a pipe");
            rustix::pipe::fcntl_setpipe_size(std::io::stdout(), size).expect("a pipe");
        }
        let mut stderr = std::io::stderr().lock();
        // No text at all, as a program that dumps its core into the log would write.
        let flood = vec![0xff; 64 * 1024];
        for _ in 0..self.script.stderr / flood.len() {
            stderr.write_all(&flood).expect("someone reads stderr");
        }
        for number in 0..self.script.noise {
            writeln!(self.out.lock(), "noise {number}").expect("someone reads stdout");
            writeln!(stderr, "complaint {number}").expect("someone reads stderr");
        }
    }
}

fn die(whom: rustix::process::Pid, how: Signal) -> ! {
    loop {
        // Not once: the standard library takes the first SEGV for a stack overflow, and lets it pass.
        let _ = kill_process(whom, how);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn hang() {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn main() {
    let mut agent = Agent { script: Script::read(), out: std::io::stdout(), sent: 0 };
    agent.before();
    let mut input = std::io::BufReader::new(std::io::stdin());
    let mut line = String::new();
    if agent.script.at == 0 && agent.script.act.starts_with("exit") {
        agent.act();
    }
    while input.read_line(&mut line).is_ok_and(|count| count > 0) {
        if agent.sent == 0 {
            agent.act();
        }
        agent.line(&serde_json::from_str(&line).expect("a client sends JSON"));
        line.clear();
    }
    let _ = input.read_to_string(&mut line);
    match agent.script.on_eof.as_str() {
        "leave" => {}
        "stay" => hang(),
        bytes => agent.updates(bytes.parse().expect("a number of bytes")),
    }
}
