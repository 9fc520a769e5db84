//! Code shared by the programs of the benchmark, on stdio and over a network: the agent, the client, their configuration, and
//! the files of `crates/bench`.

#[allow(dead_code, reason = "each program uses its half")]
pub mod agent;
#[allow(dead_code, reason = "each program uses its half")]
pub mod client;
#[path = "../../../../../bench/src/figures.rs"]
#[allow(dead_code, reason = "each program uses its half")]
pub mod figures;
#[path = "../../../../../bench/src/play.rs"]
#[allow(dead_code, reason = "each program uses its half")]
pub mod play;

use std::io::{Read, Write};

use agent_client_protocol::{ConnectTo, Error, Lines, Result, Role};
use blocking::Unblock;
use futures::io::BufReader;
use futures::{AsyncBufReadExt as _, sink};

/// The configuration of a program: the first argument.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// `stock`: as the documentation has it, `#[tokio::main]` with `Stdio` and `AcpAgent`.
    Stock,
    /// `sync`: as fast as a few lines make it: one thread, and a pipe that is written where the message is made. Over a
    /// network it is one thread alone.
    Sync,
}

impl Kind {
    /// The kind, and the arguments behind it.
    pub fn read() -> (Self, Vec<String>) {
        let mut args = std::env::args().skip(1);
        let kind = match args.next().as_deref() {
            Some("stock") => Kind::Stock,
            Some("sync") => Kind::Sync,
            _ => panic!("stock or sync comes first"),
        };
        (kind, args.collect())
    }

    pub fn runtime(self) -> Result<tokio::runtime::Runtime> {
        let mut builder = match self {
            Kind::Stock => tokio::runtime::Builder::new_multi_thread(),
            Kind::Sync => tokio::runtime::Builder::new_current_thread(),
        };
        builder.enable_all().build().map_err(Error::into_internal_error)
    }
}

#[allow(dead_code, reason = "not over a network")]
/// A transport that writes at once, in the thread that has the message; it reads as `Stdio` does.
pub fn synchronous<R: Role>(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> impl ConnectTo<R> {
    let lines = BufReader::new(Unblock::new(input)).lines();
    let out = sink::unfold(output, async |mut output, line: String| {
        let mut line = line.into_bytes();
        line.push(b'\n');
        output.write_all(&line)?;
        output.flush()?;
        Ok::<_, std::io::Error>(output)
    });
    Lines::new(Box::pin(out), Box::pin(lines))
}
