//! The client of the floors: `nl` or `serde` comes first among its arguments.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    duologue_bench::floor::client::main()
}
