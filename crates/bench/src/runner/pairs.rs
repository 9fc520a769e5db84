//! The programs: a client and an agent each, and who is paired with whom.

use std::path::{Path, PathBuf};

/// The two programs of one SDK in one configuration.
#[derive(Clone, Debug)]
pub struct BenchSubject {
    /// As it stands in the tables.
    pub name: &'static str,
    /// Which floor, or whose SDK.
    pub kind: PairKind,
    client: Vec<String>,
    agent: Vec<String>,
}

/// The kind of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairKind {
    /// On our SDK.
    Ours,
    /// A floor.
    Floor,
    /// On another SDK, as its documentation has it or as fast as it gets.
    Peer,
}

/// A client and an agent that play together.
#[derive(Clone, Debug)]
pub struct Pair {
    /// As it stands in the tables.
    pub name: String,
    /// The kind of both, `None` if they differ.
    pub kind: Option<PairKind>,
    /// The client's program and its arguments.
    pub client: Vec<String>,
    /// The agent's.
    pub agent: Vec<String>,
}

/// The folders of the other SDKs' programs. A missing one does not play.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    /// The programs on the official Rust crate.
    pub rust: Option<PathBuf>,
    /// The programs on the TypeScript SDK, and the newer node.
    pub ts: Option<(PathBuf, PathBuf)>,
    /// The programs on the Python SDK, and the interpreter that has it.
    pub python: Option<(PathBuf, PathBuf)>,
}

/// Our own pair, and the name of it.
pub const OURS: &str = "duologue";
/// Our own pair on the runtime that `#[tokio::main]` makes.
pub const OURS_MANY: &str = "duologue, a thread a core";
/// Our own pair, whose client records the connection.
pub const OURS_RECORDED: &str = "duologue, recorded";
/// Our own pair, whose client has three stages that pass everything.
pub const OURS_STAGES: &str = "duologue, three stages";
/// The floor that parses.
pub const SERDE: &str = "floor: serde";
/// The floor that does not.
pub const NL: &str = "floor: newlines";

/// All there are, ours in `bin`.
#[must_use]
pub fn subjects(bin: &Path, peers: &Peers) -> Vec<BenchSubject> {
    let mut all = Vec::new();
    let mut add = |name, kind, before: &[&str], folder: &Path, programs: [&str; 2], after: &[&str]| {
        let words = |program: &str| {
            let own = |word: &&str| (*word).to_owned();
            let program = folder.join(program).to_string_lossy().into_owned();
            before.iter().map(own).chain([program]).chain(after.iter().map(own)).collect()
        };
        all.push(BenchSubject { name, kind, client: words(programs[0]), agent: words(programs[1]) });
    };
    let own = ["bench-client", "bench-agent"];
    add(NL, PairKind::Floor, &[], bin, ["floor-client", "floor-agent"], &["nl"]);
    add(SERDE, PairKind::Floor, &[], bin, ["floor-client", "floor-agent"], &["serde"]);
    add(OURS, PairKind::Ours, &[], bin, own, &[]);
    add(OURS_MANY, PairKind::Ours, &[], bin, own, &[crate::MANY_THREADS]);
    if let Some(folder) = &peers.rust {
        add("Rust SDK, stock", PairKind::Peer, &[], folder, own, &["stock"]);
        add("Rust SDK, synchronous writes", PairKind::Peer, &[], folder, own, &["sync"]);
    }
    if let Some((folder, node)) = &peers.ts {
        let programs = ["bench-client.mjs", "bench-agent.mjs"];
        add("TypeScript SDK, node as found", PairKind::Peer, &["node"], folder, programs, &[]);
        add("TypeScript SDK, node 24", PairKind::Peer, &[&node.to_string_lossy()], folder, programs, &[]);
    }
    if let Some((folder, python)) = &peers.python {
        let (python, programs) = (python.to_string_lossy(), ["bench_client.py", "bench_agent.py"]);
        add("Python SDK, stock", PairKind::Peer, &[&python], folder, programs, &[]);
        add("Python SDK, uvloop", PairKind::Peer, &[&python], folder, programs, &["uvloop"]);
    }
    all
}

/// Each subject with itself.
#[must_use]
pub fn own(subjects: &[BenchSubject]) -> Vec<Pair> {
    let pair = |subject: &BenchSubject| Pair {
        name: subject.name.to_owned(),
        kind: Some(subject.kind),
        client: subject.client.clone(),
        agent: subject.agent.clone(),
    };
    subjects.iter().map(pair).collect()
}

/// Our client with each peer's agent, and each peer's client with ours.
#[must_use]
pub fn mixed(subjects: &[BenchSubject]) -> Vec<Pair> {
    let Some(ours) = subjects.iter().find(|subject| subject.name == OURS) else { return Vec::new() };
    let pair = |client: &BenchSubject, agent: &BenchSubject| Pair {
        name: format!("client {} · agent {}", client.name, agent.name),
        kind: None,
        client: client.client.clone(),
        agent: agent.agent.clone(),
    };
    let peers = subjects.iter().filter(|subject| subject.kind == PairKind::Peer);
    peers.flat_map(|peer| [pair(ours, peer), pair(peer, ours)]).collect()
}

/// Our own pair with a recorder on the client's side.
#[must_use]
pub fn recorded(subjects: &[BenchSubject]) -> Option<Pair> {
    with_option(subjects, OURS_RECORDED, crate::RECORD)
}

/// Our own pair with stages on the client's side.
#[must_use]
pub fn with_stages(subjects: &[BenchSubject]) -> Option<Pair> {
    with_option(subjects, OURS_STAGES, crate::STAGES)
}

fn with_option(subjects: &[BenchSubject], name: &str, option: &str) -> Option<Pair> {
    let mut pair = own(subjects).into_iter().find(|pair| pair.name == OURS)?;
    pair.name = name.to_owned();
    pair.client.push(option.to_owned());
    Some(pair)
}

/// Our own pair with a counting allocator.
#[must_use]
pub fn counting(bin: &Path) -> Pair {
    let program = |name: &str| vec![bin.join(name).to_string_lossy().into_owned()];
    Pair {
        name: OURS.to_owned(),
        kind: Some(PairKind::Ours),
        client: program("counting-client"),
        agent: program("counting-agent"),
    }
}
