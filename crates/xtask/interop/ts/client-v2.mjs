// A client on the official TypeScript SDK that speaks the draft of protocol version 2: client-v2.mjs AGENT [ARG…]
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, ndJsonStream } from "@agentclientprotocol/sdk/experimental/v2";
import { Updates, requester } from "./scripted.mjs";
import { difference, reporter } from "./surface.mjs";

const report = reporter(process.env.INTEROP_CLIENT_REPORT);
const cwd = process.env.INTEROP_CWD;
const updates = new Updates(report);
const came = (row, expected) => updates.expect(row, expected);
const until = (expected) => updates.until(expected);
let sessionId;

const app = client({ name: "interop" });
app.onNotification("session/update", ({ params }) => updates.push(params));
app.onRequest("session/request_permission", async ({ params, signal }) => {
  if (params.subject?.toolCall?.toolCallId === "call-5") {
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    report("$/cancel_request");
    return { outcome: { outcome: "cancelled" } };
  }
  const subject = { type: "tool_call", toolCall: { toolCallId: "call-2" } };
  report("session/request_permission", difference({ sessionId, subject }, params));
  return { outcome: { outcome: "selected", optionId: "yes" } };
});
app.onRequest("elicitation/create", ({ params }) => {
  const form = { mode: "form", message: "Who are you?", sessionId };
  const link = { mode: "url", elicitationId: "e-1", url: "https://example.com/login", sessionId };
  report("elicitation/create", difference(params.mode === "url" ? link : form, params));
  return params.mode === "url" ? { action: "accept" } : { action: "accept", content: { name: "Ada" } };
});
app.onNotification("elicitation/complete", ({ params }) => {
  report("elicitation/complete", difference({ elicitationId: "e-1" }, params));
});

const state = (state, more = {}) => ({ sessionUpdate: "state_update", state, ...more });

const child = spawn(process.argv[2], process.argv.slice(3), { stdio: ["pipe", "pipe", "inherit"] });
await app.connectWith(ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
  const ask = requester(agent, report);
  /** A whole turn. `during` runs before its end. */
  const turn = async (prompt, end, during = () => {}) => {
    updates.seen = [];
    const { messageId } = await ask("session/prompt", { sessionId, prompt: [{ type: "text", text: prompt }] }, {});
    await during();
    await until(state("idle"));
    came("user_message", { sessionUpdate: "user_message", messageId, content: [{ type: "text", text: prompt }] });
    came("running", state("running"));
    const all = updates.seen;
    came("idle", state("idle", end));
    updates.seen = all;
  };
  await ask(
    "initialize",
    { protocolVersion: 2, info: { name: "interop-client", version: "1.0.0" }, capabilities: { elicitation: { form: {}, url: {} } } },
    { protocolVersion: 2, info: { name: "interop-agent" }, capabilities: { session: { delete: {} } } },
  );
  await ask("auth/login", { methodId: "token" }, {});
  const small = { configOptions: [{ configId: "model", type: "select", currentValue: "small" }] };
  const large = { configOptions: [{ configId: "model", type: "select", currentValue: "large" }] };
  ({ sessionId } = await ask("session/new", { cwd }, small));
  const option = { sessionId, configId: "model", type: "id", value: "large" };
  await ask("session/set_config_option", option, large);

  await turn("updates", { stopReason: "end_turn" });
  const text = (text) => ({ content: { type: "text", text } });
  came("agent_thought_chunk", { sessionUpdate: "agent_thought_chunk", ...text("thinking") });
  came("agent_message_chunk", { sessionUpdate: "agent_message_chunk", ...text("Draft") });
  came("agent_message", { sessionUpdate: "agent_message", content: null });
  came("agent_message_chunk", { sessionUpdate: "agent_message_chunk", ...text("Hello é世界") });
  const call = { sessionUpdate: "tool_call_update", toolCallId: "call-1" };
  came("tool_call_update", { ...call, title: "Edit", kind: "edit", status: "in_progress" });
  const content = { type: "content", content: { type: "text", text: "done" } };
  came("tool_call_content_chunk", { sessionUpdate: "tool_call_content_chunk", toolCallId: "call-1", content });
  came("tool_call_update", { ...call, status: "completed" });
  came("plan_update", { sessionUpdate: "plan_update", plan: { type: "items", entries: [{ content: "Look" }] } });
  came("session_info_update", { sessionUpdate: "session_info_update", title: "A talk" });
  came("usage_update", { sessionUpdate: "usage_update", used: 12, size: 34 });
  came("config_option_update", { sessionUpdate: "config_option_update", ...small });
  const plan = { type: "command", name: "plan", input: { type: "text", hint: "what to plan" } };
  came("available_commands_update", { sessionUpdate: "available_commands_update", availableCommands: [plan] });
  came("notice", { sessionUpdate: "notice", severity: "warning", title: "Rate limited" });
  const compaction = { compactionId: "c-1" };
  came("compaction_update", { sessionUpdate: "compaction_update", ...compaction, status: "in_progress" });
  came("compaction_summary_chunk", { sessionUpdate: "compaction_summary_chunk", ...compaction, ...text("So far: hello") });
  came("compaction_update", { sessionUpdate: "compaction_update", ...compaction, status: "completed" });

  const terminal = { sessionUpdate: "terminal_update", terminalId: "t-1" };
  await turn("terminal", { stopReason: "end_turn" }, async () => {
    await until({ sessionUpdate: "terminal_output_chunk" });
    await ask("terminal/cancel", { sessionId, terminalId: "t-1" }, {});
  });
  const size = { cols: 80, rows: 24 };
  came("terminal_update", { ...terminal, command: "make", cwd, size, capabilities: { cancel: {} } });
  const data = Buffer.from("hello\n").toString("base64");
  came("terminal_output_chunk", { sessionUpdate: "terminal_output_chunk", terminalId: "t-1", data });
  came("terminal_update", { ...terminal, exitStatus: { signal: "SIGTERM" } });

  await turn("background", { stopReason: "end_turn" });
  came("background work", state("running", { background: [{ type: "tool_call", toolCallId: "call-4" }] }));
  came("background work", { sessionUpdate: "state_update", background: [] });

  await turn("permission", { stopReason: "end_turn" });
  came("requires_action", state("requires_action"));
  came("running", state("running"));
  await turn("elicitation", { stopReason: "end_turn" });

  const cancelled = { sessionUpdate: "tool_call_update", toolCallId: "call-3" };
  await turn("cancel call", { stopReason: "end_turn" }, async () => {
    await until({ ...cancelled, capabilities: { cancel: {} } });
    await ask("tool_call/cancel", { sessionId, toolCallId: "call-3" }, {});
  });
  came("tool_call_update", { ...cancelled, status: "cancelled" });
  await turn("cancel", { stopReason: "cancelled" }, async () => {
    await until({ sessionUpdate: "agent_message_chunk", ...text("waiting") });
    await agent.notify("session/cancel", { sessionId });
    report("session/cancel");
  });
  await turn("fail", { stopReason: "error", error: { message: "no model" } });
  report("error", updates.seen.some((update) => update.stopReason === "error") ? undefined : "no error");

  await ask("session/list", { cwd }, { sessions: [{ sessionId, cwd }] });
  updates.seen = [];
  await ask("session/resume", { sessionId, cwd, replayFrom: { type: "start" } }, {});
  // The state comes last, and this SDK may hand it over after the response.
  await until(state("idle"));
  const replayed = JSON.stringify(updates.seen);
  if (!replayed.includes("before") || !replayed.includes("replayed")) report("session/resume", `no replay: ${replayed}`);
  await ask("session/close", { sessionId }, {});
  await ask("session/delete", { sessionId }, {});
  await ask("auth/logout", {}, {});
});
child.kill();
process.exit(0);
