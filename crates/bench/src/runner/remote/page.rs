//! The page: the targets and the tables.

use std::fmt::Write as _;

use super::programs::{RELAYS, RemoteHop, RemoteSubject, STDIO, WHOLE, WITH_LOG, WITHOUT_LOG};
use super::{Runs, Sizes, TRANSPORTS};
use crate::play::Play;
use crate::remote::load::Load;
use crate::runner::pairs::OURS;
use crate::runner::play::{BenchRun, ProcessUsage};
use crate::runner::table::number;

const EXPLANATION: &str = "`cargo xtask bench remote` writes this page. [RFD 0010](rfds/0010-the-benchmark.md) gives the \
    reasons, and explains the targets that are missed.\nAll programs run on one machine, over the loopback address. Each figure \
    is the median of its rounds, in which the pairs alternate. On a\nbusy machine the ratios mean more than the times.";

const HOPS: &str = "The client is on our SDK, and so is the agent, which is a process behind pipes except behind a socket. \
    A row is compared with\nthe row that it extends. The programs that copy bytes are on no SDK: they show what two more\nprocesses cost on this machine. A change of the mode is a request whose response waits for the \
    write of its record. A prompt\nalso waits until its end is synced to the disk.";

const IDLE: &str = "Each connection has sent `initialize` and nothing else. The client is on no SDK. The figure is the growth of \
    the server's resident memory,\ndivided by the connections, in KB of 1,000 bytes. It has no memory of the system, such as the buffers of sockets.";

const READERS: &str = "Each session has a connection of its own, and all of them stream at once. The slow readers read nothing \
    before all others have ended, and\nhave small socket buffers. They receive everything afterwards. Meanwhile \
    another connection measures the round trip of a prompt. The rate\nis that of the others.";

fn p50(run: &BenchRun) -> Option<f64> {
    Some(run.latency_ns.p50 / 1e3)
}

fn p99(run: &BenchRun) -> Option<f64> {
    Some(run.latency_ns.p99 / 1e3)
}

/// Updates a second.
fn rate(messages: usize) -> impl Fn(&BenchRun) -> Option<f64> {
    move |run| Some(messages as f64 / run.wall_ns * 1e9)
}

/// The growth of the server for each connection, in KB, a thousand bytes.
fn grown(connections: usize) -> impl Fn(&BenchRun) -> Option<f64> {
    move |run| match run.agent.as_slice() {
        [before, after] => Some((after.rss_kib - before.rss_kib) * 1.024 / connections as f64),
        _ => None,
    }
}

fn peak(run: &BenchRun) -> Option<f64> {
    run.agent.last().map(|usage: &ProcessUsage| usage.peak_kib / 1024.0)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

/// Writes a table.
fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// The runs and the programs of the page.
struct Page<'a> {
    sizes: &'a Sizes,
    subjects: &'a [RemoteSubject],
    hops: &'a [RemoteHop],
    runs: &'a Runs,
    sync: f64,
}

/// Writes the page.
pub(super) fn text(
    head: &str,
    sizes: &Sizes,
    subjects: &[RemoteSubject],
    hops: &[RemoteHop],
    runs: &Runs,
    sync: f64,
    rounds: usize,
) -> String {
    let page = Page { sizes, subjects, hops, runs, sync };
    format!(
        "# Benchmarks over a network\n\n{EXPLANATION}\n\n{head}\n- Rounds: {rounds}\n\n## Targets\n\n{}\n{}\n{}\n{}\n{}\n{}",
        page.targets(),
        page.pairs("## Round trip of a prompt", &sizes.prompts, true),
        page.pairs("## Streaming of one turn", &sizes.stream, false),
        page.hops(),
        page.log(),
        page.loads(),
    )
}

impl Page<'_> {
    fn of(
        &self,
        transport: usize,
        name: &str,
        play: &Play,
        value: impl Fn(&BenchRun) -> Option<f64>,
    ) -> Option<f64> {
        self.runs.of(transport, name, &play.words(), value)
    }

    fn load(&self, name: &str, load: &Load, value: impl Fn(&BenchRun) -> Option<f64>) -> Option<f64> {
        self.runs.of(0, name, &load.words(), value)
    }

    /// Returns the best of the other SDKs, and its value. `best` compares two values.
    fn peer(
        &self,
        transport: usize,
        play: &Play,
        value: impl Fn(&BenchRun) -> Option<f64>,
        best: impl Fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let peers = self.subjects.iter().filter(|subject| !subject.is_ours);
        peers.filter_map(|peer| self.of(transport, peer.name, play, &value)).reduce(best)
    }

    fn targets(&self) -> String {
        let mut rows = Vec::new();
        let mut add = |asks: String, measured: Option<(String, bool)>| {
            let (measured, met) = measured.map_or(("–".to_owned(), "not measured"), |(text, met)| {
                (text, if met { "yes" } else { "**no**" })
            });
            rows.push(vec![asks, measured, met.to_owned()]);
        };
        let count = self.sizes.stream.promises().0;
        for (at, (transport, _)) in TRANSPORTS.iter().enumerate() {
            let ours = self.of(at, OURS, &self.sizes.stream, rate(count));
            let peer = self.peer(at, &self.sizes.stream, rate(count), f64::max);
            add(
                format!("{transport}: streaming at least 6 times the best official pair"),
                ours.zip(peer).map(|(ours, peer)| {
                    (
                        format!("{} × ({} to {})", number(ours / peer), number(ours), number(peer)),
                        ours >= 6.0 * peer,
                    )
                }),
            );
            let ours = self.of(at, OURS, &self.sizes.prompts, p50);
            let peer = self.peer(at, &self.sizes.prompts, p50, f64::min);
            add(
                format!("{transport}: p50 of a round trip at most half of the best official pair's"),
                ours.zip(peer).map(|(ours, peer)| {
                    (
                        format!("{} × ({} µs to {} µs)", number(ours / peer), number(ours), number(peer)),
                        2.0 * ours <= peer,
                    )
                }),
            );
        }
        let Load::Idle { connections } = self.sizes.idle else { return String::new() };
        add(
            format!("at most 30 KB for each of {connections} idle WebSockets"),
            self.load(OURS, &self.sizes.idle, grown(connections))
                .map(|each| (format!("{} KB", number(each)), each <= 30.0)),
        );
        let logged = self.sizes.logged.promises().0;
        for (at, (transport, _)) in TRANSPORTS.iter().enumerate() {
            let with = self.of(at, WITH_LOG, &self.sizes.logged, rate(logged));
            let without = self.of(at, WITHOUT_LOG, &self.sizes.logged, rate(logged));
            add(
                format!("{transport}: the log costs at most 30 % of the streaming rate"),
                with.zip(without).map(|(with, without)| {
                    let cost = 100.0 * (1.0 - with / without);
                    (format!("{} % ({} to {})", number(cost), number(with), number(without)), cost <= 30.0)
                }),
            );
            let (stdio, whole) =
                (self.of(at, STDIO, &self.sizes.modes, p50), self.of(at, WHOLE, &self.sizes.modes, p50));
            add(
                format!(
                    "{transport}: `connect` and `serve` with the log add at most 150 µs to the p50 of a request"
                ),
                whole.zip(stdio).map(|(whole, stdio)| {
                    let added = whole - stdio;
                    let floor = self.of(at, RELAYS, &self.sizes.modes, p50).map(|relays| relays - stdio);
                    let text = format!(
                        "{} µs ({} to {}); two programs that copy bytes add {} µs",
                        number(added),
                        number(whole),
                        number(stdio),
                        shown(floor)
                    );
                    (text, added <= 150.0)
                }),
            );
        }
        table(&["target", "measured", "met"], rows)
    }

    /// The table of the SDKs for one play.
    fn pairs(&self, title: &str, play: &Play, is_latency: bool) -> String {
        let count = play.promises().0;
        let mut text = format!("{title}: `{}`\n\n", play.words().join(" "));
        let figure = if is_latency { "p50 / p99, µs" } else { "updates/s" };
        let heads: Vec<String> = TRANSPORTS
            .iter()
            .flat_map(|(name, _)| [format!("{name}: {figure}"), "duologue is".into()])
            .collect();
        let heads: Vec<&str> =
            std::iter::once("client and server").chain(heads.iter().map(String::as_str)).collect();
        let rows = self.subjects.iter().map(|subject| {
            let mut row = vec![subject.name.to_owned()];
            for at in 0..TRANSPORTS.len() {
                if is_latency {
                    let of = |name| self.of(at, name, play, p50);
                    row.push(format!(
                        "{} / {}",
                        shown(of(subject.name)),
                        shown(self.of(at, subject.name, play, p99))
                    ));
                    row.push(ratio(of(subject.name), of(OURS), subject));
                } else {
                    let of = |name| self.of(at, name, play, rate(count));
                    row.push(shown(of(subject.name)));
                    row.push(ratio(of(OURS), of(subject.name), subject));
                }
            }
            row
        });
        text += &table(&heads, rows);
        text
    }

    fn hops(&self) -> String {
        let mut text = format!("## Each hop between a client on stdio and the agent\n\n{HOPS}\n");
        for (at, (transport, _)) in TRANSPORTS.iter().enumerate() {
            let rows = self.hops.iter().map(|hop| {
                let mut row = vec![hop.name.to_owned()];
                for play in [&self.sizes.modes, &self.sizes.synced] {
                    let of = |name| self.of(at, name, play, p50);
                    row.push(format!(
                        "{} / {}",
                        shown(of(hop.name)),
                        shown(self.of(at, hop.name, play, p99))
                    ));
                    let added = hop.before.and_then(|before| Some(of(hop.name)? - of(before)?));
                    row.push(shown(added));
                }
                row
            });
            let _ = write!(
                text,
                "\n{transport}:\n\n{}",
                table(
                    &[
                        "chain",
                        "change of the mode: p50 / p99, µs",
                        "added",
                        "prompt: p50 / p99, µs",
                        "added"
                    ],
                    rows
                )
            );
        }
        text
    }

    fn log(&self) -> String {
        let count = self.sizes.logged.promises().0;
        let mut text = format!("## The price of the log: `{}`\n\n", self.sizes.logged.words().join(" "));
        let heads: Vec<String> = TRANSPORTS.iter().map(|(name, _)| format!("{name}: updates/s")).collect();
        let heads: Vec<&str> = std::iter::once("chain").chain(heads.iter().map(String::as_str)).collect();
        let rows = self.hops.iter().map(|hop| {
            let rates =
                (0..TRANSPORTS.len()).map(|at| shown(self.of(at, hop.name, &self.sizes.logged, rate(count))));
            std::iter::once(hop.name.to_owned()).chain(rates).collect()
        });
        text += &table(&heads, rows);
        let price = |name| {
            let prompt = self.of(0, name, &self.sizes.synced, p50)?;
            Some(prompt - self.of(0, name, &self.sizes.modes, p50)?)
        };
        let _ = writeln!(
            text,
            "\nThe price of `synced`: a prompt takes {} µs more than a change of the mode with the log, and {} µs more without it.\n\
             A write of 256 bytes and its sync take {} µs on this disk (p50).",
            shown(price(WITH_LOG)),
            shown(price(WITHOUT_LOG)),
            number(self.sync)
        );
        text
    }

    fn loads(&self) -> String {
        let Load::Idle { connections } = self.sizes.idle else { return String::new() };
        let mut text = format!("## {} idle WebSockets\n\n{IDLE}\n\n", number(connections as f64));
        let rows = self.subjects.iter().map(|subject| {
            let of = |value: &dyn Fn(&BenchRun) -> Option<f64>| {
                shown(self.load(subject.name, &self.sizes.idle, value))
            };
            vec![subject.name.to_owned(), of(&grown(connections)), of(&peak)]
        });
        text += &table(&["server", "KB each", "peak, MiB"], rows);
        text += &format!("\nThe buffers of ours:\n\n{}", buffers());
        let Load::Readers { sessions, count, bytes, .. } = self.sizes.readers[1] else { return text };
        let _ = writeln!(
            text,
            "\n## {} sessions that stream {count} updates of {bytes} bytes each\n\n{READERS}\n",
            number(sessions as f64)
        );
        let rows = self.subjects.iter().flat_map(|subject| {
            self.sizes.readers.iter().map(|load| {
                let Load::Readers { slow, .. } = load else { return Vec::new() };
                let messages = load.promises().0;
                let of =
                    |value: &dyn Fn(&BenchRun) -> Option<f64>| shown(self.load(subject.name, load, value));
                vec![
                    subject.name.to_owned(),
                    slow.to_string(),
                    of(&rate(messages)),
                    format!(
                        "{} / {}",
                        of(&|run| Some(run.latency_ns.p50 / 1e6)),
                        of(&|run| Some(run.latency_ns.p99 / 1e6))
                    ),
                    of(&peak),
                ]
            })
        });
        text += &table(
            &[
                "server",
                "slow readers",
                "updates/s",
                "prompt beside them: p50 / p99, ms",
                "server's peak, MiB",
            ],
            rows,
        );
        text
    }
}

/// Returns the first value divided by the second, for another SDK.
fn ratio(one: Option<f64>, other: Option<f64>, subject: &RemoteSubject) -> String {
    let ratio = one.zip(other).filter(|_| !subject.is_ours);
    ratio.map_or_else(|| "–".to_owned(), |(one, other)| format!("{} ×", number(one / other)))
}

/// The table of the buffers that each connection has while it is idle.
fn buffers() -> String {
    let read = duologue_http::ServerOptions::default().read_buffer as f64 / 1024.0;
    let rows = [
        ("reading from the WebSocket (`ServerOptions::read_buffer`)", number(read)),
        ("lines of the client for the agent (`LineBuffer`)", "1".to_owned()),
        ("lines of the agent for the client (`LineBuffer`)", "1".to_owned()),
        ("writing to the WebSocket, frames in both directions", "as much as waits".to_owned()),
        ("tasks, the connection's state, the agent's peer", "the rest".to_owned()),
    ];
    table(&["buffer", "KiB"], rows.map(|(name, size)| vec![name.to_owned(), size]))
}
