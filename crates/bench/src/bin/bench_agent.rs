//! The agent on our SDK. Its runtime has one thread, or one a core when it is started with `--many-threads`.

fn main() -> std::process::ExitCode {
    duologue_bench::run(duologue_bench::agent::main(|| None))
}
