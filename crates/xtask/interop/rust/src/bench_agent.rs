//! The agent of the benchmark on the official Rust crate, on stdio.

mod bench;

use agent_client_protocol::{ConnectTo as _, Result, Stdio};
use bench::agent::agent;
use bench::{Kind, synchronous};

fn main() -> Result<()> {
    let (kind, _) = Kind::read();
    kind.runtime()?.block_on(async {
        match kind {
            Kind::Stock => agent().connect_to(Stdio::new()).await,
            Kind::Sync => agent().connect_to(synchronous(std::io::stdin(), std::io::stdout())).await,
        }
    })
}
