//! A chain of stages that pass everything changes no byte.

use duologue_proxy::{Decision, Proxy};
use duologue_test_support::{Wire, in_time};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::setup::{Log, Place, Watching};

/// Generates a line with its end, or the end of a line alone.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let message = prop::sample::select(vec![
        r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
        r#" {"params" : {"update":{"x":"\u00e4\ud83e"}}, "method":"session\/update","jsonrpc":"2.0"} "#,
        r#"{"jsonrpc":"2.0","id":"1","result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#,
        r#"[{"jsonrpc":"2.0","method":"a"}]"#,
        "npm WARN deprecated",
        "\u{feff}{}",
        "",
    ]);
    let text = prop_oneof![
        4 => message.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
        1 => (1..100_000usize).prop_map(|length| vec![b'x'; length]),
    ];
    (text, prop::sample::select(vec!["\n", "\r\n", "\n\n"])).prop_map(|(mut line, end)| {
        line.extend_from_slice(end.as_bytes());
        line
    })
}

/// Writes the output of both sides in pieces, and checks that it arrives.
async fn passes(place: Place, wire: Wire, client_says: &[u8], agent_says: &[u8], step: usize) {
    let log = Log::default();
    let proxy = Proxy::new()
        .stage(Watching("a", log.clone()))
        .on_client_message(|_, _| Decision::Pass)
        .stage(Watching("c", log));
    let (client, agent) = place.connect(proxy, wire);
    let (mut from_agent, to_agent) = client.into_split();
    let (mut from_client, to_client) = agent.into_split();
    // A pipe is closed when its writer is dropped.
    let write = async |mut to: Box<dyn tokio::io::AsyncWrite + Send + Unpin>, bytes: &[u8]| {
        for piece in bytes.chunks(step) {
            to.write_all(piece).await.unwrap();
        }
        to.shutdown().await.unwrap();
    };
    let (mut at_agent, mut at_client) = (Vec::new(), Vec::new());
    tokio::join!(
        write(to_agent, client_says),
        async { from_client.read_to_end(&mut at_agent).await.unwrap() },
        write(to_client, agent_says),
        async { from_agent.read_to_end(&mut at_client).await.unwrap() },
    );
    assert!(at_agent == client_says, "{place:?}: {} of {} bytes", at_agent.len(), client_says.len());
    assert!(at_client == agent_says, "{place:?}: {} of {} bytes", at_client.len(), agent_says.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 20, ..Default::default() })]

    #[test]
    fn stages_that_pass_everything_are_byte_identical(
        client_says in prop::collection::vec(line(), 0..20),
        agent_says in prop::collection::vec(line(), 0..20),
        rest in prop::sample::select(vec!["", "no end", "{\"jsonrpc\":", "\r"]),
        step in prop_oneof![1..50usize, Just(1 << 20)],
    ) {
        let client_says = [client_says.concat(), rest.as_bytes().to_vec()].concat();
        let agent_says = [agent_says.concat(), rest.as_bytes().to_vec()].concat();
        let step = step.max((client_says.len() + agent_says.len()) / 500);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for place in [Place::ToAgent, Place::ToClient] {
                for wire in [Wire::Memory, Wire::Pipes] {
                    in_time(passes(place, wire, &client_says, &agent_says, step)).await;
                }
            }
        });
    }
}
