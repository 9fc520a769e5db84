//! Requests of the agent that the client rejects before its host sees them.

use std::sync::{Arc, Mutex};

use duologue_client::schema::{
    ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse, FileSystemCapabilities,
    KillTerminalRequest, KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use duologue_client::{Client, Host, HostContext, HostResult};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time};

/// Serves everything, and lists the methods of its calls.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<Vec<&'static str>>>);

impl Everything {
    fn called<T>(&self, context: &HostContext, response: T) -> HostResult<T> {
        let method = context.request().map(|request| request.method()).expect("a request");
        self.0.lock().expect("no panic").push(method);
        Ok(response)
    }
}

impl Host for Everything {
    fn capabilities(&self) -> ClientCapabilities {
        let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
        ClientCapabilities::new().fs(files).terminal(true)
    }

    async fn request_permission(
        &self,
        context: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.called(context, RequestPermissionOutcome::Cancelled.into())
    }

    async fn read_text_file(
        &self,
        context: &HostContext,
        _: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        self.called(context, ReadTextFileResponse::new(""))
    }

    async fn write_text_file(
        &self,
        context: &HostContext,
        _: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        self.called(context, WriteTextFileResponse::new())
    }

    async fn create_terminal(
        &self,
        context: &HostContext,
        _: CreateTerminalRequest,
    ) -> HostResult<CreateTerminalResponse> {
        self.called(context, CreateTerminalResponse::new("t"))
    }

    async fn terminal_output(
        &self,
        context: &HostContext,
        _: TerminalOutputRequest,
    ) -> HostResult<TerminalOutputResponse> {
        self.called(context, TerminalOutputResponse::new("", false))
    }

    async fn wait_for_terminal_exit(
        &self,
        context: &HostContext,
        _: WaitForTerminalExitRequest,
    ) -> HostResult<WaitForTerminalExitResponse> {
        self.called(context, TerminalExitStatus::new().into())
    }

    async fn kill_terminal(
        &self,
        context: &HostContext,
        _: KillTerminalRequest,
    ) -> HostResult<KillTerminalResponse> {
        self.called(context, KillTerminalResponse::new())
    }

    async fn release_terminal(
        &self,
        context: &HostContext,
        _: ReleaseTerminalRequest,
    ) -> HostResult<ReleaseTerminalResponse> {
        self.called(context, ReleaseTerminalResponse::new())
    }
}

const METHODS: [&str; 8] = [
    "session/request_permission",
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
];

/// Returns params that fit every method.
fn params(session: &str, path: &str) -> Value {
    json!({
        "sessionId": session, "path": path, "cwd": path, "content": "", "command": "true", "terminalId": "t",
        "toolCall": {"toolCallId": "c"},
        "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
    })
}

async fn code(script: &mut ScriptedPeer, method: &str, params: Value) -> Option<i64> {
    script.request(method, params).await["error"]["code"].as_i64()
}

#[tokio::test]
async fn a_request_reaches_the_host_only_if_it_is_offered_and_valid() {
    in_time(async {
        for is_offered in [true, false] {
            let host = Everything::default();
            let rejected = Arc::new(Mutex::new(Vec::new()));
            let client = Client::new(host.clone()).on_rejected({
                let rejected = rejected.clone();
                move |context, request, error| {
                    assert_eq!(context.request().map(|request| request.method()), Some(request.method()));
                    rejected.lock().expect("no panic").push((request.method(), i64::from(error.code.0)));
                }
            });
            let client = match is_offered {
                true => client,
                false => client.advertise(|_| ClientCapabilities::new()),
            };
            let (connection, mut script) = client_of(Wire::Memory, client, json!({})).await;
            let (session, ()) = tokio::join!(connection.new_session("/tmp"), script.accept_session("s"));
            let _session = session.expect("a session");
            let mut expected = Vec::new();
            for method in METHODS {
                let is_offered = is_offered || method == METHODS[0];
                let has_path = method.starts_with("fs/") || method == "terminal/create";
                for (session, path) in [("s", "/tmp"), ("s", "tmp"), ("s", "/t\0"), ("other", "/tmp")] {
                    let fault = match (session, path) {
                        _ if !is_offered => Some(-32601),
                        (_, "tmp" | "/t\0") if has_path => Some(-32602),
                        ("other", _) => Some(-32002),
                        _ => None,
                    };
                    let answer = code(&mut script, method, params(session, path)).await;
                    assert_eq!(answer, fault, "{method} {session} {path:?}");
                    expected.extend(fault.map(|code| (method, code)));
                    let called = std::mem::take(&mut *host.0.lock().expect("no panic"));
                    assert_eq!(called.len(), usize::from(fault.is_none()), "{method} {session} {path:?}");
                }
            }
            assert_eq!(*rejected.lock().expect("no panic"), expected);
        }
    })
    .await;
}
