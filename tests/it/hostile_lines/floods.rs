//! Lines that are too long, too many, too slow, or not finished.

use duologue_client::Client;
use duologue_client::rpc::{Closed, Error as RpcError};
use serde_json::{Value, json};

use super::agent;
use duologue_test_support::{Wire, client_of, in_time, message_chunk, texts};

const MIB: usize = 1024 * 1024;
const LIMIT: usize = 16 * MIB;

/// A request of exactly this many bytes, line end not counted.
fn request_of(bytes: usize) -> String {
    let start = r#"{"jsonrpc":"2.0","id":1,"method":"_nobody/knows","params":{"t":""#;
    format!("{start}{}\"}}}}", "x".repeat(bytes - start.len() - 3))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    in_time(async {
        let mut agent = agent();
        agent.wire.initialize(json!({})).await;
        for bytes in [LIMIT - 1, LIMIT] {
            agent.wire.send(request_of(bytes)).await;
            assert_eq!(agent.wire.next_message().await["error"]["code"], -32601, "{bytes}");
        }
        agent.wire.write(format!("{}\n{}\n", request_of(100), request_of(LIMIT + 1))).await;
        assert_eq!(agent.wire.next_message().await["error"]["code"], -32601, "the one in front of it");
        let rest = agent.wire.read_to_end().await;
        let [answer] = rest.as_slice() else { panic!("{rest:?}") };
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
        assert!(!agent.child.wait().await.expect("a status").success());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_end_ends_the_connection_at_the_limit() {
    in_time(async {
        let mut agent = agent();
        agent.wire.initialize(json!({})).await;
        agent.wire.write("x".repeat(LIMIT)).await;
        // It leaves before the end comes, so the rest cannot be written.
        agent.wire.write("xxx").await;
        assert_eq!(agent.wire.read_to_end().await.len(), 1);
        assert!(!agent.child.wait().await.expect("a status").success());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_of_small_things_costs_that_line() {
    in_time(async {
        for unit in ["1,", "{},", "[],", "\"\",", "\"\\u0041\","] {
            let mut agent = agent();
            agent.wire.initialize(json!({})).await;
            let session = agent.wire.new_session().await;
            for start in [
                r#"{"jsonrpc":"2.0","method":"_nobody/knows","params":{"a":["#.to_owned(),
                format!(
                    r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}","a":["#
                ),
            ] {
                // As many as are read (an object between commas counts twice), and more.
                for many in [250_000, 8 * MIB / unit.len()] {
                    let line = format!("{start}{}1]}}}}", unit.repeat(many));
                    agent.wire.send(&line).await;
                    if many > 250_000 {
                        assert_eq!(agent.wire.next_message().await["error"]["code"], -32600);
                    }
                    agent.wire.probe().await;
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_nothing_and_of_noise_are_survived() {
    in_time(async {
        let mut agent = agent();
        agent.wire.initialize(json!({})).await;
        agent.wire.write("\n".repeat(4 * MIB)).await;
        agent.wire.probe().await;
        agent.wire.write("npm WARN\n".repeat(100_000)).await;
        for _ in 0..10 {
            assert_eq!(agent.wire.next_message().await["error"]["code"], -32700);
        }
        agent.wire.probe().await;
        agent.wire.send("[".repeat(MIB)).await;
        assert_eq!(agent.wire.next_message().await["error"]["code"], -32700);
        agent.wire.probe().await;
    })
    .await;
}

/// Everything an agent does with a line, on a thread that could not recurse into one: reading, decoding,
/// refusing, keeping and dropping what is as deep as it may be, and what is far deeper.
#[test]
fn a_small_stack_is_enough_for_any_depth() {
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let thread = small.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(in_time(async {
            let (transport, mut client) = Wire::Memory.scripted();
            tokio::spawn(duologue_agent::serve(Quiet, transport));
            client.initialize(json!({})).await;
            let session = client.new_session().await;
            for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
                for (levels, code) in [(1_000_000, -32600), (20_000, -32600), (129, -32600), (124, -32601)] {
                    let (open, close) = (open.repeat(levels), close.repeat(levels));
                    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"_nobody","params":{{"x":{open}0{close}}}}}"#);
                    client.send(&deep).await;
                    assert_eq!(client.next_message().await["error"]["code"], code, "{levels} levels");
                    // Never closed.
                    client.send(&open).await;
                    assert_eq!(client.next_message().await["error"]["code"], -32700);
                }
                let (open, close) = (open.repeat(100), close.repeat(100));
                let prompt = format!(
                    r#"{{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[],"_meta":{{"deep":{open}0{close}}}}}}}"#
                );
                client.send(prompt).await;
                assert_eq!(client.next_message().await["result"]["stopReason"], "end_turn");
            }
        }));
    });
    thread.expect("a thread").join().expect("no overflow, no panic");
}

/// Has nothing to say.
struct Quiet;

impl duologue_agent::Agent for Quiet {
    async fn prompt(
        &self,
        _: &duologue_agent::Turn,
        prompt: duologue_agent::Prompt,
    ) -> duologue_agent::Result<duologue_agent::StopReason> {
        drop(prompt);
        Ok(duologue_agent::StopReason::EndTurn)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_may_come_one_by_one_and_torn_anywhere() {
    in_time(async {
        let mut agent = agent();
        agent.wire.initialize(json!({})).await;
        let line = "{\"jsonrpc\":\"2.0\",\"id\":\"ä\u{1f600}\",\"method\":\"_nobody\",\"params\":[\"\\ud83d\\ude00\"]}\r\n";
        for byte in line.bytes() {
            agent.wire.write([byte]).await;
        }
        assert_eq!(agent.wire.next_message().await["id"], "ä\u{1f600}");
        // A thousand lines in pieces that end nowhere in particular.
        let lines = line.repeat(1000);
        for piece in lines.as_bytes().chunks(997) {
            agent.wire.write(piece).await;
        }
        for _ in 0..1000 {
            assert_eq!(agent.wire.next_message().await["error"]["code"], -32601);
        }
        agent.wire.probe().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fragment_at_the_end_is_dropped_and_a_whole_line_is_not() {
    in_time(async {
        for (end, answers) in [
            (r#"{"jsonrpc":"2.0","id":1,"meth"#, 0),
            ("{", 0),
            ("\u{feff}", 0),
            (" \r", 0),
            (r#"{"jsonrpc":"2.0","id":1,"method":"_nobody"}"#, 1),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"_nobody\"}\r", 1),
        ] {
            let mut agent = agent();
            agent.wire.initialize(json!({})).await;
            agent.wire.write(end).await;
            agent.wire.close().await;
            assert_eq!(agent.wire.read_to_end().await.len(), answers, "{end}");
            assert!(agent.child.wait().await.expect("a status").success(), "{end}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_takes_what_came_before_the_end() {
    in_time(async {
        let whole = message_chunk("s", "last");
        for (end, said) in [(whole.trim_end(), 2), (whole.get(..40).expect("ASCII"), 1)] {
            let (agent, mut script) = client_of(Wire::Pipes, Client::new(()), json!({})).await;
            let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
            let session = session.expect("a session");
            let (turn, _) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
            let mut turn = turn.expect("a turn");
            script.send_chunk("s", "first").await;
            script.write(end).await;
            script.close().await;
            assert_eq!(texts(&mut turn).await.len(), said);
            let error = turn.outcome().await.expect_err("there was no answer");
            let ended = duologue_client::Error::Connection(RpcError::Closed(Closed::EndOfInput));
            assert_eq!(error.to_string(), ended.to_string());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_takes_a_line_as_long_as_the_limit() {
    in_time(async {
        let (agent, mut script) = client_of(Wire::Pipes, Client::new(()), json!({})).await;
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
        let session = session.expect("a session");
        let (turn, _) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
        let mut turn = turn.expect("a turn");
        let room = LIMIT - (message_chunk("s", "").len() - 1);
        script.send_chunk("s", &"w".repeat(room)).await;
        assert_eq!(turn.next().await.expect("an update").expect("no error").to_string().len(), room);
        script.send_chunk("s", "still there").await;
        assert_eq!(turn.next().await.expect("an update").expect("no error").to_string(), "still there");
        let (_reader, writer) = script.into_parts();
        let mut writer = writer.expect("a writer");
        let ((), next) = tokio::join!(
            async {
                let line = message_chunk("s", &"w".repeat(room + 1));
                // The client may be gone before the last byte.
                use tokio::io::AsyncWriteExt;
                let _ = writer.write_all(line.as_bytes()).await;
            },
            turn.next()
        );
        assert!(next.is_none(), "{next:?}");
        let error = turn.outcome().await.expect_err("the line was too long");
        assert!(error.to_string().contains("16777216 bytes, Limits::frame_bytes"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_for_nobody_are_counted_and_forgotten() {
    in_time(async {
        let (agent, mut script) = client_of(Wire::Pipes, Client::new(()), json!({})).await;
        let flood = message_chunk("nobody", "x").repeat(20_000);
        script.write(flood).await;
        script.probe().await;
        assert_eq!(agent.dropped_updates(), 20_000);
    })
    .await;
}
