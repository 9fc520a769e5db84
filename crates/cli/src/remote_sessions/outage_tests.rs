//! Tests of the relay while the server is away.

use std::task::{Context, Waker};

use tokio::sync::Notify;

use super::*;

#[test]
fn a_line_is_not_taken_while_the_server_is_away() {
    let prompt = br#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let mut client = RelayLines::new(&*[&prompt[..], b"\n"].concat().leak());
    let (refusals, _refused) = mpsc::channel(1);
    let (_answers, mut repeated) = mpsc::channel(1);
    let (book, mut server) = (Mutex::new(Book::default()), Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    let is_back = Notify::new();
    for is_away in [true, false] {
        let to_server = (&mut server, async || {
            if is_away {
                is_back.notified().await;
            }
        });
        // The next connection continues with the same client.
        let mut sending = pin!(send_to_server(&mut client, &mut repeated, &refusals, to_server, &book));
        let _ = sending.as_mut().poll(&mut cx);
        assert_eq!(book.lock_unpoisoned().pending.is_empty(), is_away);
    }
    assert_eq!(server, [&prompt[..], b"\n"].concat());
}

#[test]
fn an_outage_that_is_shorter_than_the_time_for_it_is_followed_by_another_connection() {
    use duologue_http::Error;

    let mut options = ConnectOptions::default();
    options.resume_time = Duration::from_secs(600);
    let gave_up = |seconds| Error::GaveUp {
        attempts: 9,
        elapsed: Duration::from_secs(seconds),
        last: "refused".into(),
    };
    for (error, expected) in [
        (Error::Lost { reason: "reset".into() }, Some(0)),
        (gave_up(60), Some(60)),
        (gave_up(600), None),
        (Error::Refused { status: 401, message: "no".into() }, None),
    ] {
        let text = error.to_string();
        let outage = replaceable_outage(&io::Error::other(error), &options);
        assert_eq!(outage, expected.map(Duration::from_secs), "{text}");
    }
}

/// The server refuses connections, accepts them and says nothing, or loses them.
#[tokio::test]
async fn the_end_of_the_client_ends_the_relay_before_the_first_answer() {
    use duologue_http::RemoteTransport::{Events, WebSocket};

    for transport in [WebSocket, Events] {
        for (is_listening, is_silent) in [(false, false), (true, true), (true, false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let accepting = tokio::spawn(async move {
                let mut open = Vec::new();
                if is_listening {
                    loop {
                        open.extend(listener.accept().await.ok().filter(|_| is_silent));
                    }
                }
            });
            let mut options = ConnectOptions::default();
            (options.transport, options.open_time) = (transport, Duration::from_secs(3600));
            let (client, editor) = Transport::memory();
            let (_output, mut input) = editor.into_split();
            input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n").await.unwrap();
            input.shutdown().await.unwrap();
            let settings = RelaySettings { end_wait: Duration::ZERO, ..RelaySettings::default() };
            let ended = relay(client, std::future::pending(), &url, &options, settings).await;
            ended.expect("it ends by itself");
            accepting.abort();
        }
    }
}
