//! The hot paths: the work of a connection for every update, and for every small request.
//!
//! One table serves three measures of the same work. `cargo bench -p duologue-microbench` measures time. `cargo xtask
//! instructions` counts instructions and allocations, which are the same on a busy machine.
//!
//! | group | one item |
//! |---|---|
//! | `decode/…` | a frequent type, read from its JSON |
//! | `encode/…` | such a type, written as JSON |
//! | `line/…` | a whole line with its envelope: a request or a response that is read |
//! | `frame/…` | a line that a connection reads and drops |
//! | `client/…` | an update, from its bytes to the turn's `next()` |
//! | `agent/…` | an update, from `push` to its bytes |
//! | `both/…` | a small request there and back, client and agent in one process |
//! | `hub/…` | an update of an agent, from its bytes to its record and to the frame for a client |
//! | `fold/…` | an update that is folded into a conversation |
//! | `render/…` | a rendered line of a recording |
//!
//! # Counting
//!
//! `cargo xtask instructions agent/update` counts one path, `cargo xtask instructions agent` those of a group. Without a
//! name it counts all of them. Its output and `instructions.txt` have the cost of *one item*.
//!
//! # Timing
//!
//! ```sh
//! cargo bench -p duologue-microbench -- --list
//! cargo bench -p duologue-microbench -- frame/empty
//! ```
//!
//! The name is a regular expression: `agent/update` times `agent/update_1k` too, `agent/update$` does not. The `time` is
//! that of *one run*, which for many paths has thousands of items ([`Path::items`]). Divide it by them, or read the
//! throughput below it: 5 Melem/s are 200 ns for each item.
//!
//! Both build in release mode, which takes minutes the first time and after a change to a crate below.
#![forbid(unsafe_code)]

mod agent;
mod both;
mod client;
mod fold;
mod frames;
mod hub;
mod played;
mod render;
mod types;

/// Work that is done once for each item of a conversation.
pub struct Path {
    /// The name, also used in the baseline.
    pub name: &'static str,
    /// Items of one run of the work.
    items: u64,
    prepare: fn() -> Work,
}

/// Work that was prepared: each call is one run of it.
pub type Work = Box<dyn FnMut()>;

/// Runs of work for one item when instructions are counted. Other work states its own number.
const SINGLE: u64 = 2_000;

impl Path {
    const fn new(name: &'static str, items: u64, prepare: fn() -> Work) -> Self {
        Path { name, items, prepare }
    }

    /// Gets everything ready that the work needs and is not part of it.
    #[must_use]
    pub fn prepare(&self) -> Work {
        (self.prepare)()
    }

    /// Returns the number of items of one run of the work.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of runs when instructions are counted.
    #[must_use]
    pub fn runs(&self) -> u64 {
        if self.items == 1 { SINGLE } else { 1 }
    }
}

/// All hot paths.
pub fn paths() -> impl Iterator<Item = &'static Path> {
    let groups = [
        types::PATHS,
        frames::PATHS,
        client::PATHS,
        agent::PATHS,
        both::PATHS,
        hub::PATHS,
        fold::PATHS,
        render::PATHS,
    ];
    groups.into_iter().flatten()
}

/// Runs the work. `cargo xtask instructions` knows it by its name: callgrind counts while it runs.
#[inline(never)]
pub fn counted(work: &mut Work, runs: u64) {
    for _ in 0..runs {
        work();
    }
}

/// Everything on one thread, so that nothing depends on who wakes first.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_path_can_be_gone_twice() {
        for path in super::paths() {
            let mut work = path.prepare();
            work();
            work();
        }
    }

    #[test]
    fn no_two_paths_have_one_name() {
        let mut names: Vec<_> = super::paths().map(|path| path.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
