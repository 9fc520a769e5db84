//! The slot for a turn, and sessions for other tests.

use duologue_rpc::{CancellationToken, PeerBuilder, Transport};

use super::*;

type MakeSession<'a> = dyn Fn(&SessionMemory, bool) -> Session + 'a;
type Test = fn(Responder, &ClientHandle, &MakeSession<'_>);

/// Runs a test in the handler of a request, because a turn and an open session need one. A panic of the test fails
/// the request.
struct InRequest(Test);

impl Service for InRequest {
    fn request(&self, _: Incoming<'_>, responder: Responder) {
        let peer = responder.peer();
        let exchange = ExchangeConnector::new(None).start(&peer, |_| true, ());
        let client = ClientHandle::new(peer, exchange.peer_agent().clone(), ClearPolicy::default());
        let make_session = |memory: &SessionMemory, hold_updates| {
            let params = SessionParams {
                cwd: "/".into(),
                additional_directories: Vec::new(),
                mcp_servers: Vec::new(),
                meta: None,
                system_prompt: None,
                #[cfg(feature = "unstable")]
                initial_options: Vec::new(),
                reservation: memory.reserve(0).unwrap(),
            };
            Session::new("s".into(), params, client.clone(), hold_updates, None)
        };
        (self.0)(responder, &client, &make_session);
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// Runs `test`, which has to respond.
pub(crate) async fn in_request(test: Test) {
    let (ours, theirs) = Transport::memory();
    let server = PeerBuilder::new(theirs).start(|_| InRequest(test));
    let peer = PeerBuilder::new(ours).start(|_| InRequest(|responder, _, _| drop(responder)));
    peer.request_raw("_test", None).await.unwrap();
    peer.close();
    server.closed().await;
    assert_eq!(server.stats().dropped, 0, "the test panicked behind its response");
}

/// The next turn may have the slot when the first one is dropped.
#[tokio::test]
async fn a_turn_frees_its_slot_once() {
    in_request(|responder, client, make_session| {
        let session = make_session(&SessionMemory::default(), false);
        let state = session.begin_turn(CancellationToken::new()).unwrap();
        let context = Context::new(client.clone(), responder.context("session/prompt", None));
        let answer = PromptAnswer::new(client, &SessionMemory::default(), 0).unwrap().to(responder);
        let turn = Turn::new(session.clone(), context, state);
        let mut running = RunningTurn { turn, answer: Some(answer) };
        assert!(session.begin_turn(CancellationToken::new()).is_err());
        running.end(Ok(PromptResponse::new(StopReason::EndTurn)));
        assert!(session.begin_turn(CancellationToken::new()).is_ok());
        drop(running);
        assert!(session.begin_turn(CancellationToken::new()).is_err());
    })
    .await;
}

#[test]
fn only_long_ids_may_not_be_kept() {
    for (bytes, may) in [(Limits::ID_BYTES, true), (Limits::ID_BYTES + 1, false)] {
        assert_eq!(may_be_kept(&SessionId::from("x".repeat(bytes))), may, "{bytes}");
    }
}
