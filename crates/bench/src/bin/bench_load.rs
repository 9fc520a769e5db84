//! The client of many plain WebSockets. Its runtime has one thread.

fn main() -> std::process::ExitCode {
    duologue_bench::run(duologue_bench::remote::load::main())
}
