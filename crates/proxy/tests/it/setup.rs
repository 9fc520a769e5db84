//! Two scripted peers with a chain between them.

use std::sync::{Arc, Mutex};

use duologue_proxy::{Decision, Proxy, ProxyStage, Side, StageCall, StageLink, StageMessage, Transport};
use duologue_test_support::{ScriptedPeer, Wire};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;

/// The three ways to use a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    ToAgent,
    ToClient,
    Run,
}

impl Place {
    pub(crate) const ALL: [Place; 3] = [Place::ToAgent, Place::ToClient, Place::Run];

    /// Connects transports to both ends of a chain.
    pub(crate) fn connect(self, proxy: Proxy, wire: Wire) -> (Transport, Transport) {
        let pair = || {
            let (left, right) = wire.pair();
            // A pipe is written without a task.
            if wire == Wire::Memory { (left, right) } else { (left.writes_at_once(), right.writes_at_once()) }
        };
        let (client, near) = pair();
        match self {
            Place::ToAgent => (proxy.to_agent(client), near),
            Place::ToClient => (near, proxy.to_client(client)),
            Place::Run => {
                let (far, agent) = pair();
                tokio::spawn(proxy.run(near, far));
                (client, agent)
            }
        }
    }

    /// Returns a client and an agent with a chain between them.
    pub(crate) fn peers(self, proxy: Proxy) -> (ScriptedPeer, ScriptedPeer) {
        let (client, agent) = self.connect(proxy, Wire::Memory);
        match self {
            // The chain runs when its owner reads, and a scripted peer does not always read.
            Place::ToAgent => (ScriptedPeer::over(always_read(client)), ScriptedPeer::over(agent)),
            Place::ToClient => (ScriptedPeer::over(client), ScriptedPeer::over(always_read(agent))),
            Place::Run => (ScriptedPeer::over(client), ScriptedPeer::over(agent)),
        }
    }
}

/// Reads a transport all the time, as an SDK does.
fn always_read(transport: Transport) -> Transport {
    let (ours, theirs) = Transport::memory_with_capacity(1 << 20);
    let ((mut reader, mut writer), (mut from_test, mut to_test)) =
        (transport.into_split(), theirs.into_split());
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut reader, &mut to_test).await;
        let _ = to_test.shutdown().await;
    });
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_test, &mut writer).await;
        let _ = writer.shutdown().await;
    });
    ours
}

/// Makes a test of each function that takes a [`Place`], for every place.
macro_rules! in_every_place {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            for place in $crate::setup::Place::ALL {
                duologue_test_support::in_time(tests::$name(place)).await;
            }
        }
    )*};
}
pub(crate) use in_every_place;

/// The lines that a stage has seen, and the outcomes of its own requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn push(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Logs the methods and ids of all messages, and passes them.
pub(crate) struct Watching(pub(crate) &'static str, pub(crate) Log);

impl Watching {
    fn note(&self, side: Side, message: &StageMessage<'_>) {
        let (name, log) = (self.0, &self.1);
        let method = message.method().unwrap_or(if message.is_response() { "response" } else { "invalid" });
        log.push(format!("{name} {side:?} {method} {}", message.id().unwrap_or("-")));
    }
}

impl ProxyStage for Watching {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        self.note(Side::Client, message);
        Decision::Pass
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        self.note(Side::Agent, message);
        Decision::Pass
    }
}

/// Sends a request to both sides for each `_go` of the client, and logs the outcomes.
pub(crate) struct Asking(pub(crate) Log);

impl ProxyStage for Asking {
    fn client_message(&mut self, message: &StageMessage<'_>, link: &mut StageLink<'_>) -> Decision {
        if message.method() == Some("_go") {
            for side in [Side::Client, Side::Agent] {
                match link.request(side, "_ask", &[format!("{side:?}")]) {
                    Ok(call) => self.0.push(format!("{side:?} is {call:?}")),
                    Err(error) => self.0.push(error.to_string()),
                }
            }
        }
        Decision::Pass
    }

    fn response(
        &mut self,
        call: StageCall,
        outcome: Result<&RawValue, duologue_proxy::schema::Error>,
        _: &mut StageLink<'_>,
    ) {
        self.0.push(match outcome {
            Ok(result) => format!("{call:?} = {result}"),
            Err(error) => format!("{call:?} failed: {error}"),
        });
    }
}

/// Returns the method and the id of a message, for comparisons.
pub(crate) fn shown(message: &Value) -> String {
    let method = message["method"].as_str().unwrap_or("response");
    match message.get("id") {
        Some(id) => format!("{method} {id}"),
        None => method.to_owned(),
    }
}
