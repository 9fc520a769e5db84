//! A turn of 40 MiB, behind a server and `duologue connect`, over each transport, and its load.
#![cfg(all(target_os = "linux", feature = "serve"))]

use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::process::DUOLOGUE;
use crate::served::{RawClient, Server, prompt};

/// The bytes of text of a chunk, and the number of chunks.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 640;
/// Limit on the memory of the server in a turn, and of `connect`, in KiB.
const MEMORY_KIB: u64 = 96 << 10;

/// An agent that answers a prompt with chunks, each of which begins with its number.
const AGENT: &str = r#"
    fill=$(head -c 65530 /dev/zero | tr '\0' x)
    while IFS= read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        case "$line" in
            *'"initialize"'*) result='{"protocolVersion":1}';;
            *session/new*) result='{"sessionId":"s"}';;
            *session/prompt*)
                number=100000
                while [ $number -lt 100640 ]; do
                    chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'$number$fill'"}}'
                    printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%s}}\n' "$chunk"
                    number=$((number + 1))
                done
                result='{"stopReason":"end_turn"}';;
        esac
        printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
    done
"#;

/// The most memory that a process has had in KiB.
fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a number");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Reads until the response to a request, and returns the text of the agent.
fn text_before(client: &mut RawClient, id: u64) -> String {
    let mut text = String::with_capacity(CHUNK * CHUNKS);
    loop {
        let message = client.next();
        if message["id"] == id {
            assert!(message["result"].is_object(), "{message}");
            return text;
        }
        let update = &message["params"]["update"];
        if update["sessionUpdate"] == "agent_message_chunk" {
            text.push_str(update["content"]["text"].as_str().expect("a text"));
        }
    }
}

#[test]
fn a_turn_of_40_mib_arrives_once_and_in_order_over_each_transport() {
    let fill = "x".repeat(CHUNK - 6);
    let expected: String = (100_000..100_000 + CHUNKS).map(|number| format!("{number}{fill}")).collect();
    assert_eq!(expected.len(), 40 << 20);
    for transport in ["ws", "sse"] {
        let data = tempfile::tempdir().expect("a folder");
        let script = data.path().join("agent");
        std::fs::write(&script, AGENT).expect("a file");
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let server = Server::of(command.args(["--", "sh"]).arg(script));
        let connect = || RawClient::of(server.connect().args(["--transport", transport]), &Value::Null);
        let mut client = connect();
        let session = client.session();
        let begin = Instant::now();
        let id = client.send("session/prompt", &prompt(&session, "hello"));
        assert!(text_before(&mut client, id) == expected, "{transport}: the turn");
        let turn = begin.elapsed();
        let peaks = [server.id(), client.process.id()].map(peak_kib);
        let mut other = connect();
        let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let begin = Instant::now();
        let id = other.send("session/load", &load);
        assert!(text_before(&mut other, id) == expected, "{transport}: the load");
        let loaded = begin.elapsed();
        let of_load = [server.id(), other.process.id()].map(peak_kib);
        let mut stdout = std::io::stdout().lock();
        let ways = [("turn", turn, peaks), ("load", loaded, of_load)];
        for (way, time, [of_server, of_connect]) in ways {
            let line = format!(
                "measured: {transport}, {way} of 40 MiB in {time:.2?}; peaks of the server {of_server} KiB, of `connect` {of_connect} KiB"
            );
            writeln!(stdout, "{line}").expect("it is open");
        }
        // A load has the conversation in the memory of the server.
        let limited = [peaks[0], peaks[1], of_load[1]];
        assert!(limited.iter().all(|kib| *kib < MEMORY_KIB), "{transport}: {limited:?}");
    }
}
