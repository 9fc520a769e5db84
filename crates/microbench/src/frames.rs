//! Lines as a connection reads them, before anybody asks what they mean.

use std::io::Cursor;
use std::sync::Arc;

use duologue_rpc::{Incoming, PeerBuilder, Responder, Service, Transport};

use crate::{Path, Work, runtime};

const LINES: u64 = 10_000;
const LONG_LINES: u64 = 8;

pub(crate) const PATHS: &[Path] = &[
    Path::new("frame/empty", LINES, || lines("\n", LINES)),
    Path::new("frame/notification", LINES, || lines(&note(200), LINES)),
    Path::new("frame/notification_256k", LONG_LINES, || lines(&note(256 * 1024), LONG_LINES)),
];

/// A line with so many bytes of text, which nobody takes.
fn note(bytes: usize) -> String {
    let text = "x".repeat(bytes);
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"_note\",\"params\":{{\"text\":\"{text}\"}}}}\n")
}

/// Takes everything and does nothing.
struct Nobody;

impl Service for Nobody {
    fn request(&self, _: Incoming<'_>, _: Responder) {}
    fn notification(&self, _: Incoming<'_>) {}
}

/// A connection that reads the same line so often, to the end of its input.
fn lines(line: &str, count: u64) -> Work {
    let input: Arc<[u8]> = line.repeat(count as usize).into_bytes().into();
    let runtime = runtime();
    Box::new(move || {
        let transport = Transport::new(Cursor::new(input.clone()), tokio::io::sink());
        runtime.block_on(async { PeerBuilder::new(transport).start(|_| Nobody).closed().await });
    })
}
