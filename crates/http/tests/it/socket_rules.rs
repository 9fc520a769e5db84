//! The rules of a socket: its first message, limits, acknowledgements and its end.

use std::time::Duration;

use duologue_http::{
    AgentEndpoint, AgentEndpointOptions, ClientPresence, Error, ServerOptions, close_code, connect,
};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::setup::{Lines, RawSocket, echo_agent, echo_endpoint, initialize, quick, server, url};

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Opens a connection. Returns its socket, the params of a resume, and the response to `initialize`.
async fn opened(address: std::net::SocketAddr) -> (RawSocket, Value, Value) {
    let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let stream = tokio_tungstenite::MaybeTlsStream::Plain(stream);
    let (socket, response) = tokio_tungstenite::client_async(url(address), stream).await.expect("a socket");
    let id = response.headers()["acp-connection-id"].to_str().expect("text").to_owned();
    let mut socket = RawSocket(socket);
    socket.send_json(&initialize()).await;
    let answer = socket.next().await.expect("the response");
    let secret = answer["result"]["_meta"]["duologue"]["resume"]["secret"].clone();
    (socket, json!({"connectionId": id, "secret": secret}), answer)
}

fn resume(params: &Value, cursors: Value) -> Value {
    let mut params = params.clone();
    params["cursors"] = cursors;
    json!({"jsonrpc": "2.0", "method": "stream/resume", "params": params})
}

#[tokio::test]
async fn the_first_message_has_to_open_or_resume_a_connection() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        for first in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "session/new"}),
            json!({"jsonrpc": "2.0", "method": "initialize", "params": {}}),
            json!({"jsonrpc": "2.0", "method": "stream/resume", "params": {}}),
            json!([]),
        ] {
            let mut socket = RawSocket::open(address).await;
            socket.send_json(&first).await;
            assert_eq!(socket.next().await, Err(Some(close_code::PROTOCOL)), "{first}");
        }
        let mut options = ServerOptions::default();
        options.handshake_timeout = Duration::from_secs(1);
        let mut socket = RawSocket::open(server(echo_endpoint(), options).await).await;
        assert_eq!(socket.next().await, Err(Some(close_code::STALLED)), "nothing was sent in time");
    })
    .await;
}

#[tokio::test]
async fn binary_messages_are_ignored_and_line_breaks_become_spaces() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let mut socket = RawSocket::open(address).await;
        socket.send(Message::Binary(vec![1, 2].into())).await;
        socket.send("\n").await;
        socket.send(format!("{:#}", initialize())).await;
        assert_eq!(socket.next().await.expect("a response")["id"], 0);
        socket.send(Message::Binary(vec![1, 2].into())).await;
        socket.send(format!("{:#}", request(1, "echo", json!({"a": [1]})))).await;
        assert_eq!(socket.next().await.expect("a response")["result"], json!({"a": [1]}));
    })
    .await;
}

#[tokio::test]
async fn initialize_advertises_resumption_and_the_first_frames_have_cursors() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let (mut socket, _, answer) = opened(address).await;
        let result = &answer["result"];
        let resumable = &result["agentCapabilities"]["transport"]["resumable"];
        assert_eq!(resumable["retentionSeconds"], 600);
        assert!(resumable["retentionMessages"].as_u64() > Some(0));
        assert_eq!(result["_meta"]["acp/cursor"], "1");
        socket.send_json(&request(1, "count", json!({"sessionId": "s", "count": 130}))).await;
        let mut cursors = Vec::new();
        for number in 1..=130 {
            let update = socket.next().await.expect("an update");
            assert_eq!(update["params"]["number"], number);
            cursors.extend(update["params"]["_meta"]["acp/cursor"].as_str().map(str::to_owned));
        }
        assert_eq!(cursors, ["1", "65", "129"]);
        // The client did not want acknowledgements.
        assert_eq!(socket.next().await.expect("the response")["id"], 1);
    })
    .await;
}

/// A client that has received some frames gets exactly the others, in one order, and its own number of frames.
#[tokio::test]
async fn a_resume_sends_what_is_missing_and_supersedes_the_older_socket() {
    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let (mut first, params, _) = opened(address).await;
        first.send_json(&request(1, "count", json!({"sessionId": "s", "count": 70}))).await;
        for _ in 0..67 {
            first.next().await.expect("an update");
        }
        let mut second = RawSocket::open(address).await;
        let cursors = json!([{"cursor": "1"}, {"sessionId": "s", "cursor": "65", "frames": 2}]);
        second.send_json(&resume(&params, cursors)).await;
        let resumed = second.next().await.expect("an answer");
        assert_eq!(
            (&resumed["method"], &resumed["params"]["received"]),
            (&json!("stream/resumed"), &json!(2))
        );
        for number in 68..=70 {
            assert_eq!(second.next().await.expect("an update")["params"]["number"], number);
        }
        assert_eq!(second.next().await.expect("the response")["id"], 1);
        loop {
            match first.next().await {
                Ok(_) => {}
                Err(code) => break assert_eq!(code, Some(close_code::SUPERSEDED)),
            }
        }
        // A client that has resumed gets acknowledgements.
        second.send_json(&request(2, "echo", json!({}))).await;
        let (one, two) = (second.next().await.expect("one"), second.next().await.expect("two"));
        assert_eq!(one["id"], 2);
        assert_eq!((&two["method"], &two["params"]["received"]), (&json!("stream/ack"), &json!(3)));
    })
    .await;
}

#[tokio::test]
async fn a_resume_needs_the_secret_and_a_position_that_is_kept() {
    in_time(async {
        let mut options = AgentEndpointOptions::default();
        options.retained_bytes = 0;
        let endpoint = AgentEndpoint::with_options(echo_agent, options);
        let mut server_options = ServerOptions::default();
        server_options.keepalive = Duration::from_millis(50);
        server_options.missed_keepalives = 1000;
        let address = server(endpoint, server_options).await;
        let (mut first, params, _) = opened(address).await;
        first.send_json(&request(1, "count", json!({"sessionId": "s", "count": 10}))).await;
        for _ in 0..11 {
            first.next().await.expect("a frame");
        }
        // The answer to a ping confirms the frames. The server has read it before the next request.
        first.answer_ping().await;
        first.send_json(&request(2, "echo", json!({}))).await;
        assert_eq!(first.next().await.expect("the echo")["id"], 2);
        let mut wrong = params.clone();
        wrong["secret"] = json!("0".repeat(32));
        let mut none = params.clone();
        none["connectionId"] = json!("x");
        for (params, cursors, reason) in [
            (&wrong, json!([]), "unknown_connection"),
            (&none, json!([]), "unknown_connection"),
            (&params, json!([]), "cursor_gone"),
            (&params, json!([{"cursor": "1", "frames": 9}]), "invalid_cursor"),
        ] {
            let mut socket = RawSocket::open(address).await;
            socket.send_json(&resume(params, cursors)).await;
            let refused = socket.next().await.expect("an answer");
            assert_eq!(refused["method"], "stream/resume_failed");
            assert_eq!(refused["params"]["reason"], reason);
            assert_eq!(socket.next().await, Err(Some(close_code::NORMAL)));
        }
        let mut socket = RawSocket::open(address).await;
        let cursors = json!([{"cursor": "1", "frames": 1}, {"sessionId": "s", "cursor": "1", "frames": 9}]);
        socket.send_json(&resume(&params, cursors)).await;
        assert_eq!(socket.next().await.expect("an answer")["method"], "stream/resumed");
    })
    .await;
}

#[tokio::test]
async fn messages_over_the_limit_end_the_connection_with_the_name_of_the_setting() {
    in_time(async {
        let mut options = ServerOptions::default();
        options.frame_bytes = 1000;
        let address = server(echo_endpoint(), options).await;
        let (mut socket, ..) = opened(address).await;
        socket.send_json(&request(1, "echo", json!("x".repeat(2000)))).await;
        assert_eq!(socket.next().await, Err(Some(close_code::TOO_BIG)));

        let (transport, _) = connect(&url(address), quick()).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.request(0, "initialize", json!({})).await;
        lines.send(&request(1, "echo", json!("x".repeat(2000)))).await;
        match lines.error().await {
            Some(Error::Closed { code: close_code::TOO_BIG, reason }) => {
                assert!(reason.contains("ServerOptions::frame_bytes"), "{reason}");
            }
            other => panic!("{other:?}"),
        }

        // The limit of the client, for a message in each direction.
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        for params in [json!({"count": 1, "sessionId": "x".repeat(990)}), json!("x".repeat(2000))] {
            let mut options = quick();
            options.frame_bytes = 1000;
            let (transport, _) = connect(&url(address), options).await.expect("a connection");
            let mut lines = Lines::new(transport);
            lines.request(0, "initialize", json!({})).await;
            lines.send_text(&json!({"id": 1, "method": "count", "params": params}).to_string()).await;
            match lines.error().await {
                Some(Error::FrameTooLarge { bytes, limit: 1000 }) => assert!(bytes > 1000),
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_initialize_is_answered() {
    in_time(async {
        let mut options = AgentEndpointOptions::default();
        options.connections = 0;
        let address =
            server(AgentEndpoint::with_options(echo_agent, options), ServerOptions::default()).await;
        let mut socket = RawSocket::open(address).await;
        socket.send_json(&initialize()).await;
        let answer = socket.next().await.expect("an answer");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(0), &json!(-32603)));
        assert!(answer["error"]["message"].to_string().contains("AgentEndpointOptions::connections"));
        assert_eq!(socket.next().await, Err(Some(close_code::STALLED)));
    })
    .await;
}

/// Acknowledgements belong to the transport, also before the response that offers them.
#[tokio::test]
async fn a_client_receives_no_acknowledgements() {
    in_time(async {
        let endpoint = AgentEndpoint::new(|transport| async {
            let mut lines = Lines::new(transport);
            let request = lines.next().await.expect("initialize");
            tokio::time::sleep(Duration::from_millis(200)).await;
            lines.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {}})).await;
            while lines.next().await.is_some() {}
        });
        let mut options = ServerOptions::default();
        options.ack_delay = Duration::from_millis(1);
        let address = server(endpoint, options).await;
        let (transport, _) = connect(&url(address), quick()).await.expect("a connection");
        let (_, before) = Lines::new(transport).request(0, "initialize", json!({})).await;
        assert_eq!(before, Vec::<Value>::new());
    })
    .await;
}

#[tokio::test]
async fn a_new_connection_at_the_limit_ends_that_of_an_absent_client() {
    in_time(async {
        let mut options = AgentEndpointOptions::default();
        options.connections = 2;
        let endpoint = AgentEndpoint::with_options(echo_agent, options);
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let (mut present, _, _) = opened(address).await;
        let (absent, params, _) = opened(address).await;
        drop(absent);
        // The server notices that a moment later.
        let _third = loop {
            let (socket, _, answer) = opened(address).await;
            if answer["result"].is_object() {
                break socket;
            }
        };
        assert_eq!(endpoint.connection_count(), 2);
        present.send_json(&request(1, "echo", json!({}))).await;
        assert_eq!(present.next().await.expect("the echo")["id"], 1);
        let mut back = RawSocket::open(address).await;
        back.send_json(&resume(&params, json!([]))).await;
        assert_eq!(back.next().await.expect("an answer")["method"], "stream/resume_failed");
    })
    .await;
}

/// The last frames of an agent arrive, and then a regular end.
#[tokio::test]
async fn the_connection_ends_with_its_agent() {
    in_time(async {
        let endpoint = AgentEndpoint::new(|transport| async {
            let mut lines = Lines::new(transport);
            let request = lines.next().await.expect("initialize");
            lines.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {}})).await;
            lines.send(&json!({"jsonrpc": "2.0", "method": "last"})).await;
        });
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let (transport, _) = connect(&url(address), quick()).await.expect("a connection");
        let mut lines = Lines::new(transport);
        lines.send(&initialize()).await;
        lines.next().await.expect("the response");
        assert_eq!(lines.next().await.expect("the last message")["method"], "last");
        assert_eq!(lines.next().await, None);
        assert!(lines.end.is_none());
        while endpoint.connection_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_agent_learns_if_its_client_is_present() {
    in_time(async {
        let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
        let serve = move |transport, mut presence: ClientPresence| {
            let sender = sender.clone();
            let report = async move { while sender.send(presence.changed().await).is_ok() {} };
            async move {
                tokio::select! {
                    () = echo_agent(transport) => {}
                    () = report => {}
                }
            }
        };
        let endpoint = AgentEndpoint::with_presence(serve, AgentEndpointOptions::default());
        let address = server(endpoint, ServerOptions::default()).await;
        let (socket, params, _) = opened(address).await;
        assert_eq!(changes.recv().await, Some(true));
        drop(socket);
        assert_eq!(changes.recv().await, Some(false));
        let mut back = RawSocket::open(address).await;
        back.send_json(&resume(&params, json!([{"cursor": "1"}]))).await;
        assert_eq!(back.next().await.expect("an answer")["method"], "stream/resumed");
        assert_eq!(changes.recv().await, Some(true));
    })
    .await;
}

#[tokio::test]
async fn an_absent_client_is_dropped_after_the_grace_period() {
    in_time(async {
        let mut options = AgentEndpointOptions::default();
        options.grace = Duration::from_millis(1);
        let endpoint = AgentEndpoint::with_options(echo_agent, options);
        let address = server(endpoint.clone(), ServerOptions::default()).await;
        let (mut socket, ..) = opened(address).await;
        for id in 1..=100 {
            socket.send_json(&request(id, "echo", json!({}))).await;
            assert_eq!(socket.next().await.expect("the echo")["id"], id);
        }
        assert_eq!(endpoint.connection_count(), 1, "a client that is there is not absent");
        drop(socket);
        while endpoint.connection_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_broken_frame_is_answered_with_a_close() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    in_time(async {
        let address = server(echo_endpoint(), ServerOptions::default()).await;
        let (mut socket, _, _) = opened(address).await;
        let tokio_tungstenite::MaybeTlsStream::Plain(stream) = socket.0.get_mut() else { return };
        // A text without a mask.
        stream.write_all(b"\x81\x02{}").await.expect("sent");
        let mut sent = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut sent).await;
        let [first, _, high, low, ..] = *sent else { panic!("{sent:?}") };
        assert_eq!((first, u16::from_be_bytes([high, low])), (0x88, close_code::PROTOCOL));
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_pongs_is_ended() {
    use futures_util::SinkExt as _;

    in_time(async {
        let mut options = ServerOptions::default();
        options.waiting_pings = 16;
        let address = server(echo_endpoint(), options).await;
        let (mut socket, _, _) = opened(address).await;
        let ping = Message::Ping(vec![b'p'; 125].into());
        // It goes on until the server has closed the connection.
        while socket.0.feed(ping.clone()).await.is_ok() {}
    })
    .await;
}
