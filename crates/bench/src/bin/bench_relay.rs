//! The floor of two hops: a process that copies bytes, with a blocking thread for each direction.

fn main() -> std::io::Result<()> {
    duologue_bench::remote::relay::main()
}
