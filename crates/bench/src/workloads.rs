//! The workloads: what is played, how large, and which figure of it counts. `cargo xtask bench` reads the same file.

use super::play::Play;

/// The main figure of a table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Messages a second.
    Rate,
    /// The duration of one message, mean and 99th percentile, in µs.
    Latency,
    /// The median duration of one message, in ms.
    Millis,
    /// By how many bytes a process grows with each.
    Grown,
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name on the command line and in the targets.
    pub name: &'static str,
    /// The title of its table.
    pub title: &'static str,
    /// The play.
    pub play: Play,
    /// The same, in a smoke run.
    pub quick: Play,
    /// The main figure.
    pub figure: Figure,
    /// True if both processes share one core.
    pub pinned: bool,
    /// True if a floor plays it. A workload about state that an SDK keeps has none.
    pub floor: bool,
    /// True if our programs also play it with those of the other SDKs.
    pub mixed: bool,
    /// True if our client also plays it with a recorder.
    pub recorded: bool,
    /// True if our client also plays it with three stages that pass everything.
    pub stages: bool,
    /// A note for readers of its table.
    pub note: &'static str,
}

const STREAM: Workload = Workload {
    name: "a40",
    title: "(a) one turn of 200,000 updates of 40 bytes",
    play: Play::Stream { count: 200_000, bytes: 40 },
    quick: Play::Stream { count: 20_000, bytes: 40 },
    figure: Figure::Rate,
    pinned: false,
    floor: true,
    mixed: true,
    recorded: false,
    stages: false,
    note: "",
};

const PROMPTS: Workload = Workload {
    name: "b",
    title: "(b) 20,000 small prompts, one after the other",
    play: Play::Prompts { count: 20_000 },
    quick: Play::Prompts { count: 2_000 },
    figure: Figure::Latency,
    note: "On two cores most of a round trip is the wake-up of the other core; on one core it is the software.",
    ..STREAM
};

const READS: Workload = Workload {
    name: "c",
    title: "(c) 10,000 files of 4 KiB read from the client, one after the other",
    play: Play::Read { count: 10_000 },
    quick: Play::Read { count: 1_000 },
    ..PROMPTS
};

/// All of them, in the order of the page.
pub const WORKLOADS: &[Workload] = &[
    Workload { recorded: true, stages: true, ..STREAM },
    Workload {
        name: "a1k",
        title: "(a) one turn of 200,000 updates of 1 KiB",
        play: Play::Stream { count: 200_000, bytes: 1024 },
        quick: Play::Stream { count: 20_000, bytes: 1024 },
        mixed: false,
        ..STREAM
    },
    PROMPTS,
    Workload {
        name: "b1",
        title: "(b) the same, both processes on one core",
        pinned: true,
        stages: true,
        ..PROMPTS
    },
    READS,
    Workload { name: "c1", title: "(c) the same, both processes on one core", pinned: true, ..READS },
    Workload {
        name: "d",
        title: "(d) 200 sessions on one connection, 500 updates of 40 bytes each at once",
        play: Play::Sessions { sessions: 200, count: 500, bytes: 40 },
        quick: Play::Sessions { sessions: 50, count: 200, bytes: 40 },
        ..STREAM
    },
    Workload {
        name: "e",
        title: "(e) from spawning the agent to its answer to `initialize`",
        play: Play::Start { count: 20 },
        quick: Play::Start { count: 5 },
        figure: Figure::Millis,
        mixed: false,
        ..STREAM
    },
    Workload {
        name: "f",
        title: "(f) 10,000 idle sessions",
        play: Play::Idle { sessions: 10_000 },
        quick: Play::Idle { sessions: 1_000 },
        figure: Figure::Grown,
        floor: false,
        mixed: false,
        note: "The figure is the growth of each process divided by the number of sessions, including garbage that was not collected.\n\
            Ours keeps the state, the slot for a turn and the buffer between turns of each session.\n\
            The programs on the official SDKs keep only its id.",
        ..STREAM
    },
    Workload {
        name: "g",
        title: "(g) a prompt with an image of 8 MiB",
        play: Play::Image { bytes: 8 << 20, count: 5 },
        quick: Play::Image { bytes: 8 << 20, count: 2 },
        figure: Figure::Millis,
        mixed: false,
        ..STREAM
    },
    Workload {
        name: "h",
        title: "(h) a message that grows to 64 KiB, cleared and pushed again 2,000 times, folded on the way",
        play: Play::Redraw { rounds: 2_000, bytes: 64 << 10 },
        quick: Play::Redraw { rounds: 200, bytes: 64 << 10 },
        mixed: false,
        note: "Ours clears with `agent_message_clear` and folds into a `Conversation`.\n\
            The others have no clear. They send a chunk without text instead, and their client keeps a plain string.",
        ..STREAM
    },
];
