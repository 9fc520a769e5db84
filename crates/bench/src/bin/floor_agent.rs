//! The agent of the floors: `nl` or `serde` comes first among its arguments.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    duologue_bench::floor::agent::main()
}
