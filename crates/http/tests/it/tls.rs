//! Encrypted connections.

use std::path::PathBuf;

use duologue_http::{ConnectOptions, Error, RemoteTransport, ServerOptions, ServerTls, connect, serve};
use duologue_test_support::in_time;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::setup::{Lines, echo_endpoint};

/// A certificate for `localhost` that signs itself, and its key.
fn certificate(folder: &tempfile::TempDir) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    (cert, key)
}

#[tokio::test]
async fn both_transports_are_encrypted() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (cert, key) = certificate(&folder);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut options = ServerOptions::default();
        options.tls = Some(ServerTls::from_pem_files(&cert, &key).expect("a certificate"));
        tokio::spawn(serve(listener, echo_endpoint(), options));
        // A client that does not finish the handshake holds up nobody.
        let mut silent = TcpStream::connect(address).await.expect("a connection");
        silent.write_all(b"GET / HTTP/1.1\r\n").await.expect("sent");
        let url = format!("https://localhost:{}/acp", address.port());
        for transport in [RemoteTransport::WebSocket, RemoteTransport::Events] {
            let mut options = ConnectOptions::default();
            options.transport = transport;
            options.trust_pem_file(&cert).expect("a certificate");
            let (connection, _) = connect(&url, options).await.expect("a connection");
            let mut lines = Lines::new(connection);
            lines.request(0, "initialize", json!({})).await;
            lines.request(1, "echo", json!({"a": 1})).await;
        }
        let untrusted = connect(&url, ConnectOptions::default()).await;
        assert!(matches!(untrusted, Err(Error::Tls(_))), "{:?}", untrusted.err());
        let mut options = ConnectOptions::default();
        options.trust_pem_file(&cert).expect("a certificate");
        let other_name = connect(&format!("https://127.0.0.1:{}/acp", address.port()), options).await;
        assert!(matches!(other_name, Err(Error::Tls(_))), "{:?}", other_name.err());
    })
    .await;
}

#[test]
fn files_without_a_certificate_or_with_another_key_are_refused() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let [(cert, key), (_, other_key)] = folders.each_ref().map(certificate);
    for (cert, key) in [(&key, &key), (&cert, &cert), (&cert, &other_key), (&cert, &key.with_extension("no"))]
    {
        let error = ServerTls::from_pem_files(cert, key).expect_err("it is refused").to_string();
        assert!(error.contains(".pem") || error.contains(".no"), "{error}");
    }
    assert!(ConnectOptions::default().trust_pem_file(&key).is_err());
}
