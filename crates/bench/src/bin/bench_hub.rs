//! The load figures of a hub and its store; `cargo xtask bench hub` builds and starts it.

fn main() -> Result<(), duologue_bench::hub::HubFailure> {
    duologue_bench::hub::main()
}
