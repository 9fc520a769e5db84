//! Requests to addresses from outside: refused addresses, limits, and the handling of responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use duologue_hub::{
    OutboundClient, OutboundError, OutboundResponse, OutboundSettings, RefusedAddress, ResolveFuture,
    Resolver,
};
use duologue_rpc::Lock as _;
use duologue_test_support::in_time;
use tokio::net::TcpListener;

use crate::receiver::{PlayedResolver, Receiver, accept, loopback_client, loopback_settings, raw_server};

async fn post(client: &OutboundClient, url: &str) -> Result<OutboundResponse, OutboundError> {
    in_time(client.post("alice", url, HeaderMap::new(), Bytes::from_static(b"{}"))).await
}

fn refused(result: Result<OutboundResponse, OutboundError>) -> RefusedAddress {
    match result {
        Err(OutboundError::Refused { reason, .. }) => reason,
        other => panic!("it is not refused: {other:?}"),
    }
}

/// Each address as the text of a URL, and as the address of a name.
const REFUSED: [(&str, RefusedAddress); 28] = [
    ("127.0.0.1", RefusedAddress::Loopback),
    ("127.8.8.8", RefusedAddress::Loopback),
    ("::1", RefusedAddress::Loopback),
    ("0.0.0.0", RefusedAddress::Unspecified),
    ("::", RefusedAddress::Unspecified),
    ("10.1.2.3", RefusedAddress::Private),
    ("172.16.0.1", RefusedAddress::Private),
    ("192.168.0.1", RefusedAddress::Private),
    ("fc00::1", RefusedAddress::Private),
    ("fd00:ec2::254", RefusedAddress::Private),
    ("100.64.0.1", RefusedAddress::CarrierNat),
    ("100.100.100.200", RefusedAddress::CarrierNat),
    ("169.254.169.254", RefusedAddress::LinkLocal),
    ("fe80::1", RefusedAddress::LinkLocal),
    ("168.63.129.16", RefusedAddress::Metadata),
    ("224.0.0.1", RefusedAddress::Multicast),
    ("255.255.255.255", RefusedAddress::Multicast),
    ("ff02::1", RefusedAddress::Multicast),
    ("192.0.2.1", RefusedAddress::Documentation),
    ("2001:db8::1", RefusedAddress::Documentation),
    ("198.18.0.1", RefusedAddress::Benchmark),
    ("240.0.0.1", RefusedAddress::Reserved),
    ("::ffff:127.0.0.1", RefusedAddress::EmbeddedV4),
    ("::ffff:169.254.169.254", RefusedAddress::EmbeddedV4),
    ("::127.0.0.1", RefusedAddress::EmbeddedV4),
    ("2002:7f00:1::", RefusedAddress::EmbeddedV4),
    ("64:ff9b::7f00:1", RefusedAddress::EmbeddedV4),
    ("64:ff9b::a9fe:a9fe", RefusedAddress::EmbeddedV4),
];

#[tokio::test]
async fn addresses_of_internal_networks_are_refused() {
    for (address, reason) in REFUSED {
        let resolver = PlayedResolver::default().name("a.example", &[&[address]]);
        let client = OutboundClient::with_resolver(OutboundSettings::default(), resolver);
        let literal = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        assert_eq!(refused(post(&client, &format!("http://{literal}:8080/")).await), reason, "{address}");
        let error = post(&client, "http://a.example:8080/secret").await;
        // The addresses of internal names are no business of the client that names one.
        let shown = error.as_ref().expect_err(address).to_string();
        assert!(!shown.contains(address) && !shown.contains("secret"), "{shown}");
        assert_eq!(refused(error), reason, "{address}");
    }
}

#[tokio::test]
async fn a_setting_allows_loopback_and_nothing_else() {
    let client = loopback_client();
    for (address, reason) in REFUSED {
        if reason != RefusedAddress::Loopback {
            let literal = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
            assert_eq!(refused(post(&client, &format!("http://{literal}:8080/")).await), reason);
        }
    }
    let receiver = Receiver::start(accept).await;
    assert_eq!(post(&client, &receiver.url("/")).await.expect("a response").status, 204);
    let strict = OutboundClient::new(OutboundSettings::default());
    assert_eq!(refused(post(&strict, &receiver.url("/")).await), RefusedAddress::Loopback);
    // The resolver of the system finds this machine too.
    let localhost = format!("http://localhost:{}/", receiver.address.port());
    assert_eq!(refused(post(&strict, &localhost).await), RefusedAddress::Loopback);
    assert_eq!(post(&client, &localhost).await.expect("a response").status, 204);
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn forms_of_addresses_that_only_some_programs_read_are_refused() {
    let receiver = Receiver::start(accept).await;
    let port = receiver.address.port();
    for host in ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "[::1%25lo]", "localhost."]
    {
        let error = post(&loopback_client(), &format!("http://{host}:{port}/")).await;
        assert!(matches!(error, Err(OutboundError::Url { .. })), "{host}: {error:?}");
    }
    for url in [
        format!("http://user:password@127.0.0.1:{port}/"),
        format!("http://a.example@127.0.0.1:{port}/"),
        format!("ftp://127.0.0.1:{port}/"),
        "file:///etc/passwd".to_owned(),
        "http://127.0.0.1:0/".to_owned(),
    ] {
        let error = post(&loopback_client(), &url).await;
        assert!(matches!(error, Err(OutboundError::Url { .. })), "{url}: {error:?}");
    }
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn a_host_with_one_refused_address_is_refused_whole() {
    let receiver = Receiver::start(accept).await;
    let resolver = PlayedResolver::default()
        .name("first.example", &[&["10.0.0.1", "127.0.0.1"]])
        .name("last.example", &[&["127.0.0.1", "169.254.169.254"]])
        .name("mapped.example", &[&["127.0.0.1", "::ffff:10.0.0.1"]])
        .name("none.example", &[&[]]);
    let client = OutboundClient::with_resolver(loopback_settings(), resolver);
    let port = receiver.address.port();
    for host in ["first", "last", "mapped"] {
        refused(post(&client, &format!("http://{host}.example:{port}/")).await);
    }
    for host in ["none", "unknown"] {
        let error = post(&client, &format!("http://{host}.example:{port}/")).await;
        assert!(matches!(error, Err(OutboundError::Resolve { .. })), "{error:?}");
    }
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_resolved_once_for_each_request() {
    let receiver = Receiver::start(accept).await;
    // The allowed address plays a public one here.
    let resolver = PlayedResolver::default().name("a.example", &[&["127.0.0.1"], &["10.0.0.1"]]);
    let lookups = resolver.lookups.clone();
    let client = OutboundClient::with_resolver(loopback_settings(), resolver);
    let url = format!("http://a.example:{}/hook", receiver.address.port());
    assert_eq!(post(&client, &url).await.expect("a response").status, 204);
    // A second resolution for the connection would have found the other address.
    assert_eq!(lookups.lock_unpoisoned().len(), 1);
    assert_eq!(refused(post(&client, &url).await), RefusedAddress::Private);
    assert_eq!(receiver.received().len(), 1);
    let host = format!("a.example:{}", receiver.address.port());
    assert_eq!(receiver.received()[0].headers["host"], host);
}

#[tokio::test]
async fn a_name_with_too_many_addresses_is_refused() {
    let many = vec!["127.0.0.1"; 33];
    let resolver = PlayedResolver::default().name("a.example", &[&many]);
    let client = OutboundClient::with_resolver(loopback_settings(), resolver);
    let error = post(&client, "http://a.example:8080/").await.expect_err("refused");
    assert!(matches!(error, OutboundError::Addresses { count: 33, limit: 32, .. }), "{error}");
}

#[tokio::test]
async fn the_next_address_is_tried() {
    let receiver = Receiver::start(accept).await;
    let resolver = PlayedResolver::default().name("a.example", &[&["127.0.0.9", "127.0.0.1"]]);
    let client = OutboundClient::with_resolver(loopback_settings(), resolver);
    let url = format!("http://a.example:{}/", receiver.address.port());
    assert_eq!(post(&client, &url).await.expect("a response").status, 204);
    let dead = TcpListener::bind("127.0.0.1:0").await.expect("a listener").local_addr().expect("an address");
    let error = post(&loopback_client(), &format!("http://{dead}/")).await.expect_err("nobody is there");
    assert!(matches!(error, OutboundError::Connect { .. }) && !error.is_permanent(), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Receiver::start(accept).await;
    let location = target.url("/internal");
    let receiver = Receiver::start(move |number, _| {
        let status = [301, 302, 303, 307, 308][number];
        (StatusCode::from_u16(status).expect("a status"), [("location", location.clone())]).into_response()
    })
    .await;
    for status in [301, 302, 303, 307, 308] {
        let response = post(&loopback_client(), &receiver.url("/")).await.expect("a response");
        assert_eq!(response.status, status);
    }
    assert!(target.received().is_empty());
}

#[tokio::test]
async fn headers_and_body_are_sent_and_host_is_ours() {
    let receiver = Receiver::start(|_, _| {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "7")], "a secret page").into_response()
    })
    .await;
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().expect("a value"));
    headers.insert("host", "metadata.internal".parse().expect("a value"));
    headers.insert("connection", "upgrade".parse().expect("a value"));
    let body = Bytes::from_static(b"{\"a\":1}");
    let (client, url) = (loopback_client(), receiver.url("/a?b=c"));
    let response = in_time(client.post("alice", &url, headers, body.clone())).await.expect("a response");
    assert_eq!((response.status.as_u16(), response.retry_after.as_deref()), (503, Some("7")));
    assert!(!format!("{response:?}").contains("secret"));
    let received = receiver.received().remove(0);
    assert_eq!((received.path.as_str(), received.body), ("/a?b=c", body));
    assert_eq!(received.headers["content-type"], "application/json");
    assert_eq!(received.headers["content-length"], "7");
    assert_eq!(received.headers["host"], receiver.address.to_string().as_str());
    assert_eq!(received.headers["connection"], "close");
    assert!(received.headers["user-agent"].to_str().expect("text").starts_with("duologue-hub/"));
}

#[tokio::test]
async fn a_silent_server_ends_at_the_time_limit() {
    let mut settings = loopback_settings();
    settings.total_timeout = Duration::from_millis(100);
    let client = OutboundClient::new(settings);
    // It sends a head byte by byte, and never its end.
    let pause = Duration::from_millis(10);
    for (first, repeated) in [("", ""), ("HTTP/1.1 200 OK\r\nx: ", "y")] {
        let (address, _server) = raw_server(first.into(), repeated.into(), pause).await;
        let error = post(&client, &format!("http://{address}/")).await.expect_err("no response");
        assert!(matches!(error, OutboundError::Timeout { setting: "total_timeout", .. }), "{error}");
    }
}

struct SilentResolver;

impl Resolver for SilentResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_server_without_an_answer_ends_at_the_time_limit() {
    let client = OutboundClient::with_resolver(loopback_settings(), SilentResolver);
    let error = post(&client, "http://a.example/").await.expect_err("no address");
    assert!(matches!(error, OutboundError::Timeout { setting: "connect_timeout", .. }), "{error}");
}

/// Names whose name server does not answer, and others of this machine.
struct SlowNames;

impl Resolver for SlowNames {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            match name.starts_with("slow") {
                true => std::future::pending().await,
                false => Ok(vec![[127, 0, 0, 1].into()]),
            }
        })
    }
}

#[tokio::test]
async fn slow_names_of_a_principal_delay_nobody_else() {
    let receiver = Receiver::start(accept).await;
    let client = OutboundClient::with_resolver(loopback_settings(), SlowNames);
    let mut slow = tokio::task::JoinSet::new();
    for number in 0..20 {
        let client = client.clone();
        slow.spawn(async move {
            let url = format!("http://slow{number}.example/");
            client.post("mallory", &url, HeaderMap::new(), Bytes::new()).await
        });
    }
    // All of them wait, for the name or for a place.
    tokio::task::yield_now().await;
    let url = format!("http://a.example:{}/", receiver.address.port());
    assert_eq!(post(&client, &url).await.expect("a response").status, 204);
    assert!(slow.try_join_next().is_none());
}

#[tokio::test]
async fn a_slow_body_does_not_change_the_status_or_take_longer() {
    let mut settings = loopback_settings();
    settings.response_body_timeout = Duration::from_millis(50);
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
    let (address, _server) = raw_server(head.into(), "x".into(), Duration::from_millis(10)).await;
    let start = Instant::now();
    let response = post(&OutboundClient::new(settings), &format!("http://{address}/")).await;
    assert_eq!(response.expect("a response").status, 200);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn an_endless_body_is_read_to_the_limit_alone() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
    let (address, mut server) = raw_server(head.into(), chunk.into(), Duration::ZERO).await;
    let mut settings = loopback_settings();
    settings.response_body_timeout = Duration::from_secs(60);
    let response = post(&OutboundClient::new(settings), &format!("http://{address}/")).await;
    assert_eq!(response.expect("a response").status, 200);
    // The server can write until the connection is closed: the limit, and the buffers of both systems.
    let written = in_time(server.join_next()).await.expect("a server").expect("no panic");
    assert!(written < 64 * 1024 * 1024, "{written}");
}

#[tokio::test]
async fn a_huge_head_is_an_error() {
    let long = format!("x: {}\r\n", "y".repeat(1000));
    let short = "x: y\r\n".repeat(50);
    for repeated in [long, short] {
        let (address, _server) =
            raw_server("HTTP/1.1 200 OK\r\n".into(), repeated.into(), Duration::ZERO).await;
        let error = post(&loopback_client(), &format!("http://{address}/")).await.expect_err("too large");
        assert!(matches!(error, OutboundError::HeadTooLarge { limit: 16384, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn text_that_is_not_http_is_an_error_without_that_text() {
    let (address, _server) =
        raw_server("-SECRET unknown command\r\n\r\n".into(), Vec::new(), Duration::ZERO).await;
    let error = post(&loopback_client(), &format!("http://{address}/")).await.expect_err("no response");
    assert!(
        matches!(error, OutboundError::Protocol { .. }) && !error.to_string().contains("SECRET"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_the_limit_wait() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (running.clone(), most.clone());
    let receiver = Receiver::start(move |_, _| {
        let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
        counts.1.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        counts.0.fetch_sub(1, Ordering::SeqCst);
        StatusCode::OK.into_response()
    })
    .await;
    let mut settings = loopback_settings();
    settings.concurrent = 1;
    let client = OutboundClient::new(settings);
    let url = receiver.url("/");
    let all =
        tokio::join!(post(&client, &url), post(&client, &url), post(&client, &url), post(&client, &url));
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok() && all.3.is_ok());
    assert_eq!((receiver.received().len(), most.load(Ordering::SeqCst)), (4, 1));
}

#[cfg(feature = "tls")]
mod tls {
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring::default_provider};

    use super::*;

    /// The certificate is checked against the name of the URL, and the connection goes to the checked address.
    #[tokio::test]
    async fn the_certificate_is_that_of_the_name() {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".into()]).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let _server = tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                let _ = stream.shutdown().await;
            }
        });
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut settings = loopback_settings();
        settings.tls = Some(Arc::new(config));
        let resolver = PlayedResolver::default()
            .name("a.example", &[&["127.0.0.1"]])
            .name("b.example", &[&["127.0.0.1"]]);
        let client = OutboundClient::with_resolver(settings, resolver);
        let response = post(&client, &format!("https://a.example:{port}/")).await.expect("a response");
        assert_eq!(response.status, 204);
        for host in ["b.example", "127.0.0.1"] {
            let error = post(&client, &format!("https://{host}:{port}/")).await.expect_err("another name");
            assert!(matches!(error, OutboundError::Tls { .. }), "{error:?}");
            assert!(!error.to_string().contains("a.example"), "{error}");
        }
    }
}
