// An agent on the official TypeScript SDK that speaks the draft of protocol version 2, as `interop/v2.rs` lists it.
import { Readable, Writable } from "node:stream";
import { agent, ndJsonStream } from "@agentclientprotocol/sdk/experimental/v2";
import { serve, text } from "./scripted.mjs";
import { difference, failure, reporter } from "./surface.mjs";

const report = reporter(process.env.INTEROP_AGENT_REPORT);
const sessionId = "session-ts";
const cwd = process.env.INTEROP_CWD;
const options = (currentValue) => [
  {
    type: "select",
    configId: "model",
    name: "Model",
    currentValue,
    options: [{ value: "small", name: "Small" }, { value: "large", name: "Large" }],
  },
];
let cancelled = () => {};
let callCancelled = () => {};
let terminalCancelled = () => {};
let turns = 0;

/** Sends one update, and reports it under its kind or its state. */
async function say(client, update) {
  await client.notify("session/update", { sessionId, update });
  report(update.state ?? update.sessionUpdate);
}

const plays = {
  async updates(client) {
    await say(client, { sessionUpdate: "agent_thought_chunk", messageId: "t", content: text("thinking") });
    await say(client, { sessionUpdate: "agent_message_chunk", messageId: "m", content: text("Draft") });
    await say(client, { sessionUpdate: "agent_message", messageId: "m", content: null });
    await say(client, { sessionUpdate: "agent_message_chunk", messageId: "m", content: text("Hello é世界") });
    const toolCallId = "call-1";
    const call = { sessionUpdate: "tool_call_update", toolCallId };
    await say(client, { ...call, title: "Edit", kind: "edit", status: "in_progress" });
    const content = { type: "content", content: text("done") };
    await say(client, { sessionUpdate: "tool_call_content_chunk", toolCallId, content });
    await say(client, { ...call, status: "completed" });
    const entries = [{ content: "Look", priority: "high", status: "completed" }];
    await say(client, { sessionUpdate: "plan_update", plan: { type: "items", planId: "p", entries } });
    await say(client, { sessionUpdate: "session_info_update", title: "A talk" });
    await say(client, { sessionUpdate: "usage_update", used: 12, size: 34 });
    await say(client, { sessionUpdate: "config_option_update", configOptions: options("small") });
    const input = { type: "text", hint: "what to plan" };
    const plan = { type: "command", name: "plan", description: "Makes a plan", input };
    await say(client, { sessionUpdate: "available_commands_update", availableCommands: [plan] });
    await say(client, { sessionUpdate: "notice", severity: "warning", title: "Rate limited" });
    const compaction = { sessionUpdate: "compaction_update", compactionId: "c-1" };
    await say(client, { ...compaction, status: "in_progress" });
    const summary = { sessionUpdate: "compaction_summary_chunk", compactionId: "c-1", content: text("So far: hello") };
    await say(client, summary);
    await say(client, { ...compaction, status: "completed" });
    return "end_turn";
  },
  async terminal(client) {
    const terminal = { sessionUpdate: "terminal_update", terminalId: "t-1" };
    const asked = new Promise((resolve) => (terminalCancelled = resolve));
    const size = { cols: 80, rows: 24 };
    await say(client, { ...terminal, command: "make", cwd, size, capabilities: { cancel: {} } });
    const data = Buffer.from("hello\n").toString("base64");
    await say(client, { sessionUpdate: "terminal_output_chunk", terminalId: "t-1", data });
    await asked;
    await say(client, { ...terminal, exitStatus: { signal: "SIGTERM" } });
    return "end_turn";
  },
  async background(client) {
    const toolCallId = "call-4";
    const call = { sessionUpdate: "tool_call_update", toolCallId };
    await say(client, { ...call, title: "Build", status: "in_progress" });
    const state = { sessionUpdate: "state_update", state: "running" };
    await say(client, { ...state, background: [{ type: "tool_call", toolCallId }] });
    report("background work");
    await say(client, { ...call, status: "completed" });
    await say(client, { ...state, background: [] });
    return "end_turn";
  },
  async permission(client) {
    await say(client, { sessionUpdate: "state_update", state: "requires_action" });
    const ask = (toolCallId, title, settings) => {
      const subject = { type: "tool_call", toolCall: { toolCallId, title, kind: "execute" } };
      const options = [
        { optionId: "yes", name: "Yes", kind: "allow_once" },
        { optionId: "no", name: "No", kind: "reject_once" },
      ];
      return client.request("session/request_permission", { sessionId, title, subject, options }, settings);
    };
    const answer = await ask("call-2", "Delete all");
    report("session/request_permission", difference({ outcome: { outcome: "selected", optionId: "yes" } }, answer));
    const cancel = new AbortController();
    setTimeout(() => cancel.abort(), 200);
    // A client may also answer `cancelled`.
    await ask("call-5", "Taken back", { cancellationSignal: cancel.signal }).then(
      (answer) => report("$/cancel_request", difference({ outcome: { outcome: "cancelled" } }, answer)),
      (error) => report("$/cancel_request", error.code === -32800 ? undefined : failure(error)),
    );
    await say(client, { sessionUpdate: "state_update", state: "running" });
    return "end_turn";
  },
  async elicitation(client) {
    const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const params = { mode: "form", message: "Who are you?", sessionId, requestedSchema };
    const answer = await client.request("elicitation/create", params);
    report("elicitation/create", difference({ action: "accept", content: { name: "Ada" } }, answer));
    const link = { mode: "url", elicitationId: "e-1", url: "https://example.com/login" };
    const opened = await client.request("elicitation/create", { ...link, message: "Log in there", sessionId });
    report("elicitation/create", difference({ action: "accept" }, opened));
    await client.notify("elicitation/complete", { elicitationId: "e-1" });
    report("elicitation/complete");
    return "end_turn";
  },
  async "cancel call"(client) {
    const call = { sessionUpdate: "tool_call_update", toolCallId: "call-3" };
    const asked = new Promise((resolve) => (callCancelled = resolve));
    await say(client, { ...call, title: "Sleep", status: "in_progress", capabilities: { cancel: {} } });
    await asked;
    await say(client, { ...call, status: "cancelled" });
    return "end_turn";
  },
  async cancel(client) {
    const asked = new Promise((resolve) => (cancelled = resolve));
    await say(client, { sessionUpdate: "agent_message_chunk", messageId: "w", content: text("waiting") });
    await asked;
    report("session/cancel");
    return "cancelled";
  },
  async fail() {
    report("error");
    return "error";
  },
};

/** The work of a prompt, after its response. */
async function play(client, messageId, prompt) {
  try {
    await say(client, { sessionUpdate: "user_message", messageId, content: prompt });
    await say(client, { sessionUpdate: "state_update", state: "running" });
    const stopReason = await plays[prompt[0].text](client);
    const error = stopReason === "error" ? { error: { code: -32603, message: "no model" } } : {};
    await say(client, { sessionUpdate: "state_update", state: "idle", stopReason, ...error });
  } catch (error) {
    report("session/prompt", failure(error));
  }
}

const handlers = {
  initialize: [
    { protocolVersion: 2, info: { name: "interop-client" }, capabilities: { elicitation: { form: {}, url: {} } } },
    () => ({
      protocolVersion: 2,
      info: { name: "interop-agent", version: "1.0.0" },
      capabilities: { session: { delete: {} } },
      authMethods: [{ type: "agent", methodId: "token", name: "Token" }],
    }),
  ],
  "auth/login": [{ methodId: "token" }, () => ({})],
  "auth/logout": [{}, () => ({})],
  "session/new": [{ cwd }, () => ({ sessionId, configOptions: options("small") })],
  "session/set_config_option": [
    { sessionId, configId: "model", type: "id", value: "large" },
    () => ({ configOptions: options("large") }),
  ],
  "session/prompt": [
    { sessionId },
    ({ params, client }) => {
      const messageId = `user-${++turns}`;
      // A message before the response would precede its own id.
      setTimeout(() => play(client, messageId, params.prompt), 5);
      return { messageId };
    },
  ],
  "tool_call/cancel": [
    { sessionId, toolCallId: "call-3" },
    () => {
      setTimeout(callCancelled, 5);
      return {};
    },
  ],
  "terminal/cancel": [
    { sessionId, terminalId: "t-1" },
    () => {
      setTimeout(terminalCancelled, 5);
      return {};
    },
  ],
  "session/list": [{}, () => ({ sessions: [{ sessionId, cwd, title: "A talk" }] })],
  "session/resume": [
    { sessionId, cwd, replayFrom: { type: "start" } },
    async ({ client }) => {
      const update = (update) => client.notify("session/update", { sessionId, update });
      await update({ sessionUpdate: "user_message", messageId: "u-0", content: [text("before")] });
      await update({ sessionUpdate: "agent_message", messageId: "a-0", content: [text("replayed")] });
      await update({ sessionUpdate: "state_update", state: "idle" });
      return { configOptions: options("large") };
    },
  ],
  "session/close": [{ sessionId }, () => ({})],
  "session/delete": [{ sessionId }, () => ({})],
};

const app = agent({ name: "interop" });
serve(app, handlers, report);
app.onNotification("session/cancel", () => cancelled());
app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
