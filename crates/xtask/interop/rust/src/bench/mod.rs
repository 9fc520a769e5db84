//! What both programs of the benchmark share: how they are configured, and the files they share with `crates/bench`.

#[path = "../../../../../bench/src/figures.rs"]
#[allow(dead_code, reason = "each program uses its half")]
pub mod figures;
#[path = "../../../../../bench/src/play.rs"]
#[allow(dead_code, reason = "each program uses its half")]
pub mod play;

use std::io::Write as _;

use agent_client_protocol::{ConnectTo, Error, Lines, Result, Role};
use futures::io::BufReader;
use futures::{AsyncBufReadExt as _, sink};

/// How a program is configured: the first argument.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// `stock`: as the documentation has it, `#[tokio::main]` and `Stdio`.
    Stock,
    /// `sync`: one thread, and a stdout that is written where the message is made.
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

/// `Stdio` with a stdout that is written at once, by the thread that has the message.
pub struct SyncStdio;

impl<Counterpart: Role> ConnectTo<Counterpart> for SyncStdio {
    async fn connect_to(self, client: impl ConnectTo<Counterpart::Counterpart>) -> Result<()> {
        let lines = BufReader::new(blocking::Unblock::new(std::io::stdin())).lines();
        let out = sink::unfold(std::io::stdout(), async |mut stdout, line: String| {
            let mut line = line.into_bytes();
            line.push(b'\n');
            stdout.write_all(&line)?;
            stdout.flush()?;
            Ok::<_, std::io::Error>(stdout)
        });
        ConnectTo::<Counterpart>::connect_to(Lines::new(Box::pin(out), Box::pin(lines)), client).await
    }
}
