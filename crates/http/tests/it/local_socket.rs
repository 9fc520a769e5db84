//! The Unix socket of a server.
#![cfg(unix)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use duologue_http::{
    ConnectOptions, Error, Listeners, LocalListener, RemoteTransport, ServerOptions, connect,
};
use duologue_test_support::in_time;
use serde_json::json;
use tokio::net::TcpListener;

use crate::setup::{Lines, echo_endpoint, initialize, quick};

/// Starts a server with a token on a socket and a port, and returns the address of the port.
async fn serve(path: &Path) -> String {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = format!("http://{}/acp", tcp.local_addr().expect("an address"));
    let listeners = Listeners::from(tcp).and_local(LocalListener::bind(path).expect("a socket"));
    let mut options = ServerOptions::default();
    options.token = Some("secret".into());
    tokio::spawn(duologue_http::serve(listeners, echo_endpoint(), options));
    url
}

fn over(path: &Path) -> ConnectOptions {
    let mut options = quick();
    options.socket = Some(path.to_owned());
    options
}

#[tokio::test]
async fn programs_of_the_user_need_no_token() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let url = serve(&path).await;
        for transport in [RemoteTransport::WebSocket, RemoteTransport::Events] {
            let mut options = over(&path);
            options.transport = transport;
            let (transport, _link) = connect("http://localhost/acp", options).await.expect("a connection");
            let mut lines = Lines::new(transport);
            lines.send(&initialize()).await;
            assert_eq!(lines.next().await.expect("an answer")["id"], 0);
            let (echo, _) = lines.request(1, "echo", json!({"text": "hello"})).await;
            assert_eq!(echo["result"]["text"], "hello");
        }
        let refused = connect(&url, quick()).await.err();
        assert!(matches!(refused, Some(Error::Refused { status: 401, .. })), "{refused:?}");
        // A wrong token stays wrong.
        let mut options = over(&path);
        options.bearer_token = Some("wrong".into());
        let refused = connect("http://localhost/acp", options).await.err();
        assert!(matches!(refused, Some(Error::Refused { status: 401, .. })), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn a_socket_belongs_to_one_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = LocalListener::bind(&path).expect("a socket");
    let mode = fs::symlink_metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = LocalListener::bind(&path).expect_err("a program listens");
    assert_eq!(second.kind(), ErrorKind::AddrInUse);
    drop(listener);
    assert!(!path.exists());

    // A killed server leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    assert!(fs::symlink_metadata(&path).expect("a file").file_type().is_socket());
    drop(LocalListener::bind(&path).expect("a socket"));

    // Other files stay.
    fs::write(&path, "a file").expect("a file");
    let file = LocalListener::bind(&path).expect_err("no socket");
    assert_eq!(file.kind(), ErrorKind::AddrInUse);
    assert_eq!(file.to_string(), format!("{}: the file is not a socket", path.display()));
    assert_eq!(fs::read_to_string(&path).expect("a file"), "a file");
    fs::remove_file(&path).expect("a file");
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).expect("a link");
    assert_eq!(LocalListener::bind(&path).expect_err("a link").kind(), ErrorKind::AddrInUse);

    let long = folder.path().join("a".repeat(100));
    let refused = LocalListener::bind(&long).expect_err("a long path");
    assert!(refused.to_string().contains("the limit is 100"), "{refused}");
}
