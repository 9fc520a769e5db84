//! Which folders a session may use, and who answers when an editor answers single methods itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use duologue_client::schema::{
    ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse, ReadTextFileRequest,
    ReadTextFileResponse, SessionId, TerminalOutputRequest, WriteTextFileRequest, WriteTextFileResponse,
};
use duologue_client::{Client, Host, HostContext, HostResult, LocalHost, Permissions};
use serde_json::json;

use super::desk::{Agent, Desk, INTERNAL, INVALID, NOT_FOUND, UNKNOWN, outcome};
use duologue_test_support::Wire;
use duologue_test_support::client_of;
use duologue_test_support::in_time;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_its_own_folders_of_the_roots() {
    in_time(async {
        let desk = Desk::new();
        let library = desk.path("library");
        std::fs::create_dir(&library).expect("a folder");
        std::fs::write(library.join("lib.txt"), "library").expect("a file");
        // Leads from one folder into another.
        desk.link("lib", "../library");
        let host = || desk.host().root(&library);
        let top = desk.path("");
        let (root, dir) = (desk.root(), desk.at("dir"));
        let (file, inner, lib) = (desk.at("file.txt"), desk.at("dir/inner.txt"), library.join("lib.txt"));
        let linked = desk.at("lib/lib.txt");
        // cwd, additional directories, and who of file, inner, lib and linked can be read.
        for (cwd, more, expect) in [
            (&root, vec![], [true, true, false, false]),
            (&dir, vec![], [false, true, false, false]),
            (&library, vec![], [false, false, true, false]),
            (&root, vec![library.clone()], [true, true, true, true]),
            (&dir, vec![library.clone()], [false, true, true, false]),
            (&library, vec![root.clone()], [true, true, true, true]),
            // A folder above the roots gives access to the roots alone.
            (&top, vec![], [true, true, true, true]),
            (&desk.path("outside"), vec![], [false; 4]),
            (&desk.at("missing"), vec![], [false; 4]),
            (&desk.at("dir/../../outside"), vec![], [false; 4]),
            (&desk.path("outside"), vec![dir.clone()], [false, true, false, false]),
        ] {
            let mut agent = Agent::of(host(), desk.root()).await;
            agent.open(cwd, &more).await;
            for (path, expect) in [&file, &inner, &lib, &linked].into_iter().zip(expect) {
                let read = agent.ask_in("s1", "fs/read_text_file", json!({"path": path})).await;
                assert_eq!(read.is_ok(), expect, "{path:?} in {cwd:?} {more:?}: {read:?}");
                if let Err(refused) = read {
                    assert_eq!(refused.code, INVALID, "{refused:?}");
                }
            }
            let secret = json!({"path": desk.path("outside/secret.txt")});
            assert!(agent.ask_in("s1", "fs/read_text_file", secret).await.is_err());
            // The other session is as it was.
            assert_eq!(agent.read(&file).await.as_deref(), Ok("inside"));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_session_has_the_folders_it_is_resumed_with() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.at("dir")).await;
        agent.read(desk.at("file.txt")).await.expect_err("refused").says(INVALID, "outside");
        let connection = agent.connection.clone();
        let (resumed, ()) = tokio::join!(connection.resume_session("s0", desk.root()), async {
            let request = agent.script.expect("session/resume").await;
            agent.script.respond(&request, json!({})).await;
        });
        resumed.expect("a session");
        assert_eq!(agent.read(desk.at("file.txt")).await.as_deref(), Ok("inside"));
    })
    .await;
}

/// While a session is created, requests of unknown sessions reach the host.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_may_use_nothing() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(desk.host(), desk.root()).await;
        agent.open(desk.root(), &[]).await;
        agent.close().await;
        let connection = agent.connection.clone();
        let opening = tokio::spawn(async move { connection.new_session("/").await });
        let request = agent.script.expect("session/new").await;
        let path = json!({"path": desk.at("file.txt")});
        let read = agent.ask_in("s1", "fs/read_text_file", path).await;
        read.expect_err("refused").says(INVALID, "or has ended");
        // The other session goes on.
        assert_eq!(agent.read(desk.at("file.txt")).await.as_deref(), Ok("inside"));
        agent.script.respond(&request, json!({"sessionId": "s2"})).await;
        opening.await.expect("no panic").expect("a session");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_an_answer_may_use_nothing() {
    in_time(async {
        let desk = Desk::new();
        let (connection, mut script) = client_of(Wire::Memory, Client::new(desk.host()), json!({})).await;
        let session = tokio::spawn({
            let cwd = desk.root();
            async move { connection.new_session(cwd).await.map(|session| (connection, session)) }
        });
        let request = script.expect("session/new").await;
        let params = json!({"sessionId": "early", "path": desk.at("file.txt")});
        let mut answer = script.request("fs/read_text_file", params).await;
        outcome(&mut answer).expect_err("refused").says(INVALID, "this session has not started");
        script.respond(&request, json!({"sessionId": "early"})).await;
        session.await.expect("no panic").expect("a session");
    })
    .await;
}

/// Wraps a host and forgets to forward the start of a session.
struct Forgetful(LocalHost);

impl Host for Forgetful {
    fn capabilities(&self) -> ClientCapabilities {
        self.0.capabilities()
    }

    async fn read_text_file(
        &self,
        context: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        self.0.read_text_file(context, request).await
    }

    async fn write_text_file(
        &self,
        context: &HostContext,
        request: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        self.0.write_text_file(context, request).await
    }

    async fn create_terminal(
        &self,
        context: &HostContext,
        request: CreateTerminalRequest,
    ) -> HostResult<CreateTerminalResponse> {
        self.0.create_terminal(context, request).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_forwards_no_session_allows_nothing() {
    in_time(async {
        let desk = Desk::new();
        let mut agent = Agent::of(Forgetful(desk.host()), desk.at("dir")).await;
        let path = desk.at("dir/inner.txt");
        for (method, params) in [
            ("fs/read_text_file", json!({"path": path})),
            ("fs/write_text_file", json!({"path": path, "content": "x"})),
            ("terminal/create", json!({"command": "true"})),
        ] {
            let refused = agent.ask(method, params).await;
            refused.expect_err(method).says(INVALID, "this session has not started");
        }
    })
    .await;
}

/// Permissions of a user who allows everything, and the number of questions that reach the user.
fn counted_permissions() -> (Permissions, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let permissions = Permissions::new().ask({
        let asked = asked.clone();
        move |_, question| {
            asked.fetch_add(1, SeqCst);
            std::future::ready(question.outcome(true))
        }
    });
    (permissions, asked)
}

/// A question about reading a file, whose only option is to allow it always.
fn always(path: &std::path::Path) -> serde_json::Value {
    json!({
        "toolCall": {"toolCallId": "c", "kind": "read", "locations": [{"path": path}]},
        "options": [{"optionId": "a", "name": "Always", "kind": "allow_always"}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_serves_one_connection_after_the_other() {
    in_time(async {
        let desk = Desk::new();
        let (permissions, asked) = counted_permissions();
        let host = Arc::new(desk.host().max_terminals(1).permissions(permissions));
        for number in 1..=3 {
            let mut agent = Agent::of(host.clone(), desk.at("dir")).await;
            assert_eq!(agent.read(desk.at("dir/inner.txt")).await.as_deref(), Ok("inner"));
            // The folders of the session before do not hold any more.
            agent.read(desk.at("file.txt")).await.expect_err("refused").says(INVALID, "outside");
            let always = always(&desk.at("dir/inner.txt"));
            for _ in 0..2 {
                agent.ask("session/request_permission", always.clone()).await.expect("an answer");
            }
            assert_eq!(asked.load(SeqCst), number, "an answer held for too long, or not at all");
            agent.ask("terminal/create", json!({"command": "sleep 60"})).await.expect("a terminal");
            let one_more = agent.ask("terminal/create", json!({"command": "true"})).await;
            one_more.expect_err("refused").says(INTERNAL, "too many terminals are open (1)");
            agent.leave().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terminals_are_limited_for_each_connection_and_for_all() {
    in_time(async {
        let desk = Desk::new();
        let host = Arc::new(desk.host().max_terminals(2).max_terminals_together(3));
        let mut first = Agent::of(host.clone(), desk.root()).await;
        let mut second = Agent::of(host.clone(), desk.root()).await;
        let sleep = || json!({"command": "sleep 60"});
        let terminal = first.ask("terminal/create", sleep()).await.expect("a terminal");
        first.ask("terminal/create", sleep()).await.expect("a terminal");
        let refused = first.ask("terminal/create", sleep()).await.expect_err("refused");
        refused.says(INTERNAL, "too many terminals are open (2); release one first");
        second.ask("terminal/create", sleep()).await.expect("the other connection has terminals of its own");
        let refused = second.ask("terminal/create", sleep()).await.expect_err("refused");
        refused.says(INTERNAL, "too many terminals are open in all connections (3); release one first");
        first.ask("terminal/release", terminal).await.expect("released");
        second.ask("terminal/create", sleep()).await.expect("a terminal");
        first.leave().await;
        second.leave().await;
    })
    .await;
}

/// Two agents that call their sessions the same, as many do.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_host_share_neither_folders_nor_answers_nor_terminals() {
    in_time(async {
        let desk = Desk::new();
        let (permissions, asked) = counted_permissions();
        let host = Arc::new(desk.host().permissions(permissions));
        let mut first = Agent::of(host.clone(), desk.at("dir")).await;
        let mut second = Agent::of(host.clone(), desk.root()).await;
        let (outer, inner) = (desk.at("file.txt"), desk.at("dir/inner.txt"));
        first.read(&outer).await.expect_err("refused").says(INVALID, "outside");
        assert_eq!(second.read(&outer).await.as_deref(), Ok("inside"));
        let always = always(&inner);
        for agent in [&mut first, &mut second] {
            for _ in 0..2 {
                agent.ask("session/request_permission", always.clone()).await.expect("an answer");
            }
        }
        assert_eq!(asked.load(SeqCst), 2);
        let terminal =
            second.ask("terminal/create", json!({"command": "sleep 60"})).await.expect("a terminal");
        first.ask("terminal/kill", terminal.clone()).await.expect_err("refused").says(NOT_FOUND, "no such");
        // The end of one leaves the other as it is.
        first.leave().await;
        assert_eq!(second.read(&outer).await.as_deref(), Ok("inside"));
        let output = second.ask("terminal/output", terminal).await.expect("output");
        assert!(output["exitStatus"].is_null(), "{output}");
        second.ask("session/request_permission", always).await.expect("an answer");
        assert_eq!(asked.load(SeqCst), 2);
    })
    .await;
}

/// Wraps a host, and calls it in tasks of its own.
struct Elsewhere(Arc<LocalHost>);

impl Host for Elsewhere {
    fn capabilities(&self) -> ClientCapabilities {
        self.0.capabilities()
    }

    fn session_started(&self, context: &HostContext, session: &SessionId, folders: &[PathBuf]) {
        let (host, context, session, folders) =
            (self.0.clone(), context.clone(), session.clone(), folders.to_vec());
        let thread = std::thread::spawn(move || host.session_started(&context, &session, &folders));
        thread.join().expect("no panic");
    }

    async fn read_text_file(
        &self,
        context: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        let (host, context) = (self.0.clone(), context.clone());
        let read = tokio::spawn(async move { host.read_text_file(&context, request).await });
        read.await.expect("no panic")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrapper_that_uses_tasks_of_its_own_keeps_the_connections_apart() {
    in_time(async {
        let desk = Desk::new();
        let host = Arc::new(desk.host());
        let mut inner = Agent::of(Elsewhere(host.clone()), desk.at("dir")).await;
        let mut outer = Agent::of(Elsewhere(host), desk.root()).await;
        let file = desk.at("file.txt");
        inner.read(&file).await.expect_err("refused").says(INVALID, "outside");
        assert_eq!(outer.read(&file).await.as_deref(), Ok("inside"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_answers_from_its_buffers_and_keeps_the_rest() {
    in_time(async {
        let desk = Desk::new();
        let host = Arc::new(desk.host());
        let state = (desk.at("file.txt"), host.clone());
        let client = Client::new(host.clone()).on_with(
            state,
            async |(buffer, disk), context, request: ReadTextFileRequest| match request.path == buffer {
                true => Ok(ReadTextFileResponse::new(request.lines_of("not\nsaved\n"))),
                false => disk.read_text_file(&context, request).await,
            },
        );
        let mut agent = Agent::with(client, desk.root()).await;
        for (way, line, expect) in [
            ("file.txt", 1, Ok("not\nsaved\n")),
            ("file.txt", 2, Ok("saved\n")),
            ("file.txt", 3, Ok("")),
            ("dir/inner.txt", 1, Ok("inner")),
            ("../outside/secret.txt", 1, Err(INVALID)),
        ] {
            let params = json!({"path": desk.at(way), "line": line});
            let read = agent.ask("fs/read_text_file", params).await;
            let read = read.as_ref().map(|answer| answer["content"].as_str().expect("text"));
            assert_eq!(read.map_err(|refused| refused.code), expect, "{way}");
        }
        agent.write(desk.at("file.txt"), "written").await.expect("written");
        assert_eq!(desk.get("file.txt"), "written");
        let params = json!({"command": "cat", "args": ["file.txt"]});
        let terminal = agent.ask("terminal/create", params).await.expect("a terminal");
        agent.ask("terminal/wait_for_exit", terminal.clone()).await.expect("an end");
        let id = terminal["terminalId"].as_str().expect("an id").to_owned();
        let output = agent.ask("terminal/output", terminal).await.expect("output");
        assert_eq!(output["output"], "written");
        // The editor sees it too.
        let request = TerminalOutputRequest::new("s0", id.as_str());
        let shown = host.terminal_output(agent.connection.host_context(), request).await.expect("output");
        assert_eq!(shown.output, "written");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_features_are_neither_offered_nor_done() {
    in_time(async {
        let desk = Desk::new();
        for (host, write, terminal) in [
            (desk.host(), true, true),
            (desk.host().without_terminals(), true, false),
            (desk.host().read_only(), false, false),
        ] {
            let (transport, mut script) = Wire::Memory.scripted();
            let client = Client::new(host);
            let (connection, hello) =
                tokio::join!(client.connect(transport), script.accept_initialize(json!({})));
            let connection = connection.expect("a connection");
            let offered = &hello["params"]["clientCapabilities"];
            assert_eq!(offered["fs"]["readTextFile"], true);
            assert_eq!(offered["fs"]["writeTextFile"].as_bool().unwrap_or_default(), write);
            assert_eq!(offered["terminal"].as_bool().unwrap_or_default(), terminal);
            let (session, ()) =
                tokio::join!(connection.new_session(desk.root()), script.accept_session("s0"));
            let mut agent = Agent { script, connection, sessions: vec![session.expect("a session")] };
            let written = agent.write(desk.at("new.txt"), "x").await;
            let started = agent.ask("terminal/create", json!({"command": "true"})).await;
            for (done, expect) in [(written.map(drop), write), (started.map(drop), terminal)] {
                match done {
                    Ok(()) => assert!(expect),
                    Err(refused) => assert!(!expect && refused.code == UNKNOWN, "{refused:?}"),
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_may_come_later_and_one_that_is_gone_leaves_the_others() {
    in_time(async {
        let desk = Desk::new();
        let late = desk.at("late");
        let host = LocalHost::new(&late).root(desk.at("dir"));
        let mut agent = Agent::of(host, desk.root()).await;
        assert_eq!(agent.read(desk.at("dir/inner.txt")).await.as_deref(), Ok("inner"));
        assert!(agent.read(late.join("file.txt")).await.is_err());
        std::fs::create_dir(&late).expect("a folder");
        std::fs::write(late.join("file.txt"), "late").expect("a file");
        assert_eq!(agent.read(late.join("file.txt")).await.as_deref(), Ok("late"));
        std::fs::remove_dir_all(&late).expect("removed");
        assert!(agent.read(late.join("file.txt")).await.is_err());
        assert_eq!(agent.read(desk.at("dir/inner.txt")).await.as_deref(), Ok("inner"));
    })
    .await;
}
