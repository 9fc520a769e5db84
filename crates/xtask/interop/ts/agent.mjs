// An agent on the official TypeScript SDK that plays the agent's half of the surface.
import { createServer } from "node:http";
import { Readable, Writable } from "node:stream";
import { RequestError, agent, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } from "@agentclientprotocol/sdk/experimental/node";
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { WebSocketServer } from "ws";
import { asIs, difference, failure, fill, known, onRequest, pick, reporter, rowOf, surface, vars } from "./surface.mjs";

vars.SESSION = "session-ts";
const report = reporter(process.env.INTEROP_AGENT_REPORT);
let cancelled = () => {};

/** Makes one call to the client and reports how it went. */
async function call(client, { method, notify, params, result }) {
  try {
    if (notify) await client.notify(notify, fill(params));
    report(method ?? notify, method && difference(result, await client.request(method, fill(params))));
  } catch (error) {
    report(method ?? notify, failure(error));
  }
}

/** Does what the entry says happens before the answer. */
async function play(entry, { client, signal }) {
  for (const update of known(entry.updates)) {
    await client.notify(methods.client.session.update, { sessionId: vars.SESSION, update: fill(update) });
    report(rowOf(update));
  }
  for (const step of known(entry.calls)) {
    if (step.cancel) await cancelOne(client, step);
    else await call(client, step);
  }
  if (entry.cancel === "$/cancel_request") {
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    report(entry.cancel);
  } else if (entry.cancel) {
    await new Promise((resolve) => (cancelled = resolve));
    report(entry.cancel);
  }
}

/** Asks, then takes the question back with `$/cancel_request`. */
async function cancelOne(client, step) {
  const cancel = new AbortController();
  setTimeout(() => cancel.abort(), 200);
  const answer = client.request(step.method, fill(step.params), { cancellationSignal: cancel.signal });
  await answer.then(
    (result) => report(step.cancel, difference(step.result, result)),
    (error) => report(step.cancel, error.code === -32800 ? undefined : failure(error)),
  );
}

const app = agent({ name: "interop" });
for (const method of new Set(surface.agent.map((entry) => entry.method).filter(Boolean))) {
  onRequest(app, method, async (context) => {
    const candidates = surface.agent.filter((entry) => entry.method === method);
    const { entry, problem } = pick(candidates, "params", context.params);
    report(method, problem);
    await play(entry, context);
    if (entry.error) throw new RequestError(entry.error.code, entry.error.message, fill(entry.error.data));
    return fill(entry.result);
  });
}
for (const entry of surface.agent.filter((entry) => entry.notify)) {
  app.onNotification(entry.notify, asIs, ({ params }) => report(entry.notify, difference(entry.params, params)));
}
app.onNotification(methods.agent.session.cancel, () => cancelled());
if (process.argv[2] === "--serve") {
  const acp = new AcpServer({ agent: app });
  const server = createServer(createNodeHttpHandler(acp));
  server.on("upgrade", createNodeWebSocketUpgradeHandler(acp, new WebSocketServer({ noServer: true })));
  server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
} else {
  app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
}
