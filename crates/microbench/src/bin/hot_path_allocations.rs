//! Says what one item of each hot path allocates. A program of its own: its allocator counts, which costs instructions.

use duologue_microbench::{counted, paths};

#[expect(clippy::print_stdout, reason = "this is a program")]
fn main() {
    for path in paths() {
        let mut work = path.prepare();
        work();
        let counts = allocation_counter::measure(|| counted(&mut work, path.runs()));
        let items = path.runs() * path.items();
        println!("{} {:.2}", path.name, counts.count_total as f64 / items as f64);
    }
}
