// A client on the official TypeScript SDK that plays the client's half of the surface: client.mjs AGENT [ARG…], or client.mjs URL
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";
import { asIs, difference, failure, fill, known, onRequest, pick, reporter, rowOf, surface, vars } from "./surface.mjs";

const report = reporter(process.env.INTEROP_CLIENT_REPORT);
const calls = surface.agent.flatMap((entry) => entry.calls ?? []);
let seen = [];
let onUpdate = () => {};

const app = client({ name: "interop" });
for (const method of new Set(calls.map((call) => call.method).filter(Boolean))) {
  onRequest(app, method, async ({ params, signal }) => {
    const { entry, problem } = pick(calls.filter((call) => call.method === method), "params", params);
    report(entry?.cancel ?? method, problem);
    vars.TERMINAL ??= "term-ts";
    if (entry.cancel) await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    return fill(entry.result);
  });
}
for (const { notify, params } of calls.filter((call) => call.notify)) {
  app.onNotification(notify, asIs, (context) => report(notify, difference(params, context.params)));
}
app.onNotification(methods.client.session.update, ({ params }) => {
  seen.push(params.update);
  onUpdate();
});

/** Every update of the entry must have come, in order, before its answer. */
function checkUpdates(entry) {
  let next = 0;
  for (const update of known(entry.updates)) {
    const at = seen.findIndex((other, index) => index >= next && !difference(update, other));
    const rival = seen.find((other) => other.sessionUpdate === update.sessionUpdate);
    report(rowOf(update), at < 0 ? difference(update, rival) ?? "out of order" : undefined);
    if (at >= 0) next = at + 1;
  }
}

/** A client that has never heard of clears still gets a text one can read. */
function checkReadable({ text, thought }) {
  const said = (kind) =>
    seen.filter((update) => update.sessionUpdate === kind).map((update) => update.content.text).join("");
  for (const [row, kind, end] of [
    ["agent_message_clear", "agent_message_chunk", text],
    ["agent_thought_clear", "agent_thought_chunk", thought],
  ]) {
    report(row, said(kind).endsWith(end) ? undefined : `not readable: ${JSON.stringify(said(kind))}`, said(kind));
  }
}

async function step(agent, entry) {
  seen = [];
  const abort = new AbortController();
  onUpdate = () => {
    if (entry.cancel === "session/cancel") agent.notify(entry.cancel, { sessionId: vars.SESSION });
    else if (entry.cancel) abort.abort();
    onUpdate = () => {};
  };
  if (!entry.cancel) onUpdate = () => {};
  if (entry.notify) {
    await agent.notify(entry.notify, fill(entry.params));
    return report(entry.notify);
  }
  const row = entry.cancel ?? (entry.error ? "an error" : entry.method);
  const late = new Promise((_, reject) => setTimeout(reject, 15000, new Error("no answer in 15 s")).unref());
  try {
    const request = agent.request(entry.method, fill(entry.params), { cancellationSignal: abort.signal });
    const answer = await Promise.race([request, late]);
    report(row, entry.error ? "answered, not refused" : difference(entry.result, answer));
  } catch (error) {
    if (entry.error) report(row, difference(entry.error, error));
    else report(row, row === "$/cancel_request" && error.code === -32800 ? undefined : failure(error));
  }
  // This SDK may resolve a request before it has handed over the updates that came before the answer.
  await new Promise((resolve) => setTimeout(resolve, 50));
  if (entry.readable) checkReadable(entry.readable);
  else checkUpdates(entry);
}

let child;
function stream([command, ...args]) {
  if (command.startsWith("http")) return createHttpStream(command);
  if (command.startsWith("ws")) return createWebSocketStream(command, { WebSocket });
  child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  return ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
}
await app.connectWith(stream(process.argv.slice(2)), async (agent) => {
  for (const entry of known(surface.agent)) await step(agent, entry);
});
child?.kill();
process.exit(0);
