//! The context that every method of an agent gets with its request.

use std::sync::Arc;

use duologue_agent::schema::{
    AgentCapabilities, AuthMethodAgent, AuthenticateRequest, DeleteSessionRequest, ElicitationSchema,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, Meta,
    PromptCapabilities, SessionConfigOption, SetSessionConfigOptionRequest, SetSessionModeRequest,
    ToolCallUpdate,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Answers every request with its id, its `_meta` and the name of the client in the `_meta` of the response.
struct Mirror;

fn mirror(context: &Context) {
    let client = context.client().info().map(|info| info.name.as_str());
    context.set_answer_meta(Meta::from_iter([
        ("id", json!(context.request_id())),
        ("meta", json!(context.meta())),
        ("client", json!(client)),
        ("trace", json!(context.trace_context().map(|trace| trace.to_string()))),
    ]));
}

impl Agent for Mirror {
    fn initialize(
        &self,
        request: &InitializeRequest,
        mut response: InitializeResponse,
    ) -> Result<InitializeResponse> {
        if request.client_info.is_none() {
            return Err(Error::invalid_params("send your name"));
        }
        response.meta.clone_from(&request.meta);
        response.auth_methods = vec![AuthMethodAgent::new("key", "By key").into()];
        response.agent_capabilities =
            AgentCapabilities::new().prompt_capabilities(PromptCapabilities::new().image(true));
        Ok(response)
    }

    async fn new_session(&self, context: &Context, _: &Session) -> Result<SessionSetup> {
        mirror(context);
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, context: &Context, _: &Session) -> Result<SessionSetup> {
        mirror(context);
        Ok(SessionSetup::new())
    }

    async fn resume_session(&self, context: &Context, _: &Session) -> Result<SessionSetup> {
        mirror(context);
        Ok(SessionSetup::new())
    }

    async fn list_sessions(
        &self,
        context: &Context,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse> {
        if request.cursor.is_none() {
            mirror(context);
        }
        Ok(ListSessionsResponse::new([]).meta(Meta::from_iter([("of", "the response")])))
    }

    async fn close_session(&self, context: &Context, _: &Session) -> Result<()> {
        mirror(context);
        Ok(())
    }

    async fn delete_session(&self, context: &Context, _: DeleteSessionRequest) -> Result<()> {
        mirror(context);
        Ok(())
    }

    async fn set_mode(&self, context: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        mirror(context);
        Ok(())
    }

    async fn set_config_option(
        &self,
        context: &Context,
        _: &Session,
        _: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        mirror(context);
        Ok(Vec::new())
    }

    /// Logs in with the key in the `_meta`. Waits for a cancellation without one.
    async fn authenticate(&self, context: &Context, _: AuthenticateRequest) -> Result<()> {
        if context.meta().is_none() {
            context.cancelled().await;
            assert!(context.is_cancelled() && context.cancellation().is_cancelled());
            return Err(Error::other("withdrawn"));
        }
        mirror(context);
        Ok(())
    }

    async fn logout(&self, context: &Context) -> Result<()> {
        mirror(context);
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        assert_eq!(prompt.blocks().len(), 1);
        turn.set_answer_meta(Meta::from_iter([
            ("id", json!(turn.request_id())),
            ("meta", json!(turn.meta())),
            ("client", json!("tests")),
            ("trace", json!(turn.trace_context().map(|trace| trace.to_string()))),
        ]));
        Ok(StopReason::EndTurn)
    }
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The agent is shared, so this tests the agent in an `Arc` as well.
async fn connected() -> ScriptedPeer {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(Arc::new(Mirror), transport));
    let params = json!({"protocolVersion": 1, "_meta": {"of": "the client"}});
    let refused = client.request("initialize", params.clone()).await;
    assert_eq!(refused["error"]["message"], "send your name", "{refused}");
    let mut params = params;
    params["clientInfo"] = json!({"name": "tests", "version": "1"});
    let answer = client.request("initialize", params).await;
    assert_eq!(answer["result"]["_meta"], json!({"of": "the client"}), "{answer}");
    client
}

#[tokio::test(start_paused = true)]
async fn every_method_gets_its_request_and_can_answer_with_meta() {
    in_time(async {
        let mut client = connected().await;
        let place = json!({"sessionId": "s", "cwd": "/tmp", "mcpServers": []});
        for (method, params) in [
            ("authenticate", json!({"methodId": "key"})),
            ("logout", json!({})),
            ("session/new", place.clone()),
            ("session/load", place.clone()),
            ("session/resume", place),
            ("session/list", json!({})),
            ("session/set_mode", json!({"sessionId": "s", "modeId": "m"})),
            ("session/set_config_option", json!({"sessionId": "s", "configId": "c", "value": "v"})),
            // The capability for images is that of the response to `initialize`.
            (
                "session/prompt",
                json!({"sessionId": "s", "prompt": [{"type": "image", "data": "", "mimeType": "image/png"}]}),
            ),
            ("session/close", json!({"sessionId": "s"})),
            ("session/delete", json!({"sessionId": "s"})),
        ] {
            let mut params = params;
            params["_meta"] = json!({"key": method, "traceparent": TRACE});
            let answer = client.request(method, params.clone()).await;
            let expected =
                json!({"id": answer["id"], "meta": params["_meta"], "client": "tests", "trace": TRACE});
            assert_eq!(answer["result"]["_meta"], expected, "{method}: {answer}");
        }
        let page = client.request("session/list", json!({"cursor": "2"})).await;
        assert_eq!(page["result"]["_meta"], json!({"of": "the response"}));
    })
    .await;
}

/// The handler is not called, in both versions.
#[tokio::test(start_paused = true)]
async fn a_login_that_was_not_offered_is_rejected() {
    in_time(async {
        let refusal = async |client: &mut ScriptedPeer, method: &str| {
            let params = json!({"methodId": "nope", "_meta": {"key": "k"}});
            let answer = client.request(method, params).await;
            let expected = "the agent has no login method nope for requests; it has key";
            assert_eq!(
                (&answer["error"]["code"], &answer["error"]["message"]),
                (&json!(-32602), &json!(expected)),
                "{answer}"
            );
        };
        refusal(&mut connected().await, "authenticate").await;
        #[cfg(feature = "protocol-v2")]
        {
            let (transport, mut client) = Wire::Memory.scripted();
            tokio::spawn(duologue_agent::Server::new(Mirror).protocol_v2().serve(transport));
            let info = json!({"name": "tests", "version": "1"});
            let params = json!({"protocolVersion": 2, "info": info, "capabilities": {}});
            client.request("initialize", params).await;
            refusal(&mut client, "auth/login").await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_context_knows_that_its_request_was_withdrawn() {
    in_time(async {
        let mut client = connected().await;
        let login = client.send_request("authenticate", json!({"methodId": "key"})).await;
        client.notify("$/cancel_request", json!({"requestId": login})).await;
        let answer = client.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["message"]), (&json!(login), &json!("withdrawn")));
        let _: Value = client.request("logout", json!({})).await;
    })
    .await;
}

/// Advertises images only, and reports the schemes of the client. Needs the name of the client.
#[cfg(feature = "exchange")]
struct Reset(Arc<std::sync::atomic::AtomicU32>);

#[cfg(feature = "exchange")]
impl Agent for Reset {
    fn initialize(
        &self,
        request: &InitializeRequest,
        response: InitializeResponse,
    ) -> Result<InitializeResponse> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if request.client_info.is_none() {
            return Err(Error::invalid_params("send your name"));
        }
        Ok(InitializeResponse::new(response.protocol_version))
    }

    async fn new_session(&self, context: &Context, _: &Session) -> Result<SessionSetup> {
        let context = context.clone();
        let job = tokio::spawn(async move {
            let offers = context.client().peer_agent().offers();
            context.set_answer_meta(Meta::from_iter([("envelope", json!(offers.envelope))]));
        });
        job.await.map_err(Error::other)?;
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

#[cfg(feature = "exchange")]
#[tokio::test(start_paused = true)]
async fn a_rejected_initialize_has_no_effect() {
    in_time(async {
        let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let (transport, mut client) = Wire::Memory.scripted();
        let exchange = duologue_agent::exchange::Exchange::new().agent_id("here");
        let server = duologue_agent::Server::new(Reset(calls.clone())).exchange(exchange);
        tokio::spawn(server.serve(transport));
        let mut params = json!({"protocolVersion": 1});
        let refused = client.request("initialize", params.clone()).await;
        assert_eq!(refused["error"]["message"], "send your name", "{refused}");
        params["clientInfo"] = json!({"name": "tests", "version": "1"});
        params["clientCapabilities"] = json!({"_meta": {"duologue": {"envelope": {"v": [1]}}}});
        let answer = client.request("initialize", params.clone()).await;
        let capabilities = &answer["result"]["agentCapabilities"];
        assert_eq!(capabilities["_meta"]["duologue"]["agentId"], "here", "{answer}");
        let refused = client.request("initialize", params).await;
        assert_eq!(refused["error"]["message"], "initialized already", "{refused}");
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 2);
        let answer = client.request("session/new", json!({"cwd": "/", "mcpServers": []})).await;
        assert_eq!(answer["result"]["_meta"]["envelope"], json!([1]), "{answer}");
    })
    .await;
}

/// Sends every request to the client with a `_meta`, and reports the `_meta` of the responses.
struct Caller;

impl Agent for Caller {
    async fn new_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let meta =
            || Meta::from_iter([("of", "the agent")]).with_trace_context(&turn.trace_context().unwrap());
        if prompt.text() == "plain" {
            turn.read_text_file("/a").await?;
            return Ok(StopReason::EndTurn);
        }
        let mut received = Vec::new();
        let call = turn.tool_call("Run").start().await?;
        received.push(
            turn.request_permission(ToolCallUpdate::new("a"), vec![]).meta(meta()).response().await?.meta,
        );
        received.push(call.request_permission(vec![]).meta(meta()).response().await?.meta);
        received.push(turn.read_text_file("/a").meta(meta()).response().await?.meta);
        received.push(turn.read_lines("/a", 1, 2).meta(meta()).response().await?.meta);
        received.push(turn.write_text_file("/a", "b").meta(meta()).response().await?.meta);
        let terminal = turn.create_terminal("true", ["-x"]).meta(meta()).await?;
        received.push(terminal.meta().cloned());
        received.push(terminal.output().meta(meta()).await?.meta);
        received.push(terminal.wait_for_exit().meta(meta()).response().await?.meta);
        received.push(terminal.kill().meta(meta()).response().await?.meta);
        received.push(terminal.release().meta(meta()).response().await?.meta);
        received.push(turn.elicit_form("Which?", ElicitationSchema::new()).meta(meta()).await?.meta);
        received.push(turn.elicit_url("Open", "e", "https://example.com").meta(meta()).await?.meta);
        let methods = received.iter().map(|meta| meta.as_ref().and_then(|meta| meta.get::<String>("of")));
        turn.set_answer_meta(Meta::from_iter([("methods", json!(methods.collect::<Vec<_>>()))]));
        turn.elicitation_complete("e").meta(meta()).await?;
        // A builder that is dropped sends nothing, but a terminal is released.
        drop(turn.read_text_file("/a"));
        drop(turn.create_terminal("true", ["-x"]).await?.release());
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_to_the_client_can_have_a_meta_and_returns_that_of_its_response() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Caller, transport));
        client
            .initialize(json!({
                "fs": {"readTextFile": true, "writeTextFile": true},
                "terminal": true,
                "elicitation": {"form": {}, "url": {}},
            }))
            .await;
        let session = client.new_session().await;
        let prompt = json!({
            "sessionId": session, "prompt": [{"type": "text", "text": "all"}], "_meta": {"traceparent": TRACE},
        });
        let prompt = client.send_request("session/prompt", prompt).await;
        let mut methods = Vec::new();
        let answer = loop {
            let message = client.next_message().await;
            let Some(method) = message["method"].as_str().map(str::to_owned) else { break message };
            if method == "session/update" {
                continue;
            }
            // The last terminal is a test of its own.
            if methods.last().is_none_or(|last| last != "elicitation/complete") && methods.len() < 13 {
                assert_eq!(message["params"]["_meta"], json!({"of": "the agent", "traceparent": TRACE}), "{message}");
            } else {
                assert_eq!(message["params"].get("_meta"), None, "{message}");
            }
            if message.get("id").is_some() {
                let mut result = match method.as_str() {
                    "session/request_permission" => json!({"outcome": {"outcome": "cancelled"}}),
                    "fs/read_text_file" => json!({"content": ""}),
                    "terminal/create" => json!({"terminalId": "t"}),
                    "terminal/output" => json!({"output": "", "truncated": false}),
                    "elicitation/create" => json!({"action": "cancel"}),
                    _ => json!({}),
                };
                result["_meta"] = json!({"of": method});
                client.respond(&message, result).await;
            }
            methods.push(method);
        };
        assert_eq!(answer["id"], prompt, "{answer}");
        let expected = [
            "session/request_permission",
            "session/request_permission",
            "fs/read_text_file",
            "fs/read_text_file",
            "fs/write_text_file",
            "terminal/create",
            "terminal/output",
            "terminal/wait_for_exit",
            "terminal/kill",
            "terminal/release",
            "elicitation/create",
            "elicitation/create",
        ];
        assert_eq!(answer["result"]["_meta"]["methods"], json!(expected));
        assert_eq!(methods[..expected.len()], expected);
        assert_eq!(methods[expected.len()..], ["elicitation/complete", "terminal/create", "terminal/release"]);

        let prompt = client.prompt(&session, "plain").await;
        let read = client.expect("fs/read_text_file").await;
        assert_eq!(read["params"], json!({"sessionId": session, "path": "/a"}), "without a `_meta` nothing is added");
        client.respond(&read, json!({"content": ""})).await;
        assert_eq!(client.next_message().await["id"], prompt);
    })
    .await;
}
