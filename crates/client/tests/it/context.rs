//! The context of a call to the host or to a closure.

use std::path::PathBuf;
use std::sync::Arc;

use duologue_client::schema::{
    ClientCapabilities, CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, ElicitationCapabilities, ElicitationUrlCapabilities, Error as WireError,
    FileSystemCapabilities, KillTerminalRequest, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, Request, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use duologue_client::{Client, Host, HostContext, HostResult};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use duologue_test_support::{Wire, client_of, in_time};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Sends the context of each call to the test.
struct Observer(mpsc::UnboundedSender<(&'static str, HostContext)>);

impl Observer {
    fn observe(&self, call: &'static str, context: &HostContext) {
        let _ = self.0.send((call, context.clone()));
    }
}

/// Implements methods that are observed and fail.
macro_rules! failing {
    ($($method:ident($request:ty);)*) => {$(
        async fn $method(
            &self,
            context: &HostContext,
            _: $request,
        ) -> HostResult<<$request as Request>::Result> {
            self.observe(stringify!($method), context);
            Err(WireError::internal(stringify!($method)))
        }
    )*};
}

impl Host for Observer {
    failing! {
        write_text_file(WriteTextFileRequest);
        create_terminal(CreateTerminalRequest);
        terminal_output(TerminalOutputRequest);
        wait_for_terminal_exit(WaitForTerminalExitRequest);
        kill_terminal(KillTerminalRequest);
        release_terminal(ReleaseTerminalRequest);
    }

    fn capabilities(&self) -> ClientCapabilities {
        let url = ElicitationCapabilities::new().url(ElicitationUrlCapabilities::new());
        let fs = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
        ClientCapabilities::new().fs(fs).terminal(true).elicitation(url)
    }

    fn session_started(&self, context: &HostContext, _: &SessionId, _: &[PathBuf]) {
        self.observe("session_started", context);
    }

    async fn request_permission(
        &self,
        context: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.observe("request_permission", context);
        context.cancelled().await;
        Ok(RequestPermissionOutcome::Cancelled.into())
    }

    async fn read_text_file(
        &self,
        context: &HostContext,
        _: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        self.observe("read_text_file", context);
        context.cancelled().await;
        Ok(ReadTextFileResponse::new("cancelled"))
    }

    async fn create_elicitation(
        &self,
        context: &HostContext,
        _: CreateElicitationRequest,
    ) -> HostResult<CreateElicitationResponse> {
        self.observe("create_elicitation", context);
        Ok(CreateElicitationResponse::cancel())
    }

    fn elicitation_complete(&self, context: &HostContext, _: CompleteElicitationNotification) {
        self.observe("elicitation_complete", context);
    }

    fn closed(&self, context: &HostContext) {
        self.observe("closed", context);
    }
}

#[tokio::test]
async fn every_call_of_a_host_has_its_context() {
    in_time(async {
        let (sender, mut calls) = mpsc::unbounded_channel();
        let host = Arc::new(Observer(sender));
        let (other, _other_script) =
            client_of(Wire::Memory, Client::new(host.clone()), json!({})).await;
        let (connection, mut script) = client_of(Wire::Memory, Client::new(host), json!({})).await;
        let (session, ()) = tokio::join!(connection.new_session("/tmp"), script.accept_session("s"));
        let session = session.expect("a session");
        let mut next = async |expected: &str| {
            let (call, context) = calls.recv().await.expect("a call");
            assert_eq!(call, expected);
            assert_eq!(context.connection_id(), connection.host_context().connection_id());
            assert_ne!(context.connection_id(), other.host_context().connection_id());
            context
        };
        assert!(next("session_started").await.request().is_none());

        let meta = json!({"traceparent": PARENT, "n": 1});
        let params = json!({"sessionId": "s", "path": "/tmp/x", "_meta": meta});
        let id = script.send_request("fs/read_text_file", params).await;
        let context = next("read_text_file").await;
        assert_eq!(context.request_id().map(|id| id.token().to_owned()), Some(id.to_string()));
        assert_eq!(context.request().map(|request| request.method()), Some("fs/read_text_file"));
        assert_eq!(context.meta().and_then(|meta| meta.get("n")), Some(1));
        assert_eq!(context.trace_context().expect("a trace").traceparent(), PARENT);
        assert!(!context.is_cancelled());
        script.notify("$/cancel_request", json!({"requestId": id})).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!(id), &json!("cancelled")));
        assert!(context.is_cancelled());

        for (method, call) in [
            ("fs/write_text_file", "write_text_file"),
            ("terminal/create", "create_terminal"),
            ("terminal/output", "terminal_output"),
            ("terminal/wait_for_exit", "wait_for_terminal_exit"),
            ("terminal/kill", "kill_terminal"),
            ("terminal/release", "release_terminal"),
        ] {
            let params = json!({
                "sessionId": "s", "path": "/tmp/x", "content": "", "command": "true", "terminalId": "t", "_meta": meta,
            });
            let answer = script.request(method, params).await;
            assert_eq!(answer["error"]["message"], call, "{answer}");
            let context = next(call).await;
            assert_eq!(context.request().map(|request| request.method()), Some(method));
            assert_eq!(context.request_id().map(|id| id.token().to_owned()), Some(answer["id"].to_string()));
            assert_eq!(context.trace_context().expect("a trace").traceparent(), PARENT);
        }

        // The end of the turn cancels a question to its user.
        let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
        let option = json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"});
        let params = json!({"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [option]});
        script.send_request("session/request_permission", params).await;
        let context = next("request_permission").await;
        assert!(!context.is_cancelled() && context.meta().is_none());
        drop(turn);
        context.cancelled().await;
        script.expect("session/cancel").await;
        script.next_message().await;
        script.end_turn(&prompt, "cancelled").await;

        let params = json!({"sessionId": "s", "mode": "url", "message": "?", "elicitationId": "e", "url": "https://a.b"});
        script.request("elicitation/create", params).await;
        assert!(next("create_elicitation").await.request_id().is_some());
        script.notify("elicitation/complete", json!({"elicitationId": "e"})).await;
        let context = next("elicitation_complete").await;
        assert!(context.request().is_none() && !context.is_cancelled());
        let token = context.cancellation();
        token.cancel();
        assert!(!context.is_cancelled());
        script.close().await;
        let context = next("closed").await;
        assert!(context.is_cancelled() && context.cancellation().is_cancelled());
        context.cancelled().await;
    })
    .await;
}

#[derive(Serialize, Deserialize)]
struct Lint {
    path: PathBuf,
}

impl Request for Lint {
    const METHOD: &'static str = "_example/lint";
    type Result = u32;
}

/// A closure has state in one line, sees the `_meta` that its type lacks, and can send requests of its own.
#[tokio::test]
async fn a_closure_has_state_and_the_context() {
    in_time(async {
        let (sender, mut lints) = mpsc::unbounded_channel();
        let client = Client::new(()).on_with(sender, async |sender, context, lint: Lint| {
            let trace = context.trace_context().map(|trace| trace.trace_id().to_owned());
            let _ = sender.send((lint.path, trace));
            let errors = context.peer().call::<_, u32>("_example/errors", &json!({})).await;
            errors.map_err(|error| duologue_client::schema::Error::internal(error.to_string()))
        });
        let (_connection, mut script) = client_of(Wire::Memory, client, json!({})).await;
        for meta in [json!({"traceparent": PARENT}), json!({}), json!(7)] {
            let params = json!({"path": "/tmp/x", "_meta": meta});
            let lint = script.send_request("_example/lint", params).await;
            let errors = script.expect("_example/errors").await;
            script.respond(&errors, json!(3)).await;
            let answer = script.next_message().await;
            assert_eq!((&answer["id"], &answer["result"]), (&json!(lint), &json!(3)));
            let trace = meta["traceparent"].as_str().and_then(|parent| parent.get(3..35)).map(str::to_owned);
            assert_eq!(lints.recv().await, Some((PathBuf::from("/tmp/x"), trace)));
        }
    })
    .await;
}

/// A tool calls a host without a connection.
#[tokio::test]
async fn a_detached_context_is_a_connection_of_its_own() {
    in_time(async {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), "text").expect("a file");
        let host = duologue_client::LocalHost::new(folder.path());
        let contexts = [HostContext::detached(), HostContext::detached()];
        host.session_started(&contexts[0], &"s".into(), &[folder.path().to_owned()]);
        for (context, is_known) in contexts.iter().zip([true, false]) {
            let request = ReadTextFileRequest::new("s", folder.path().join("a"));
            let read = host.read_text_file(context, request).await;
            assert_eq!(read.is_ok(), is_known, "{read:?}");
            assert!(!context.is_cancelled() && context.request().is_none());
            let sent = context.peer().call::<_, u32>("_example/errors", &json!({})).await;
            assert!(matches!(sent, Err(duologue_client::rpc::Error::Closed(_))), "{sent:?}");
        }
    })
    .await;
}
