//! A connection of a client: the capabilities of the agent that each request needs, its close, and its routing of
//! updates. The time is paused, so the times are exact.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duologue_client::schema::{
    McpServer, McpServerHttp, McpServerSse, SessionConfigOption, SessionConfigSelectOption, SessionId,
    SessionUpdate,
};
use duologue_client::{Client, Connection, Error, Host, HostContext, Session, limits};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time, texts};

async fn connected(capabilities: Value) -> (Connection, ScriptedPeer) {
    client_of(Wire::Memory, Client::new(()), capabilities).await
}

async fn open(connection: &Connection, script: &mut ScriptedPeer, id: &str) -> Session {
    let (session, ()) = tokio::join!(connection.new_session("/tmp"), script.accept_session(id));
    session.expect("a session")
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Returns the missing capability if a request fails without being sent.
fn missing<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
    match result {
        Err(Error::NotSupported { capability }) => capability,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_the_agent_does_not_support_are_not_sent() {
    in_time(async {
        let (agent, mut script) = connected(json!({})).await;
        let session = open(&agent, &mut script, "s").await;
        assert_eq!(missing(agent.logout().await), "auth.logout");
        assert_eq!(missing(agent.list_sessions(None)), "sessionCapabilities.list");
        assert_eq!(missing(agent.delete_session("s").await), "sessionCapabilities.delete");
        assert_eq!(missing(session.close().await), "sessionCapabilities.close");
        assert_eq!(missing(agent.load_session("s", "/tmp")), "loadSession");
        assert_eq!(missing(agent.resume_session("s", "/tmp").await), "sessionCapabilities.resume");
        let folders = agent.session_in("/tmp").additional_directory("/more").create().await;
        assert_eq!(missing(folders), "sessionCapabilities.additionalDirectories");
        script.probe().await;
    })
    .await;
}

/// Each transport of an MCP server has its own capability.
#[tokio::test(start_paused = true)]
async fn an_mcp_server_needs_the_capability_of_its_transport() {
    in_time(async {
        let http = || McpServer::Http(McpServerHttp::new("n", "https://example.com", []).into());
        let sse = || McpServer::Sse(McpServerSse::new("n", "https://example.com", []).into());
        for (offered, accepted, refused, capability) in
            [("http", http(), sse(), "mcpCapabilities.sse"), ("sse", sse(), http(), "mcpCapabilities.http")]
        {
            let (agent, mut script) = connected(json!({"mcpCapabilities": {offered: true}})).await;
            let session = agent.session_in("/tmp").mcp_server(accepted);
            let (session, ()) = tokio::join!(session.create(), script.accept_session("s"));
            session.expect("a session");
            assert_eq!(missing(agent.session_in("/tmp").mcp_server(refused).create().await), capability);
            script.probe().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn relative_paths_are_not_sent() {
    in_time(async {
        let sessions = json!({"list": {}, "resume": {}, "additionalDirectories": {}});
        let (agent, mut script) =
            connected(json!({"loadSession": true, "sessionCapabilities": sessions})).await;
        let more = agent.session_in("/tmp").additional_directory("more");
        let refused = [
            agent.new_session("tmp").await.map(drop),
            agent.load_session("s", "tmp").map(drop),
            agent.resume_session("s", "tmp").await.map(drop),
            agent.list_sessions(Some("tmp".into())).map(drop),
            more.create().await.map(drop),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Error::RelativePath { .. })), "{refused:?}");
        }
        script.probe().await;
    })
    .await;
}

/// A login in a terminal is not a request. Others are, and errors name the methods.
#[tokio::test(start_paused = true)]
async fn logins_are_named_and_sent_by_their_kind() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let (agent, ()) = tokio::join!(Client::new(()).connect(transport), async {
            let request = script.expect("initialize").await;
            let terminal = json!({"type": "terminal", "id": "tty", "name": "T", "args": [], "env": {}});
            let methods = json!([{"id": "key", "name": "K"}, terminal]);
            let capabilities = json!({"loadSession": true, "auth": {"logout": {}}});
            let result =
                json!({"protocolVersion": 1, "authMethods": methods, "agentCapabilities": capabilities});
            script.respond(&request, result).await;
        });
        let agent = agent.expect("a connection");
        assert!(missing(agent.authenticate("tty").await).contains("terminal"));
        let unknown = agent.authenticate("nope").await.expect_err("not offered");
        assert!(matches!(unknown, Error::NotOffered(_)), "{unknown:?}");
        assert_eq!(unknown.to_string(), "the agent has no login method nope for requests; it has key");
        let (authenticated, ()) = tokio::join!(agent.authenticate("key"), async {
            let request = script.expect("authenticate").await;
            assert_eq!(request["params"]["methodId"], "key");
            script.respond(&request, json!({})).await;
        });
        authenticated.expect("authenticated");
        let refuse = async |script: &mut ScriptedPeer, method: &str| {
            let request = script.expect(method).await;
            let error = json!({"code": -32000, "message": "log in"});
            script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
        };
        let named = |error: Error| match error {
            Error::AuthRequired { methods, .. } => methods.len(),
            other => panic!("{other}"),
        };
        let (made, ()) = tokio::join!(agent.new_session("/tmp"), refuse(&mut script, "session/new"));
        assert_eq!(named(made.expect_err("refused")), 2);
        let replay = agent.load_session("s", "/tmp").expect("sent");
        let (loaded, ()) = tokio::join!(replay.outcome(), refuse(&mut script, "session/load"));
        assert_eq!(named(loaded.expect_err("refused")), 2);
        let session = open(&agent, &mut script, "s").await;
        let mut turn = session.prompt("go").await.expect("a turn");
        let (ended, ()) = tokio::join!(turn.outcome(), refuse(&mut script, "session/prompt"));
        assert_eq!(named(ended.expect_err("refused")), 2);
        let (out, ()) = tokio::join!(agent.logout(), refuse(&mut script, "logout"));
        assert_eq!(named(out.expect_err("refused")), 2);
    })
    .await;
}

/// The agent sees the end of its input, and has two seconds for its last responses.
#[tokio::test(start_paused = true)]
async fn a_close_ends_our_half_and_waits_for_the_other_one() {
    in_time(async {
        for is_polite in [true, false] {
            let (agent, mut script) = connected(json!({})).await;
            let session = open(&agent, &mut script, "s").await;
            let mut turn = session.prompt("go").await.expect("a turn");
            let prompt = script.expect("session/prompt").await;
            let begun = Instant::now();
            let closing = tokio::spawn({
                let agent = agent.clone();
                async move { agent.close().await }
            });
            assert!(script.next_line().await.is_none(), "our half is still open");
            tokio::time::sleep(Duration::from_secs(1)).await;
            script.end_turn(&prompt, "end_turn").await;
            turn.outcome().await.expect("the last response");
            if is_polite {
                script.close().await;
            }
            assert!(closing.await.expect("no panic").is_none());
            assert_eq!(begun.elapsed(), Duration::from_secs(if is_polite { 1 } else { 2 }));
            assert!(agent.peer().is_closing());
            assert!(matches!(agent.closed().await, Error::Connection(_)));
        }
    })
    .await;
}

/// A prompt that waits for a cancelled turn begins when the agent is given up.
#[tokio::test(start_paused = true)]
async fn a_prompt_behind_an_ignored_cancellation_begins_after_ten_seconds() {
    in_time(async {
        let (agent, mut script) = connected(json!({})).await;
        let session = open(&agent, &mut script, "s").await;
        drop(session.prompt("first").await.expect("a turn"));
        script.expect("session/prompt").await;
        script.expect("session/cancel").await;
        let begun = Instant::now();
        let mut next = session.prompt("second").await.expect("a turn");
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        let prompt = script.expect("session/prompt").await;
        assert_eq!(prompt["params"]["prompt"][0]["text"], "second");
        script.send_chunk("s", "new").await;
        script.end_turn(&prompt, "end_turn").await;
        assert_eq!(texts(&mut next).await, ["new"]);
    })
    .await;
}

/// Each session gets its own updates, and only while it is open.
#[tokio::test(start_paused = true)]
async fn updates_go_to_their_own_session() {
    in_time(async {
        let (agent, mut script) = connected(json!({"sessionCapabilities": {"close": {}}})).await;
        let (one, two) = (open(&agent, &mut script, "1").await, open(&agent, &mut script, "2").await);
        let (mut first, mut second) = (one.updates(), two.updates());
        for id in ["1", "2", "3", "1"] {
            script.send_chunk(id, id).await;
        }
        script.probe().await;
        let next = |updates: &mut duologue_client::Updates| match updates.next().now_or_never() {
            Some(Some(Ok(update))) => update.to_string(),
            Some(other) => panic!("{other:?}"),
            None => "none".to_owned(),
        };
        assert_eq!([next(&mut first), next(&mut first), next(&mut first)], ["1", "1", "none"]);
        assert_eq!([next(&mut second), next(&mut second)], ["2", "none"]);
        assert_eq!(agent.dropped_updates(), 1, "nobody knows the session 3");
        // A second listener replaces the first, which ends.
        let mut other = one.updates();
        script.send_chunk("1", "later").await;
        script.probe().await;
        assert!(matches!(first.next().now_or_never(), Some(None)), "the first listener has ended");
        assert_eq!([next(&mut other), next(&mut other)], ["later", "none"]);
        // A closed session has no updates.
        let (closed, ()) = tokio::join!(one.close(), async {
            let request = script.expect("session/close").await;
            script.respond(&request, json!({})).await;
        });
        closed.expect("closed");
        script.send_chunk("1", "too late").await;
        script.probe().await;
        assert_eq!(next(&mut other), "none");
        assert_eq!(agent.dropped_updates(), 2);
    })
    .await;
}

/// Updates that come before the response of `session/new` are of the session that it names, and the others wait for
/// their own or are dropped.
#[tokio::test(start_paused = true)]
async fn early_updates_wait_for_their_session() {
    in_time(async {
        let (agent, mut script) = connected(json!({})).await;
        let (one, two, ()) = tokio::join!(agent.new_session("/1"), agent.new_session("/2"), async {
            let (first, second) = (script.expect("session/new").await, script.expect("session/new").await);
            for id in ["b", "a", "nobody", "b"] {
                script.send_chunk(id, id).await;
            }
            script.respond(&first, json!({"sessionId": "a"})).await;
            script.respond(&second, json!({"sessionId": "b"})).await;
            script.probe().await;
        });
        let (one, two) = (one.expect("a session"), two.expect("a session"));
        let count = |session: &Session| {
            let mut updates = session.updates();
            std::iter::from_fn(|| updates.next().now_or_never().flatten()).count()
        };
        assert_eq!((count(&one), count(&two), agent.dropped_updates()), (1, 2, 1));
        // No session is being created any more, so updates of unknown ones are dropped at once.
        script.send_chunk("nobody", "x").await;
        script.probe().await;
        assert_eq!(agent.dropped_updates(), 2);
        let third = open(&agent, &mut script, "nobody").await;
        assert_eq!(count(&third), 0);
    })
    .await;
}

/// Records the calls of the host: sessions with their folders, and the end.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Host for Log {
    fn session_started(&self, _: &HostContext, session: &SessionId, folders: &[PathBuf]) {
        self.add(format!("{session} {folders:?}"));
    }

    fn session_ended(&self, _: &HostContext, session: &SessionId) {
        self.add(format!("{session} ended"));
    }

    fn closed(&self, _: &HostContext) {
        self.add("closed".to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_is_notified_of_each_session_and_of_the_end() {
    in_time(async {
        let log = Log::default();
        let sessions = json!({"resume": {}, "close": {}, "delete": {}, "additionalDirectories": {}});
        let capabilities = json!({"loadSession": true, "sessionCapabilities": sessions});
        let (agent, mut script) = client_of(Wire::Memory, Client::new(log.clone()), capabilities).await;
        let builder = agent.session_in("/tmp").additional_directory("/more");
        let (made, ()) = tokio::join!(builder.create(), script.accept_session("new"));
        let _made = made.expect("a session");
        assert_eq!(log.take(), [r#"new ["/tmp", "/more"]"#]);
        let replay = agent.load_session("loaded", "/l").expect("sent");
        assert_eq!(log.take(), [r#"loaded ["/l"]"#], "before the request is sent");
        let request = script.expect("session/load").await;
        script.respond(&request, json!({})).await;
        replay.outcome().await.expect("a session");
        let (resumed, ()) = tokio::join!(agent.resume_session("resumed", "/r"), async {
            let request = script.expect("session/resume").await;
            script.respond(&request, json!({})).await;
        });
        let resumed = resumed.expect("a session");
        assert_eq!(log.take(), [r#"resumed ["/r"]"#]);
        // A refused load gives the session its folders back, and ends one that was not open.
        for (id, events) in [
            ("resumed", [r#"resumed ["/other"]"#, r#"resumed ["/r"]"#]),
            ("closed", [r#"closed ["/other"]"#, "closed ended"]),
        ] {
            let replay = agent.load_session(id, "/other").expect("sent");
            let request = script.expect("session/load").await;
            let error = json!({"code": -32603, "message": "no"});
            script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
            replay.outcome().await.expect_err("refused");
            assert_eq!(log.take(), events);
        }
        let (closed, ()) = tokio::join!(resumed.close(), async {
            let request = script.expect("session/close").await;
            script.respond(&request, json!({})).await;
        });
        closed.expect("closed");
        assert_eq!(log.take(), ["resumed ended"]);
        let (deleted, ()) = tokio::join!(agent.delete_session("new"), async {
            let request = script.expect("session/delete").await;
            script.respond(&request, json!({})).await;
        });
        deleted.expect("deleted");
        assert_eq!(log.take(), ["new ended"]);
        script.close().await;
        agent.closed().await;
        settle().await;
        assert_eq!(log.take(), ["closed"]);
    })
    .await;
}

/// The state of a session follows the responses, as long as they are short enough to be kept.
#[tokio::test(start_paused = true)]
async fn the_state_of_a_session_follows_the_responses() {
    in_time(async {
        for keeps_entries in [false, true] {
            let client = if keeps_entries { Client::new(()).keep_conversations() } else { Client::new(()) };
            let (agent, mut script) = client_of(Wire::Memory, client, json!({"loadSession": true})).await;
            let option = |description: &str| {
                let values = vec![SessionConfigSelectOption::new("v", "V")];
                let mut option = SessionConfigOption::select("o", "O", "v", values);
                option.description = Some(description.to_owned());
                vec![option]
            };
            let modes = |name: &str| json!({"currentModeId": "a", "availableModes": [{"id": "a", "name": name}]});
            let long = "x".repeat(1 << 20);
            let made = json!({
                "sessionId": "s", "modes": modes("A"), "configOptions": option("first"), "_meta": {"of": "new"},
            });
            let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
                let request = script.expect("session/new").await;
                script.respond(&request, made).await;
            });
            let session = session.expect("a session");
            assert_eq!(json!(session.modes()), modes("A"));
            assert_eq!(session.config_options(), option("first"));
            assert_eq!(json!(session.meta()), json!({"of": "new"}));
            for (description, is_kept) in [("second", true), (long.as_str(), keeps_entries)] {
                let before = session.config_options();
                let (set, ()) = tokio::join!(session.set_config_option("o", "v"), async {
                    let request = script.expect("session/set_config_option").await;
                    script.respond(&request, json!({"configOptions": option(description)})).await;
                });
                set.expect("set");
                let expected = if is_kept { option(description) } else { before };
                assert!(session.config_options() == expected, "{}", description.len());
            }
            // An update over the limit is passed on, but not kept.
            let mut updates = session.updates();
            let update = json!({"sessionUpdate": "config_option_update", "configOptions": option(&(long.clone() + "y"))});
            script.notify("session/update", json!({"sessionId": "s", "update": update})).await;
            script.probe().await;
            assert!(matches!(updates.next().await, Some(Ok(SessionUpdate::ConfigOptionUpdate(_)))));
            assert_eq!(session.config_options() == option(&(long.clone() + "y")), keeps_entries);
            // The response to a load replaces the state, a refused one leaves it.
            let before = (session.modes(), session.config_options());
            for is_refused in [true, false] {
                let replay = agent.load_session("s", "/tmp").expect("sent");
                let request = script.expect("session/load").await;
                if is_refused {
                    let error = json!({"code": -32603, "message": "no"});
                    script.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
                    replay.outcome().await.expect_err("refused");
                    assert!((session.modes(), session.config_options()) == before);
                } else {
                    let loaded = json!({"modes": modes(&long), "configOptions": option("third"), "_meta": {"of": "load"}});
                    script.respond(&request, loaded).await;
                    replay.outcome().await.expect("loaded");
                }
            }
            assert_eq!(session.modes().is_some(), keeps_entries, "the modes are too long to be kept");
            assert_eq!(session.config_options(), option("third"));
            assert_eq!(json!(session.meta()), json!({"of": "load"}));
        }
    })
    .await;
}

/// The end of the last handle ends the connection.
#[tokio::test(start_paused = true)]
async fn a_connection_without_handles_ends() {
    in_time(async {
        let (agent, mut script) = connected(json!({})).await;
        let session = open(&agent, &mut script, "s").await;
        let peer = agent.peer().clone();
        drop(agent);
        settle().await;
        assert!(!peer.is_closing(), "the session is a handle");
        drop(session);
        assert!(script.next_line().await.is_none(), "the connection is still open");
        peer.closed().await;
    })
    .await;
}

/// A kill of a connection without a process ends it at once.
#[tokio::test(start_paused = true)]
async fn a_killed_connection_ends_at_once() {
    in_time(async {
        let (agent, mut script) = connected(json!({})).await;
        let session = open(&agent, &mut script, "s").await;
        let mut turn = session.prompt("go").await.expect("a turn");
        script.expect("session/prompt").await;
        let begun = Instant::now();
        agent.kill();
        assert!(matches!(turn.outcome().await, Err(Error::Connection(_))));
        agent.closed().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(matches!(session.prompt("again").await, Err(Error::Connection(_))));
        assert!(matches!(session.prompt("again").await, Err(Error::Connection(_))), "it is not busy");
    })
    .await;
}

/// Each page has another cursor, and the last one repeats one.
#[tokio::test(start_paused = true)]
async fn a_list_has_a_limited_number_of_pages() {
    in_time(async {
        let capabilities = json!({"sessionCapabilities": {"list": {}}});
        let (agent, mut script) = client_of(Wire::Memory, Client::new(()), capabilities).await;
        let answer = async |script: &mut ScriptedPeer, cursor: String| {
            let request = script.expect("session/list").await;
            let sessions = json!([{"sessionId": "s", "cwd": "/"}]);
            script.respond(&request, json!({"sessions": sessions, "nextCursor": cursor})).await;
        };
        let listing = agent.list_sessions(None).expect("a listing");
        let (listed, ()) = tokio::join!(listing.all(), async {
            for page in 0..limits::LISTED_PAGES {
                answer(&mut script, page.to_string()).await;
            }
        });
        assert!(matches!(listed, Err(Error::TooManyPages { limit: limits::LISTED_PAGES })), "{listed:?}");
        let listing = agent.list_sessions(None).expect("a listing");
        let (listed, ()) = tokio::join!(listing.all(), async {
            for cursor in ["a", "b", "a"] {
                answer(&mut script, cursor.to_owned()).await;
            }
        });
        assert_eq!(listed.expect("a list").len(), 3);
    })
    .await;
}

/// Updates around a turn are separated by their place on the wire, also if all of them arrived before one was taken.
#[tokio::test(start_paused = true)]
async fn updates_before_a_turn_are_not_those_after_it() {
    in_time(async {
        let (agent, mut script) = connected(json!({})).await;
        let session = open(&agent, &mut script, "s").await;
        for is_listening in [false, true] {
            let mut listener = is_listening.then(|| session.updates());
            for text in ["one", "two"] {
                script.send_chunk("s", text).await;
            }
            script.probe().await;
            let mut turn = session.prompt("hello").await.expect("a turn");
            let prompt = script.expect("session/prompt").await;
            script.send_chunk("s", "in the turn").await;
            script.end_turn(&prompt, "end_turn").await;
            script.send_chunk("s", "late").await;
            script.probe().await;

            let mut updates = listener.take().unwrap_or_else(|| session.updates());
            for text in ["one", "two"] {
                let update = updates.next_before(&turn).expect("an update").expect("no error");
                assert_eq!(update.to_string(), text);
            }
            assert!(updates.next_before(&turn).is_none());
            assert_eq!(texts(&mut turn).await, ["in the turn"]);
            assert!(updates.next_before(&turn).is_none());
            let late = updates.next().await.expect("an update").expect("no error");
            assert_eq!(late.to_string(), "late");
        }
    })
    .await;
}
