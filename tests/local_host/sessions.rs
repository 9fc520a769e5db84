//! Which folders a session may use, and who answers when an editor answers single methods itself.

use std::sync::Arc;

use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse, TerminalOutputRequest};
use duologue_client::{Client, Host, LocalHost};
use serde_json::json;

use crate::desk::{Agent, Desk, INVALID, UNKNOWN, outcome};
use crate::support::Wire;
use crate::support::in_time;
use crate::support::played::client_of;

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
            // What is above the roots has the roots, no more.
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
            agent.script.answer(&request, json!({})).await;
        });
        resumed.expect("a session");
        assert_eq!(agent.read(desk.at("file.txt")).await.as_deref(), Ok("inside"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_its_session_is_answered_an_agent_has_the_roots() {
    in_time(async {
        let desk = Desk::new();
        let (connection, mut script) = client_of(Wire::Memory, Client::new(desk.host()), json!({})).await;
        let session = tokio::spawn({
            let cwd = desk.root();
            async move { connection.new_session(cwd).await.map(|session| (connection, session)) }
        });
        let request = script.expect("session/new").await;
        for (path, expect) in [(desk.at("file.txt"), true), (desk.path("outside/secret.txt"), false)] {
            let params = json!({"sessionId": "early", "path": path});
            let mut answer = script.asked("fs/read_text_file", params).await;
            assert_eq!(outcome(&mut answer).is_ok(), expect);
        }
        script.answer(&request, json!({"sessionId": "early"})).await;
        session.await.expect("no panic").expect("a session");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_answers_from_its_buffers_and_keeps_the_rest() {
    in_time(async {
        let desk = Desk::new();
        let host = Arc::new(desk.host());
        let (buffer, disk) = (desk.at("file.txt"), host.clone());
        let client = Client::new(host.clone()).on(move |request: ReadTextFileRequest| {
            let (unsaved, disk) = (request.path == buffer, disk.clone());
            async move {
                match unsaved {
                    true => Ok(ReadTextFileResponse::new(request.lines_of("not\nsaved\n"))),
                    false => disk.read_text_file(request).await,
                }
            }
        });
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
        let shown =
            host.terminal_output(TerminalOutputRequest::new("s0", id.as_str())).await.expect("output");
        assert_eq!(shown.output, "written");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_switched_off_is_neither_offered_nor_done() {
    in_time(async {
        let desk = Desk::new();
        for (host, write, terminal) in [
            (desk.host(), true, true),
            (desk.host().without_terminals(), true, false),
            (desk.host().read_only(), false, false),
        ] {
            let (transport, mut script) = Wire::Memory.played();
            let client = Client::new(host);
            let (connection, hello) = tokio::join!(client.connect(transport), script.greet(json!({})));
            let connection = connection.expect("a connection");
            let offered = &hello["params"]["clientCapabilities"];
            assert_eq!(offered["fs"]["readTextFile"], true);
            assert_eq!(offered["fs"]["writeTextFile"].as_bool().unwrap_or_default(), write);
            assert_eq!(offered["terminal"].as_bool().unwrap_or_default(), terminal);
            let (session, ()) = tokio::join!(connection.new_session(desk.root()), script.open("s0"));
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
