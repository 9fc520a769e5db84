//! The agent of the benchmark on the official Rust crate, over HTTP and WebSocket at an address that it prints.

#[path = "../../rust/src/bench/mod.rs"]
mod bench;

use agent_client_protocol::{Error, Result};
use agent_client_protocol_http::AcpHttpServer;
use axum::serve::ListenerExt as _;
use bench::Kind;
use bench::agent::agent;

fn main() -> Result<()> {
    let (kind, _) = Kind::read();
    kind.runtime()?.block_on(async {
        let bound = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = bound.map_err(Error::into_internal_error)?;
        println!("{}", listener.local_addr().map_err(Error::into_internal_error)?);
        let router = AcpHttpServer::new(agent).into_router();
        // Its documentation has no such line. Without it small messages can wait for 40 ms.
        let listener = listener.tap_io(|socket| _ = socket.set_nodelay(true));
        axum::serve(listener, router).await.map_err(Error::into_internal_error)
    })
}
