// A client on the official TypeScript SDK with the unstable part of version 1: client-unstable.mjs AGENT [ARG…]
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { McpOverAcpProvider, McpProtocolError, PROXY_METHODS, client, methods, ndJsonStream } from "@agentclientprotocol/sdk/unstable";
import { Updates, requester, text } from "./scripted.mjs";
import { difference, reporter } from "./surface.mjs";

const report = reporter(process.env.INTEROP_CLIENT_REPORT);
const cwd = process.env.INTEROP_CWD;
const updates = new Updates(report);
const mcp = new McpOverAcpProvider();

const app = client({ name: "interop" });
app.onNotification("session/update", ({ params }) => updates.push(params));
app.onNotification("auth/status_update", ({ params }) => {
  report("auth/status_update", difference({ state: "unauthenticated" }, params));
});
app.onRequest(methods.client.mcp.message, mcp.handleRequest);

/** Handles a request to the MCP server of this client. */
async function handler({ requestId, method, notify }) {
  if (method !== "tools/list") throw new McpProtocolError(-32602, "no such tool");
  report("mcp/message request", difference("list", requestId));
  await notify("notifications/progress", { progress: 1 });
  report("mcp/message notification");
  return { result: { tools: [] } };
}

const child = spawn(process.argv[2], process.argv.slice(3), { stdio: ["pipe", "pipe", "inherit"] });
await app.connectWith(ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
  const ask = requester(agent, report);
  const hello = {
    protocolVersion: 1,
    clientInfo: { name: "interop-client", version: "1.0.0" },
    clientCapabilities: { plan: {}, subagents: {} },
  };
  const sessionCapabilities = { fork: {}, archive: {}, status: {}, title: {}, systemPrompt: { mode: { override: {} } } };
  const agentCapabilities = { auth: { status: {} }, providers: {}, mcpCapabilities: { acp: true }, sessionCapabilities };
  const steering = { steering: { supported: true } };
  await ask("initialize", hello, { protocolVersion: 1, agentCapabilities, _meta: steering });
  const account = { label: "Work", active: true, email: "ada@example.com" };
  await ask("auth/status", {}, { state: "authenticated", accounts: [account] });
  const current = { apiType: "anthropic", baseUrl: "https://example.com/a" };
  const provider = { providerId: "main", supported: ["anthropic", "openai"], required: false, current };
  await ask("providers/list", {}, { providers: [provider] });
  const headers = { "X-Key": "k" };
  const endpoint = { providerId: "main", apiType: "openai", baseUrl: "https://example.com/b", headers };
  await ask("providers/set", endpoint, {});
  await ask("providers/disable", { providerId: "main" }, {});

  const server = mcp.registerServer(agent, { name: "Tools", serverId: "tools-1", handler });
  const append = { mode: "append", content: [text("Answer in French.")] };
  const params = { cwd, mcpServers: [server.declaration], systemPrompt: append };
  const { sessionId } = await ask("session/new", params, {}, "systemPrompt append");
  await ask("session/set_title", { sessionId, title: " A talk " }, { title: "A talk" });

  /** A whole turn. `during` runs before its end. */
  const turn = async (prompt, { result = {}, row = "initialize", during = () => {} } = {}) => {
    updates.seen = [];
    const ended = ask("session/prompt", { sessionId, prompt: [text(prompt)] }, { stopReason: "end_turn", ...result }, row);
    await during();
    await ended;
    // This SDK may resolve a request before it has handed over the updates that came before the response.
    await new Promise((resolve) => setTimeout(resolve, 50));
  };
  const plan = { sessionUpdate: "plan_update" };
  await turn("plans");
  updates.expect("plan_update", { ...plan, plan: { type: "items", planId: "p-1", entries: [{ content: "Look" }] } });
  updates.expect("plan_update", { ...plan, plan: { type: "markdown", planId: "p-2", content: "# Later" } });
  updates.expect("plan_removed", { sessionUpdate: "plan_removed", planId: "p-2" });
  const usage = { totalTokens: 30, inputTokens: 20, outputTokens: 10, thoughtTokens: 5 };
  await turn("usage", { result: { usage }, row: "session/prompt usage" });

  let childId;
  const started = { sessionUpdate: "subagent_update", state: { state: "running" } };
  await turn("child", {
    during: async () => ({ sessionId: childId } = await updates.until({ ...started, title: "Review" })),
  });
  updates.expect("subagent_update", { ...started, of: sessionId, title: "Review", description: "Reads the change" });
  const message = { sessionUpdate: "session_message", senderSessionId: sessionId, recipientSessionId: childId };
  updates.expect("session_message", { ...message, of: sessionId, content: [text("Review the change.")] });
  updates.expect("session_message", { ...message, of: childId, content: [text("Review the change.")] });
  const chunk = { sessionUpdate: "session_message_chunk", of: childId };
  updates.expect("session_message_chunk", { ...chunk, content: text("No ") });
  updates.expect("session_message_chunk", { ...chunk, content: text("findings.") });
  const ended = { state: "idle", stopReason: "end_turn" };
  updates.expect("subagent_update", { sessionUpdate: "subagent_update", sessionId: childId, state: ended });
  await turn("cancel child", {
    during: async () => {
      const waiting = await updates.until({ ...started, title: "Wait", capabilities: { cancel: {} } });
      await agent.notify("session/cancel", { sessionId: waiting.sessionId });
    },
  });
  updates.expect("session/cancel of a child", { sessionUpdate: "subagent_update", state: { stopReason: "cancelled" } });

  await turn("steer", {
    during: async () => {
      await updates.until({ sessionUpdate: "agent_message_chunk", content: text("waiting") });
      await ask("_session/steering", { sessionId, prompt: [text("Only the parser.")] }, { outcome: "injected" });
    },
  });
  await turn("auth");
  await turn("mcp");

  const override = { mode: "override", content: [text("You are a poet.")] };
  const fork = await ask("session/fork", { sessionId, cwd, mcpServers: [], systemPrompt: override }, {});
  report("systemPrompt override");
  const forked = { sessionId: fork.sessionId };
  await ask("session/status", { sessionId }, { status: "open" });
  await ask("session/archive", forked, {});
  await ask("session/status", forked, { status: "saved" });
  await ask("session/list", { archived: "only" }, { sessions: [forked] }, "session/list archived");
  await ask("session/unarchive", forked, {});

  await ask(PROXY_METHODS.proxy_initialize, { protocolVersion: 1 }, { protocolVersion: 1 });
  const behind = { method: "_interop/behind", params: { n: 1 } };
  await ask(PROXY_METHODS.proxy_successor, behind, { params: { n: 1 } }, "proxy/successor request");
  await agent.notify(PROXY_METHODS.proxy_successor, { method: "session/cancel", params: { sessionId: "behind" } });
  report("proxy/successor notification");
  // A response is later than the effects of the notification.
  await ask("auth/status", {}, {});
});
child.kill();
process.exit(0);
