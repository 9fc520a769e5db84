//! The negotiation of the version, and sessions.

use duologue_agent::schema::{
    AgentCapabilities, ArchiveSessionRequest, AuthMethod, AuthMethodAgent, AuthenticateRequest,
    InitializeRequest, Meta, ProtocolVersion, SessionArchiveCapabilities, SessionCapabilities,
    SessionConfigId, SessionStatus, SessionStatusCapabilities, SessionStatusRequest, UnarchiveSessionRequest,
};
use duologue_agent::{Agent, Context, Prompt, Result, Server, Session, SessionSetup, StopReason, Turn};
use duologue_test_support::{Wire, in_time};
use serde_json::json;

use super::{Both, client, client_of, initialize, short};

/// Logs in, but not out.
struct LoggedIn;

impl Agent for LoggedIn {
    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        vec![AuthMethodAgent::new("token", "Token").into()]
    }

    async fn authenticate(&self, _: &Context, _: AuthenticateRequest) -> Result<()> {
        Ok(())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// Version 2 has no capability for it: an agent with a login has a logout.
#[tokio::test(start_paused = true)]
async fn an_agent_with_a_login_needs_a_logout() {
    in_time(async {
        let v1 = json!({"protocolVersion": 1, "clientCapabilities": {}});
        for (request, fault) in [
            (initialize(2), "the agent advertises a login method in protocol version 2, but does not implement Agent::logout"),
            (v1, ""),
        ] {
            let (transport, mut peer) = Wire::Memory.scripted();
            tokio::spawn(Server::new(LoggedIn).protocol_v2().serve(transport));
            let response = peer.request("initialize", request).await;
            assert_eq!(response["error"]["message"].as_str().unwrap_or_default(), fault, "{response}");
        }
    })
    .await;
}

/// The highest version that both sides support, by the form of the request.
#[tokio::test(start_paused = true)]
async fn the_version_is_negotiated() {
    in_time(async {
        let v1 = |version: u16| json!({"protocolVersion": version, "clientCapabilities": {}});
        for (accepts, request, version) in [
            (true, v1(1), 1),
            (true, initialize(1), 1),
            (true, initialize(2), 2),
            (true, initialize(3), 2),
            // The form of version 1.
            (true, v1(2), 1),
            (false, initialize(2), 1),
        ] {
            let (transport, mut peer) = Wire::Memory.scripted();
            let server = Server::new(Both);
            let server = if accepts { server.protocol_v2() } else { server };
            tokio::spawn(server.serve(transport));
            let response = peer.request("initialize", request.clone()).await;
            assert_eq!(response["result"]["protocolVersion"], version, "{request} {response}");
            // In version 2 the client may repeat it before any other request.
            let again = peer.request("initialize", request.clone()).await;
            assert_eq!(again["result"]["protocolVersion"] == 2, version == 2, "{request}");
            assert_eq!(again["error"]["code"] == -32600, version == 1, "{request}");
            // A method of the other version only.
            let other = if version == 1 { "auth/logout" } else { "session/set_mode" };
            let unknown = peer.request(other, json!({})).await;
            assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
            let late = peer.request("initialize", request.clone()).await;
            assert_eq!(late["error"]["code"], -32600, "{request}");
        }
    })
    .await;
}

/// Reports the name of the client.
struct Naming;

impl Agent for Naming {
    async fn new_session(&self, context: &Context, _: &Session) -> Result<SessionSetup> {
        let name = context.client().info().map(|info| info.name.clone()).unwrap_or_default();
        context.set_answer_meta(Meta::from_iter([("client", name)]));
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// The last successful `initialize` counts, also one of version 1.
#[tokio::test(start_paused = true)]
async fn the_last_initialize_counts() {
    in_time(async {
        let v2 =
            json!({"protocolVersion": 2, "info": {"name": "second", "version": "1"}, "capabilities": {}});
        let v1 = json!({"protocolVersion": 1, "clientInfo": {"name": "second", "version": "1"}});
        for (second, version) in [(v2, 2), (v1, 1)] {
            let (transport, mut peer) = Wire::Memory.scripted();
            tokio::spawn(Server::new(Naming).protocol_v2().serve(transport));
            peer.request("initialize", initialize(2)).await;
            let response = peer.request("initialize", second).await;
            assert_eq!(response["result"]["protocolVersion"], version, "{response}");
            // A request that fails changes nothing.
            let invalid = peer.request("initialize", json!({"protocolVersion": "two"})).await;
            assert!(invalid["error"].is_object(), "{invalid}");
            let session = peer.request("session/new", json!({"cwd": "/", "mcpServers": []})).await;
            assert_eq!(session["result"]["_meta"], json!({"client": "second"}), "{session}");
            let method = if version == 1 { "auth/login" } else { "authenticate" };
            assert_eq!(peer.request(method, json!({})).await["error"]["code"], -32601);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_resumed_with_its_state() {
    in_time(async {
        let mut client = client().await;
        let resume = |id: &str, replay: Option<&str>| {
            json!({"sessionId": id, "cwd": "/", "replayFrom": replay.map(|kind| json!({"type": kind}))})
        };
        // This agent has no method for it, so only an open session can be resumed.
        let session = client.session.clone();
        let response = client.peer.send_request("session/resume", resume(&session, None)).await;
        assert_eq!(short(&client.peer.next_message().await["params"]["update"]), "state_update idle");
        assert_eq!(client.peer.next_message().await["id"], response);
        let unknown = client.peer.request("session/resume", resume("other", None)).await;
        assert_eq!(unknown["error"]["code"], -32002, "{unknown}");

        let response = client.peer.send_request("session/resume", resume("old", Some("start"))).await;
        let mut lines = Vec::new();
        loop {
            let message = client.peer.next_message().await;
            if message["id"] == response {
                break;
            }
            lines.push(short(&message["params"]["update"]));
        }
        let replay = ["user_message_chunk * before", "agent_message_chunk * replayed", "replay_complete", "state_update idle"];
        assert_eq!(lines, replay);
        let refused = client.peer.request("session/resume", resume("old", Some("_cursor"))).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    })
    .await;
}

/// Reports the status of its sessions.
struct Reporting;

impl Agent for Reporting {
    fn capabilities(&self) -> AgentCapabilities {
        let session = SessionCapabilities::new()
            .status(SessionStatusCapabilities::new())
            .archive(SessionArchiveCapabilities::new());
        AgentCapabilities::new().session_capabilities(session)
    }

    async fn session_status(&self, _: &Context, _: SessionStatusRequest) -> Result<SessionStatus> {
        Ok(SessionStatus::Saved)
    }

    async fn archive_session(&self, _: &Context, _: ArchiveSessionRequest) -> Result<()> {
        Ok(())
    }

    async fn unarchive_session(&self, _: &Context, _: UnarchiveSessionRequest) -> Result<()> {
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
        turn.cancelled().await;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_an_open_session_has_its_state() {
    in_time(async {
        let mut client = client_of(Server::new(Reporting)).await;
        let status = json!({"sessionId": client.session});
        let response = client.peer.request("session/status", status.clone()).await;
        assert_eq!(response["result"], json!({"status": "open", "state": {"state": "idle"}}));
        let prompt = client.prompt("wait").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        let response = client.peer.request("session/status", status).await;
        assert_eq!(response["result"], json!({"status": "open", "state": {"state": "running"}}));
        let response = client.peer.request("session/status", json!({"sessionId": "saved"})).await;
        assert_eq!(response["result"], json!({"status": "saved"}));
        // An agent with an archive says of each session if it is in there.
        let list = client.peer.request("session/list", json!({})).await;
        assert_eq!(list["result"]["sessions"][0]["archived"], false, "{list}");
    })
    .await;
}

/// An agent without methods for sessions of earlier connections still has those of this one.
#[tokio::test(start_paused = true)]
async fn open_sessions_are_listed_and_closed() {
    in_time(async {
        let mut client = client().await;
        let list = client.peer.request("session/list", json!({})).await;
        assert_eq!(list["result"]["sessions"][0]["sessionId"], client.session, "{list}");
        let closed = client.peer.request("session/close", json!({"sessionId": client.session})).await;
        assert!(closed["result"].is_object(), "{closed}");
        let list = client.peer.request("session/list", json!({})).await;
        assert_eq!(list["result"]["sessions"], json!([]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn modes_are_an_option() {
    in_time(async {
        let mut client = client().await;
        let session = client.peer.request("session/new", json!({"cwd": "/"})).await;
        let option = &session["result"]["configOptions"][0];
        assert_eq!(
            (&option["category"], &option["currentValue"]),
            (&json!("mode"), &json!("ask")),
            "{session}"
        );
        let set = json!({
            "sessionId": session["result"]["sessionId"], "configId": SessionConfigId::from("mode"),
            "type": "id", "value": "code",
        });
        let response = client.peer.request("session/set_config_option", set).await;
        assert_eq!(response["result"]["configOptions"][0]["currentValue"], "code", "{response}");
    })
    .await;
}

#[test]
fn version_2_is_not_the_default() {
    assert_eq!(ProtocolVersion::LATEST, ProtocolVersion::V1);
}

/// The sessions of this connection are few, and their folders cannot change.
#[tokio::test(start_paused = true)]
async fn open_sessions_are_listed_by_folder_and_resumed_as_they_are() {
    in_time(async {
        let mut client = client().await;
        let mut list = async |params| {
            let response = client.peer.request("session/list", params).await;
            response["result"]["sessions"].as_array().map(Vec::len)
        };
        assert_eq!(list(json!({"cwd": "/"})).await, Some(1));
        assert_eq!(list(json!({"cwd": "/other"})).await, Some(0));
        assert_eq!(list(json!({"cursor": "1"})).await, None);
        assert_eq!(list(json!({"archived": "exclude"})).await, Some(1));
        assert_eq!(list(json!({"archived": "only"})).await, None);
        let server = json!({"type": "stdio", "name": "a", "command": "/a"});
        let brief = json!({"mode": "append", "content": [{"type": "text", "text": "Be brief."}]});
        for changed in [
            json!({"cwd": "/", "systemPrompt": brief}),
            json!({"cwd": "/other"}),
            json!({"cwd": "/", "additionalDirectories": ["/a"]}),
            json!({"cwd": "/", "mcpServers": [server]}),
        ] {
            let mut resume = changed;
            resume["sessionId"] = json!(client.session);
            let refused = client.peer.request("session/resume", resume).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
    })
    .await;
}

/// The state after a resume is that of the turn, which goes on.
#[tokio::test(start_paused = true)]
async fn a_resumed_session_still_works() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("wait").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(3).await;
        let session = client.session.clone();
        let resume = json!({"sessionId": session, "cwd": "/"});
        let resume = client.peer.send_request("session/resume", resume).await;
        assert_eq!(client.updates(1).await, ["state_update running"]);
        assert_eq!(client.peer.next_message().await["id"], resume);
        client.peer.cancel(&session).await;
        assert_eq!(client.updates(2).await[1], "state_update idle cancelled");
    })
    .await;
}

/// The mode is an option, so the client gets all options when the agent changes it.
#[tokio::test(start_paused = true)]
async fn a_changed_mode_is_a_changed_option() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("mode").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        let update = client.peer.expect("session/update").await;
        let update = &update["params"]["update"];
        assert_eq!(update["sessionUpdate"], "config_option_update");
        assert_eq!(update["configOptions"][0]["currentValue"], "code");
        assert_eq!(client.updates(1).await, ["state_update idle end_turn"]);
    })
    .await;
}
