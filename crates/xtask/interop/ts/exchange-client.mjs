// A client on the official TypeScript SDK that sends an agent envelopes, and takes the agent's: exchange-client.mjs AGENT [ARG…]
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, ndJsonStream } from "@agentclientprotocol/sdk";
import { hookDialogue } from "./dialogue.mjs";
import { hook, introduced, offers, their } from "./exchange.mjs";
import { tour } from "./exchange-walkthrough.mjs";
import { hookWork } from "./work.mjs";

const app = client({ name: "exchange" });
app.onNotification("session/update", () => {});
const [command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
await hookWork(hookDialogue(hook(app))).connectWith(stream, async (agent) => {
  const hello = await agent.request("initialize", { protocolVersion: 1, clientCapabilities: { _meta: offers } });
  introduced(hello.agentCapabilities);
  const session = await agent.request("session/new", { cwd: process.env.INTEROP_CWD, mcpServers: [] });
  their.session = session.sessionId;
  await tour(agent, process.env.INTEROP_CLIENT_REPORT);
  const prompt = [{ type: "text", text: "your turn" }];
  await agent.request("session/prompt", { sessionId: their.session, prompt });
});
child.kill();
process.exit(0);
