//! Encrypted connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use duologue_http::{ConnectOptions, Error, RemoteTransport, ServerOptions, ServerTls, connect, serve};
use duologue_test_support::{Reproduction, in_time, runs, seed};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, HandshakeKind, RootCertStore};

use crate::cuts::{exchange_with_cuts, of_streams};
use crate::setup::{Lines, echo_endpoint, quick};

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

/// Nothing was sent before the handshake ends, so it is tried again.
#[tokio::test]
async fn a_connection_that_is_cut_in_its_handshake_is_opened_again() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (cert, key) = certificate(&folder);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let server = listener.local_addr().expect("an address");
        let mut options = ServerOptions::default();
        options.tls = Some(ServerTls::from_pem_files(&cert, &key).expect("a certificate"));
        tokio::spawn(serve(listener, echo_endpoint(), options));
        for transport in [RemoteTransport::WebSocket, RemoteTransport::Events] {
            for bytes in [0, 1, 100] {
                let relay = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
                let url = format!("https://localhost:{}/acp", relay.local_addr().expect("an address").port());
                tokio::spawn(async move {
                    let mut is_cut = false;
                    while let Ok((mut client, _)) = relay.accept().await {
                        let mut server = TcpStream::connect(server).await.expect("a connection");
                        if is_cut {
                            tokio::spawn(async move {
                                tokio::io::copy_bidirectional(&mut client, &mut server).await
                            });
                            continue;
                        }
                        is_cut = true;
                        let (mut from_client, mut to_client) = client.split();
                        let (from_server, mut to_server) = server.split();
                        let mut answer = from_server.take(bytes);
                        tokio::select! {
                            _ = tokio::io::copy(&mut answer, &mut to_client) => {}
                            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                        }
                    }
                });
                let mut options = quick();
                options.transport = transport;
                options.trust_pem_file(&cert).expect("a certificate");
                let (connection, _) = connect(&url, options).await.expect("a connection");
                Lines::new(connection).request(0, "initialize", json!({})).await;
            }
        }
    })
    .await;
}

/// A session that is resumed would bring a certificate that is not checked again.
#[tokio::test]
async fn a_session_with_a_client_certificate_is_not_resumed() {
    in_time(async {
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        let [(cert, key), (client_cert, client_key)] = folders.each_ref().map(certificate);
        let server = ServerTls::from_pem_files(&cert, &key).expect("a certificate");
        let asking = server.clone().accept_clients_of(&client_cert).expect("an authority");
        // Without certificates of clients the client resumes its session, so the test can see that.
        for (server, expected) in [(server, HandshakeKind::Resumed), (asking, HandshakeKind::Full)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let address = listener.local_addr().expect("an address");
            let mut options = ServerOptions::default();
            options.tls = Some(server);
            tokio::spawn(serve(listener, echo_endpoint(), options));
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(&cert).expect("a certificate")).expect("an authority");
            let chain = vec![CertificateDer::from_pem_file(&client_cert).expect("a certificate")];
            let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_protocol_versions(&[&TLS13])
                .expect("TLS 1.3")
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&client_key).expect("a key"))
                .expect("a certificate");
            // The configuration stores the sessions.
            let connector = TlsConnector::from(Arc::new(client));
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let stream = TcpStream::connect(address).await.expect("a connection");
                let name = ServerName::try_from("localhost").expect("a name");
                let mut stream = connector.connect(name, stream).await.expect("a handshake");
                let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
                stream.write_all(request.as_bytes()).await.expect("sent");
                // Tickets come before the response.
                let mut response = [0; 8];
                stream.read_exact(&mut response).await.expect("a response");
                assert_eq!(&response, b"HTTP/1.1");
                kinds.extend(stream.get_ref().1.handshake_kind());
            }
            assert_eq!(kinds, [HandshakeKind::Full, expected]);
        }
    })
    .await;
}

/// A cut sends no `close_notify`, and may be inside a record. It ends no connection: both sides resume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_of_encrypted_connections_lose_and_repeat_nothing() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (cert, key) = certificate(&folder);
        let (cuts, seed) = (runs(8), seed());
        let _reproduction = Reproduction::of("-p duologue-http --test it cuts_of_encrypted", seed, cuts);
        for transport in [RemoteTransport::WebSocket, RemoteTransport::Events] {
            let mut server = ServerOptions::default();
            server.tls = Some(ServerTls::from_pem_files(&cert, &key).expect("a certificate"));
            let mut options = quick();
            options.transport = transport;
            options.trust_pem_file(&cert).expect("a certificate");
            let url = |address: SocketAddr| format!("https://localhost:{}/acp", address.port());
            let rng = fastrand::Rng::with_seed(seed);
            let received = exchange_with_cuts(cuts, rng, server, url, options).await;
            assert_eq!(of_streams(&received.at_client), of_streams(&received.sent));
            assert_eq!(received.at_agent, received.sent);
            assert!(received.resumes >= cuts, "{} resumes", received.resumes);
        }
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
