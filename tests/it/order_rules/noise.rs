//! Noise and errors between peers that mean well: no storm comes of them, and no error tells the other
//! side anything but what is wrong.

use duologue_agent::{Agent, Context, Prompt, Session, SessionSetup, StopReason, Turn};
use duologue_client::{Client, Host, HostContext, HostResult};
use duologue_rpc::{Incoming, PeerBuilder, Responder, Service, Transport};
use duologue_schema::{
    AgentCapabilities, ClientCapabilities, CompleteElicitationNotification, ContentBlock,
    FileSystemCapabilities, ImageContent, METHODS, MethodSide, PromptCapabilities, ReadTextFileRequest,
    ReadTextFileResponse, RequestPermissionRequest, RequestPermissionResponse, SessionId,
    WriteTextFileRequest, WriteTextFileResponse,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};

use duologue_test_support::{Wire, client_of, in_time, over_every_wire};

over_every_wire!(
    a_cancel_of_any_id_finds_its_request,
    no_error_repeats_what_was_sent,
    a_panic_message_is_not_sent,
    a_panicking_host_costs_one_request,
);

struct Refusing;

impl Service for Refusing {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        responder.method_not_found(request.method);
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// All that a peer says to these lines: the answer to a question behind them comes last.
async fn answers(
    lines: &[String],
    to: &mut DuplexStream,
    from: &mut Lines<BufReader<DuplexStream>>,
) -> Vec<String> {
    for line in lines.iter().map(String::as_str).chain([r#"{"jsonrpc":"2.0","id":"end","method":"_end"}"#]) {
        to.write_all(format!("{line}\n").as_bytes()).await.expect("read");
    }
    let mut said = Vec::new();
    loop {
        let line = from.next_line().await.expect("UTF-8").expect("open");
        if line.contains(r#""id":"end""#) {
            return said;
        }
        said.push(line);
    }
}

/// Two of our peers, and a line that is none put between them: one answer to it, and then nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bad_line_between_two_of_ours_makes_no_storm() {
    in_time(async {
        for (left, right) in [(true, true), (true, false), (false, false)] {
            // Each peer's output goes through our hands.
            let ((a_in, mut to_a), (from_a, a_out)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
            let ((b_in, mut to_b), (from_b, b_out)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
            let _a = PeerBuilder::new(Transport::new(a_in, a_out)).answer_noise(left).start(|_| Refusing);
            let _b = PeerBuilder::new(Transport::new(b_in, b_out)).answer_noise(right).start(|_| Refusing);
            let (mut from_a, mut from_b) = (BufReader::new(from_a).lines(), BufReader::new(from_b).lines());
            let mut a_said = answers(&["npm WARN deprecated".into()], &mut to_a, &mut from_a).await;
            let mut b_said = answers(&["PS C:\\> ".into()], &mut to_b, &mut from_b).await;
            assert_eq!((a_said.len(), b_said.len()), (usize::from(left), usize::from(right)));
            // Each receives the other's lines, and sends no more.
            (a_said, b_said) = (
                answers(&b_said, &mut to_a, &mut from_a).await,
                answers(&a_said, &mut to_b, &mut from_b).await,
            );
            assert!(a_said.is_empty() && b_said.is_empty(), "{a_said:?} {b_said:?}");
        }
    })
    .await;
}

/// The peer echoes every line, as a terminal does. Either SDK stops by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_echo_makes_no_storm() {
    in_time(async {
        for answers_noise in [true, false] {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (input, output) = tokio::io::split(ours);
            let (reader, mut writer) = tokio::io::split(theirs);
            let peer = PeerBuilder::new(Transport::new(input, output))
                .answer_noise(answers_noise)
                .start(|_| Refusing);
            let echo = tokio::spawn(async move {
                writer.write_all(b"hello?\n").await.expect("read");
                let (mut lines, mut count) = (BufReader::new(reader).lines(), 0);
                while let Some(line) = lines.next_line().await.expect("UTF-8") {
                    if line.contains("_end") {
                        break;
                    }
                    count += 1;
                    writer.write_all(format!("{line}\n").as_bytes()).await.expect("read");
                }
                count
            });
            // Comes back as a request of its own, is refused, and the refusal comes back as the answer.
            // Other lines to the first come before the second, and those to the second before the end.
            for number in 0..2 {
                let error = peer.call::<_, Value>("_ask", &[number]).await.expect_err("the echo refuses");
                assert_eq!(error.as_response().expect("an answer").code.0, -32601);
            }
            peer.notify_raw("_end", &()).await.expect("open");
            let frames = echo.await.expect("no panic");
            assert_eq!(frames, 2 * 2 + usize::from(answers_noise));
        }
    })
    .await;
}

/// Fails and panics with words that are nobody's business.
struct Leaky;

impl Agent for Leaky {
    async fn new_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        panic!("the password is SENTINEL")
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        match prompt.text().as_str() {
            "wait" => turn.cancelled().await,
            text => assert!(text.is_empty(), "SENTINEL"),
        }
        Ok(StopReason::EndTurn)
    }
}

/// 0 and the empty string are ids like any other.
async fn a_cancel_of_any_id_finds_its_request(wire: Wire) {
    struct Waiting;
    impl Service for Waiting {
        fn request(&self, _: Incoming<'_>, responder: Responder) {
            let cancelled = responder.cancellation().clone();
            responder.spawn(async move {
                cancelled.cancelled().await;
                Ok("withdrawn")
            });
        }
        fn notification(&self, _: Incoming<'_>) {}
    }
    let (transport, mut script) = wire.scripted();
    let _peer = PeerBuilder::new(transport).start(|_| Waiting);
    for id in [json!(0), json!(""), json!(-1), json!("0"), json!(null), json!(i64::MAX), json!("\u{0}")] {
        script.send(json!({"jsonrpc": "2.0", "id": id, "method": "_wait"})).await;
        // Another one with an id that only looks alike must not be hit.
        script.send(json!({"jsonrpc": "2.0", "id": "other", "method": "_wait"})).await;
        script.notify("$/cancel_request", json!({"requestId": id})).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]), (&id, &json!("withdrawn")));
        script.notify("$/cancel_request", json!({"requestId": "other"})).await;
        assert_eq!(script.next_message().await["id"], "other");
    }
}

/// Puts a secret everywhere but into ids and names of methods, which are repeated on purpose.
fn spoiled(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(spoiled);
            members.insert("SENTINEL".into(), json!("SENTINEL"));
        }
        Value::Array(items) => items.iter_mut().for_each(spoiled),
        other => *other = json!("SENTINEL"),
    }
}

/// On both sides, for every method, with params that are wrong in every place, and for lines that are no
/// messages at all: what comes back repeats nothing of it, and holds no data.
async fn no_error_repeats_what_was_sent(wire: Wire) {
    let whole = json!({
        "sessionId": "s", "cwd": "/tmp", "mcpServers": [{"name": "n", "command": "/c", "args": [], "env": []}],
        "modeId": "m", "configId": "c", "value": "v", "methodId": "a", "path": "/f", "content": "c",
        "prompt": [{"type": "text", "text": "t"}], "protocolVersion": 1, "terminalId": "t", "command": "c",
        "toolCall": {"toolCallId": "t"}, "options": [{"optionId": "o", "name": "n", "kind": "allow_once"}],
        "mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}},
    });
    let (agent, mut to_client) = client_of(wire, Client::new(()), json!({})).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), to_client.accept_session("s"));
    let _session = session.expect("a session");
    let (transport, mut to_agent) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Leaky, transport));
    to_agent.initialize(json!({})).await;
    for (script, side) in [(&mut to_agent, MethodSide::Agent), (&mut to_client, MethodSide::Client)] {
        let rows = METHODS.iter().copied().flatten().filter(|row| row.side == side && row.result.is_some());
        for row in rows {
            let members: Vec<String> = whole.as_object().expect("an object").keys().cloned().collect();
            for spoilt in members {
                let mut params = whole.clone();
                spoiled(&mut params[&spoilt]);
                let answer = script.request(row.method, params).await;
                let shown = answer["error"].to_string();
                assert!(!shown.contains("SENTINEL"), "{} with a bad {spoilt}: {answer}", row.method);
                assert!(answer["error"]["data"].is_null(), "{answer}");
            }
            for params in [json!("SENTINEL"), json!(["SENTINEL"]), json!({"SENTINEL": "SENTINEL"})] {
                let answer = script.request(row.method, params).await;
                assert!(!answer["error"].to_string().contains("SENTINEL"), "{answer}");
            }
        }
    }
    for line in [
        "SENTINEL",
        r#"{"jsonrpc":"2.0","SENTINEL"#,
        r#"{"jsonrpc":"SENTINEL","id":1,"method":"_m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":["SENTINEL"]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"_m","method":"SENTINEL"}"#,
        r#"{"jsonrpc":"2.0","id":["SENTINEL"],"method":"_m"}"#,
        r#"["SENTINEL"]"#,
        r#""SENTINEL""#,
    ] {
        to_agent.send(line).await;
        let answer = to_agent.next_message().await;
        assert!(answer["error"]["data"].is_null() && !answer.to_string().contains("SENTINEL"), "{answer}");
    }
}

async fn a_panic_message_is_not_sent(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    tokio::spawn(duologue_agent::serve(Leaky, transport));
    client.initialize(json!({})).await;
    for _ in 0..20 {
        let answer = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        assert_eq!(answer["error"], json!({"code": -32603, "message": "the handler panicked"}));
    }
}

/// Panics on every notification and request, before the first await and after it.
struct Clumsy;

impl Clumsy {
    async fn later(&self) -> ! {
        tokio::task::yield_now().await;
        panic!("SENTINEL, later")
    }
}

impl Host for Clumsy {
    fn capabilities(&self) -> ClientCapabilities {
        let files = FileSystemCapabilities::default().read_text_file(true);
        ClientCapabilities::default().fs(files)
    }

    fn session_started(&self, _: &HostContext, _: &SessionId, _: &[std::path::PathBuf]) {
        panic!("over a session")
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.later().await
    }

    async fn read_text_file(
        &self,
        _: &HostContext,
        _: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        panic!("SENTINEL, at once")
    }

    fn elicitation_complete(&self, _: &HostContext, _: CompleteElicitationNotification) {
        panic!("on the reader")
    }

    fn closed(&self, _: &HostContext) {
        panic!("over the end")
    }
}

async fn a_panicking_host_costs_one_request(wire: Wire) {
    let closure =
        |_: HostContext, _: WriteTextFileRequest| -> std::future::Ready<HostResult<WriteTextFileResponse>> {
            panic!("SENTINEL, in a closure")
        };
    let (agent, mut script) = client_of(wire, Client::new(Clumsy).on(closure), json!({})).await;
    for round in 0..20_u64 {
        let name = format!("s{round}");
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
            let request = script.expect("session/new").await;
            script.send_chunk(&name, "early").await;
            script.respond(&request, json!({"sessionId": name})).await;
        });
        let session = session.expect("a session, whatever the host makes of it");
        let option = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
        for method in ["session/request_permission", "fs/read_text_file", "fs/write_text_file"] {
            let params = json!({
                "sessionId": name, "toolCall": {"toolCallId": "t"}, "options": [option], "path": "/f",
                "content": "c",
            });
            let answer = script.request(method, params).await;
            assert_eq!(answer["error"]["code"], -32603, "{method}: {answer}");
            assert!(!answer.to_string().contains("SENTINEL"), "{answer}");
        }
        script.notify("elicitation/complete", json!({"elicitationId": "e"})).await;
        script.probe().await;
        assert_eq!(session.updates().next().await.expect("one").expect("no error").to_string(), "early");
        // No session is being made any more, so this one is for nobody.
        script.send_chunk("nobody", "lost").await;
        script.probe().await;
        assert_eq!(agent.dropped_updates(), round + 1, "it is still waited for");
        drop(session);
        assert_eq!(agent.peer().pending_requests(), 0);
    }
    let call = agent.peer().call::<_, Value>("_ask", &[0]);
    script.expect("_ask").await;
    script.close().await;
    assert!(call.await.is_err());
    agent.closed().await;
}

/// Says how large the pictures are.
struct Looking;

impl Agent for Looking {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::default().prompt_capabilities(PromptCapabilities::default().image(true))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        for block in prompt.blocks() {
            let ContentBlock::Image(picture) = block else { continue };
            turn.message().push(picture.data.len().to_string()).await?;
        }
        Ok(StopReason::EndTurn)
    }
}

/// A large pasted picture fits into a line with the default limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_prompt_may_hold_a_picture_of_15_mib() {
    in_time(async {
        let (ours, theirs) = Wire::Pipes.pair();
        tokio::spawn(duologue_agent::serve(Looking, theirs));
        let agent = Client::new(()).connect(ours).await.expect("a connection");
        let session = agent.new_session("/tmp").await.expect("a session");
        let picture = ImageContent::new("A".repeat(15 << 20), "image/png");
        let turn = session.prompt(vec![ContentBlock::Image(picture.into())]).await.expect("a turn");
        assert_eq!(turn.finish().await.expect("an answer").text, (15 << 20).to_string());
    })
    .await;
}
