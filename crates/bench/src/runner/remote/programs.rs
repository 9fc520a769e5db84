//! The programs: the servers and clients of each SDK, and the chains from a client on stdio to the agent.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use super::super::Result;
use super::super::pairs::{OURS, Pair, Peers};
use crate::{BRIDGE, MANY_THREADS, SERVE, TOKEN};

/// A client and a server of one SDK.
#[derive(Clone, Debug)]
pub(super) struct RemoteSubject {
    pub(super) name: &'static str,
    pub(super) is_ours: bool,
    /// The words before the play.
    pub(super) client: Vec<String>,
    server: Vec<String>,
}

/// A server that runs. It ends when it is dropped.
pub(super) struct RemoteServer {
    process: Child,
    /// The host and the port.
    address: String,
    /// Kept open, because `duologue serve` prints more lines.
    _output: BufReader<ChildStdout>,
}

impl RemoteServer {
    fn start(words: &[String]) -> Result<Self> {
        let (program, args) = words.split_first().ok_or("no server")?;
        let mut command = Command::new(program);
        let mut process = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().ok_or("no output")?);
        output.read_line(&mut line)?;
        // `duologue serve` prints a sentence with an address.
        let address = line.rsplit("://").next().unwrap_or_default().trim();
        let address = address.split('/').next().unwrap_or_default().to_owned();
        Ok(RemoteServer { process, address, _output: output })
    }

    pub(super) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}/acp", self.address)
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RemoteSubject {
    pub(super) fn start(&self) -> Result<RemoteServer> {
        RemoteServer::start(&self.server)
    }
}

fn words(program: &Path, args: &[&str]) -> Vec<String> {
    std::iter::once(program.to_string_lossy().into_owned())
        .chain(args.iter().map(|arg| (*arg).to_owned()))
        .collect()
}

/// Returns the SDKs that play. Ours is the first.
pub(super) fn subjects(bin: &Path, peers: &Peers) -> Vec<RemoteSubject> {
    let ours = |name, threads: &[&str]| RemoteSubject {
        name,
        is_ours: true,
        client: words(&bin.join("bench-client"), threads),
        server: words(&bin.join("bench-agent"), &[threads, &[SERVE]].concat()),
    };
    let mut all = vec![ours(OURS, &[]), ours("duologue, a thread a core", &[MANY_THREADS])];
    if let Some(folder) = &peers.rust {
        for (name, kind) in [("Rust SDK, stock", "stock"), ("Rust SDK, one thread", "sync")] {
            all.push(RemoteSubject {
                name,
                is_ours: false,
                client: words(&folder.join("bench-client"), &[kind]),
                server: words(&folder.join("bench-agent"), &[kind]),
            });
        }
    }
    if let Some((folder, node)) = &peers.ts {
        let program = |name: &str| folder.join(name).to_string_lossy().into_owned();
        all.push(RemoteSubject {
            name: "TypeScript SDK",
            is_ours: false,
            client: words(node, &[&program("bench-client.mjs")]),
            server: words(node, &[&program("bench-agent.mjs"), "--serve"]),
        });
    }
    all
}

/// A chain of programs between our client and our agent. Each adds one hop to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteHop {
    pub(super) name: &'static str,
    /// The chain without the last hop.
    pub(super) before: Option<&'static str>,
    kind: HopKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HopKind {
    Stdio,
    Relays,
    Server,
    Bridge,
    Serve,
    Connect,
}

/// The chain without a network.
pub(super) const STDIO: &str = "client → agent on stdio";
/// Two processes that only copy bytes.
pub(super) const RELAYS: &str = "client → two programs that copy bytes → agent";
/// The chain without a log.
pub(super) const WITHOUT_LOG: &str = "client → bridge without a log → agent";
/// The chain with a log.
pub(super) const WITH_LOG: &str = "client → `serve` with a log → agent";
/// The whole chain.
pub(super) const WHOLE: &str = "client → `connect` → `serve` with a log → agent";

/// Returns the chains, each after the one that it extends.
pub(super) fn hops() -> Vec<RemoteHop> {
    let server = "client → agent behind a socket";
    vec![
        RemoteHop { name: STDIO, before: None, kind: HopKind::Stdio },
        RemoteHop { name: RELAYS, before: Some(STDIO), kind: HopKind::Relays },
        RemoteHop { name: server, before: Some(STDIO), kind: HopKind::Server },
        RemoteHop { name: WITHOUT_LOG, before: Some(server), kind: HopKind::Bridge },
        RemoteHop { name: WITH_LOG, before: Some(WITHOUT_LOG), kind: HopKind::Serve },
        RemoteHop { name: WHOLE, before: Some(WITH_LOG), kind: HopKind::Connect },
    ]
}

/// A chain that runs.
pub(super) struct StartedHop {
    pub(super) pair: Pair,
    _server: Option<RemoteServer>,
    _data: Option<TempDir>,
}

impl RemoteHop {
    /// Starts the servers of the chain.
    pub(super) fn start(&self, bin: &Path, scheme: &str) -> Result<StartedHop> {
        let agent = bin.join("bench-agent");
        let duologue = bin.join("duologue");
        let mut client = words(&bin.join("bench-client"), &[]);
        let (mut server, mut data) = (None, None);
        let agent = match self.kind {
            HopKind::Stdio => words(&agent, &[]),
            HopKind::Relays => {
                let relay = bin.join("bench-relay");
                let mut serving = words(&relay, &[SERVE]);
                serving.extend(words(&agent, &[]));
                let server = server.insert(RemoteServer::start(&serving)?);
                words(&relay, &[&server.address])
            }
            HopKind::Server => {
                vec![server.insert(RemoteServer::start(&words(&agent, &[SERVE]))?).url(scheme)]
            }
            HopKind::Bridge => {
                let bridge = words(&agent, &[MANY_THREADS, BRIDGE, &agent.to_string_lossy()]);
                vec![server.insert(RemoteServer::start(&bridge)?).url(scheme)]
            }
            HopKind::Serve | HopKind::Connect => {
                let folder = data.insert(tempfile::tempdir()?).path();
                let (folder_name, token) = (folder.to_string_lossy(), folder.join("token"));
                let args = ["serve", "--listen", "127.0.0.1:0", "--data", &folder_name, "--"];
                let mut serve = words(&duologue, &args);
                serve.extend(words(&agent, &[]));
                let url = server.insert(RemoteServer::start(&serve)?).url(scheme);
                if self.kind == HopKind::Serve {
                    let secret = format!("{TOKEN}={}", std::fs::read_to_string(token)?.trim());
                    client.splice(0..0, ["env".to_owned(), secret]);
                    vec![url]
                } else {
                    let transport = if scheme == "ws" { "ws" } else { "sse" };
                    let token = token.to_string_lossy();
                    words(&duologue, &["connect", "--token-file", &token, "--transport", transport, &url])
                }
            }
        };
        let pair = Pair { name: self.name.to_owned(), kind: None, client, agent };
        Ok(StartedHop { pair, _server: server, _data: data })
    }
}
