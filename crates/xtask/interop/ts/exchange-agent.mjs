// An agent on the official TypeScript SDK that takes envelopes, and sends its own when it is prompted.
import { Readable, Writable } from "node:stream";
import { agent, ndJsonStream } from "@agentclientprotocol/sdk";
import { hookDialogue } from "./dialogue.mjs";
import { hook, introduced, offers, their } from "./exchange.mjs";
import { tour } from "./exchange-walkthrough.mjs";
import { hookWork } from "./work.mjs";

const app = agent({ name: "exchange" });
app.onRequest("initialize", ({ params }) => {
  introduced(params.clientCapabilities);
  return { protocolVersion: 1, agentCapabilities: { _meta: offers } };
});
app.onRequest("session/new", () => ({ sessionId: (their.session = "session-ts") }));
app.onRequest("session/prompt", async ({ client }) => {
  await tour(client, process.env.INTEROP_AGENT_REPORT);
  return { stopReason: "end_turn" };
});
hookWork(hookDialogue(hook(app))).connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
