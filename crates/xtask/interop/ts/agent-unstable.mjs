// An agent on the official TypeScript SDK with the unstable part of version 1, as `interop/unstable.rs` lists it.
import { Readable, Writable } from "node:stream";
import { McpOverAcpCaller, PROXY_METHODS, agent, methods, ndJsonStream } from "@agentclientprotocol/sdk/unstable";
import { serve, text } from "./scripted.mjs";
import { asIs, difference, failure, reporter } from "./surface.mjs";

const report = reporter(process.env.INTEROP_AGENT_REPORT);
const cwd = process.env.INTEROP_CWD;
const sessionId = "session-ts";
const forkId = "fork-ts";
const childId = "child-ts";
const serverId = "tools-1";
const mcp = new McpOverAcpCaller({ clientInfo: { name: "interop-agent", version: "1.0.0" } });
let steered = () => {};
let childCancelled = () => {};

/** Sends one update, and reports it under its kind. */
async function say(client, update, of = sessionId) {
  await client.notify("session/update", { sessionId: of, update });
  if (update.sessionUpdate !== "agent_message_chunk") report(update.sessionUpdate);
}

/** A message from one session to another one. */
const message = (from, to, messageId) => ({
  sessionUpdate: "session_message",
  messageId,
  senderSessionId: from,
  recipientSessionId: to,
});

const plays = {
  async plans(client) {
    const entries = [{ content: "Look", priority: "high", status: "completed" }];
    await say(client, { sessionUpdate: "plan_update", plan: { type: "items", planId: "p-1", entries } });
    await say(client, { sessionUpdate: "plan_update", plan: { type: "markdown", planId: "p-2", content: "# Later" } });
    await say(client, { sessionUpdate: "plan_removed", planId: "p-2" });
  },
  async usage() {
    report("session/prompt usage");
    return { usage: { totalTokens: 30, inputTokens: 20, outputTokens: 10, thoughtTokens: 5 } };
  },
  async child(client) {
    const child = { sessionUpdate: "subagent_update", sessionId: childId };
    await say(client, { ...child, title: "Review", description: "Reads the change", state: { state: "running" } });
    const content = [text("Review the change.")];
    await say(client, { ...message(sessionId, childId, "sent-1"), content });
    await say(client, { ...message(sessionId, childId, "received-1"), content }, childId);
    await say(client, { sessionUpdate: "agent_message_chunk", content: text("It looks good.") }, childId);
    await say(client, message(childId, sessionId, "sent-2"), childId);
    const chunk = { sessionUpdate: "session_message_chunk", messageId: "sent-2" };
    await say(client, { ...chunk, content: text("No ") }, childId);
    await say(client, { ...chunk, content: text("findings.") }, childId);
    await say(client, { ...child, state: { state: "idle", stopReason: "end_turn" } });
  },
  async "cancel child"(client) {
    const child = { sessionUpdate: "subagent_update", sessionId: "child-2" };
    const cancelled = new Promise((resolve) => (childCancelled = resolve));
    await say(client, { ...child, title: "Wait", capabilities: { cancel: {} }, state: { state: "running" } });
    report("session/cancel of a child", difference("child-2", await cancelled));
    await say(client, { ...child, state: { state: "idle", stopReason: "cancelled" } });
  },
  async steer(client) {
    const message = new Promise((resolve) => (steered = resolve));
    await say(client, { sessionUpdate: "agent_message_chunk", content: text("waiting") });
    await message;
  },
  async auth(client) {
    await client.notify("auth/status_update", { state: "unauthenticated", accounts: [] });
    report("auth/status_update");
  },
  async mcp(client) {
    const listed = await mcp.request(client, serverId, "tools/list", {}, { requestId: "list" });
    report("mcp/message request", difference({ result: { tools: [] } }, listed));
    const failed = await mcp.request(client, serverId, "tools/call", {}, { requestId: "fail" });
    report("mcp/message request", difference({ error: { code: -32602 } }, failed));
  },
};

const append = { mode: "append", content: [text("Answer in French.")] };
const override = { mode: "override", content: [text("You are a poet.")] };

const handlers = {
  initialize: [
    { protocolVersion: 1, clientCapabilities: { plan: {}, subagents: {} }, clientInfo: { name: "interop-client" } },
    () => ({
      protocolVersion: 1,
      agentInfo: { name: "interop-agent", version: "1.0.0" },
      agentCapabilities: {
        auth: { status: {} },
        providers: {},
        mcpCapabilities: { acp: true },
        sessionCapabilities: {
          list: {},
          fork: {},
          archive: {},
          status: {},
          title: {},
          systemPrompt: { mode: { override: {} } },
        },
      },
      _meta: { steering: { supported: true, idleBehavior: "promptRequired" } },
    }),
  ],
  "auth/status": [
    {},
    () => ({ state: "authenticated", accounts: [{ label: "Work", active: true, email: "ada@example.com" }] }),
  ],
  "providers/list": [
    {},
    () => {
      const current = { apiType: "anthropic", baseUrl: "https://example.com/a" };
      return { providers: [{ providerId: "main", supported: ["anthropic", "openai"], required: false, current }] };
    },
  ],
  "providers/set": [
    { providerId: "main", apiType: "openai", baseUrl: "https://example.com/b", headers: { "X-Key": "k" } },
    () => ({}),
  ],
  "providers/disable": [{ providerId: "main" }, () => ({})],
  "session/set_title": [{ sessionId, title: " A talk " }, ({ params }) => ({ title: params.title.trim() })],
  "session/archive": [{ sessionId: forkId }, () => ({})],
  "session/unarchive": [{ sessionId: forkId }, () => ({})],
  "session/status": [{}, ({ params }) => ({ status: params.sessionId === sessionId ? "open" : "saved" })],
};

const app = agent({ name: "interop" });
serve(app, handlers, report);
app.onRequest("session/new", ({ params }) => {
  report("systemPrompt append", difference(append, params.systemPrompt));
  report("mcp/message request", difference([{ type: "acp", name: "Tools", serverId }], params.mcpServers));
  return { sessionId };
});
app.onRequest("session/fork", ({ params }) => {
  report("session/fork", difference({ sessionId, cwd }, params));
  report("systemPrompt override", difference(override, params.systemPrompt));
  return { sessionId: forkId };
});
app.onRequest("session/list", ({ params }) => {
  report("session/list archived", difference({ archived: "only" }, params));
  return { sessions: [{ sessionId: forkId, cwd }] };
});
app.onRequest("session/prompt", async ({ params, client }) => {
  try {
    return { stopReason: "end_turn", ...(await plays[params.prompt[0].text](client)) };
  } catch (error) {
    report("initialize", failure(error));
    throw error;
  }
});
app.onNotification("session/cancel", ({ params }) => childCancelled(params.sessionId));
app.onNotification(methods.agent.mcp.message, (context) => {
  const progress = { serverId, requestId: "list", method: "notifications/progress" };
  report("mcp/message notification", difference(progress, context.params));
  return mcp.handleNotification(context);
});
app.onRequest("_session/steering", asIs, ({ params }) => {
  report("_session/steering", difference({ sessionId, prompt: [text("Only the parser.")] }, params));
  setTimeout(steered, 5);
  return { outcome: "injected" };
});
app.onRequest(PROXY_METHODS.proxy_initialize, asIs, ({ params }) => {
  report("proxy/initialize", difference({ protocolVersion: 1 }, params));
  return { protocolVersion: 1 };
});
app.onRequest(PROXY_METHODS.proxy_successor, asIs, ({ params }) => {
  report("proxy/successor request", difference({ method: "_interop/behind" }, params));
  return { params: params.params };
});
app.onNotification(PROXY_METHODS.proxy_successor, asIs, ({ params }) => {
  report("proxy/successor notification", difference({ method: "session/cancel" }, params));
});
app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
