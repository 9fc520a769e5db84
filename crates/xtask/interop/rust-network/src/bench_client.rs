//! The client of the benchmark on the official Rust crate, over HTTP or WebSocket: `KIND PLAY NUMBER.. -- URL`

#[path = "../../rust/src/bench/mod.rs"]
mod bench;

use agent_client_protocol::{Error, Result};
use agent_client_protocol_http::HttpClient;
use bench::Kind;
use bench::client::{Stage, connected_to};
use bench::play::Play;

fn main() -> Result<()> {
    let (kind, args) = Kind::read();
    let end = args.iter().position(|arg| arg == "--").expect("PLAY NUMBER.. -- URL");
    let (play, url) = (Play::parse(&args[..end]).expect("a play"), args[end + 1].clone());
    let figures = kind.runtime()?.block_on(async {
        let server = HttpClient::with_endpoint(url).map_err(Error::into_internal_error)?;
        connected_to(server, async |stage: Stage| stage.play(play).await).await
    })?;
    println!("{}", figures.line());
    Ok(())
}
