//! One part of the soak.

mod agent;
mod client;
mod part;

fn main() -> duologue_tests::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["agent", seed, seconds] => part::run([seed, seconds], agent::visit),
        ["client", seed, seconds] => part::run([seed, seconds], client::visit),
        _ => Err("soak agent|client SEED SECONDS".into()),
    }
}
