//! The runner; `cargo xtask bench` builds what it needs and starts it.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    duologue_bench::runner::main()
}
