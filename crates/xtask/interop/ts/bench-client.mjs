// The client of the benchmark on the official TypeScript SDK: bench-client.mjs PLAY NUMBER.. -- AGENT ARG.., or -- URL
// crates/bench/src/play.rs says what a play is.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { FILE_BYTES, Watch, usage } from "./bench.mjs";

const args = process.argv.slice(2);
const end = args.indexOf("--");
const [play, ...numbers] = args.slice(0, end);
const [first, second, third] = numbers.map(Number);
const [command, ...commandArgs] = args.slice(end + 1);

const file = "x".repeat(FILE_BYTES);
/** What has arrived, by session. */
const seen = new Map();

const app = client({ name: "bench" })
  .onRequest(methods.client.fs.readTextFile, () => ({ content: file }))
  .onNotification(methods.client.session.update, ({ params: { sessionId, update } }) => {
    const session = seen.get(sessionId);
    const { text } = update.content;
    session.messages += 1;
    session.bytes += text.length;
    // The SDK knows no clear; a chunk without text stands for one.
    if (session.text !== undefined) session.text = text === "" ? "" : session.text + text;
    if (session.messages === session.expected) session.arrived();
  });

/** Returns the stream to a server, with nothing to wait for at its end. */
async function connectedToServer() {
  if (command.startsWith("http")) {
    const { createHttpStream } = await import("@agentclientprotocol/sdk/experimental/http-client");
    return createHttpStream(command);
  }
  const { createWebSocketStream } = await import("@agentclientprotocol/sdk/experimental/ws-client");
  const { WebSocket } = await import("ws");
  return createWebSocketStream(command, { WebSocket });
}

async function connected(work) {
  if (command.includes("://")) return app.connectWith(await connectedToServer(), (agent) => introduced(agent, work));
  const child = spawn(command, commandArgs, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const result = await app.connectWith(stream, (agent) => introduced(agent, work));
  child.kill();
  await exited;
  return result;
}

async function introduced(agent, work) {
  await agent.request(methods.agent.initialize, {
    protocolVersion: 1,
    clientCapabilities: { fs: { readTextFile: true } },
  });
  return work(agent);
}

async function newSession(agent) {
  const { sessionId } = await agent.request(methods.agent.session.new, { cwd: "/bench", mcpServers: [] });
  return sessionId;
}

/** One turn. The SDK may resolve a request before it has handed over the updates that came ahead of the answer. */
async function prompt(agent, sessionId, text, expected, { image, folded } = {}) {
  const session = { messages: 0, bytes: 0, expected, text: folded ? "" : undefined };
  const arrived = new Promise((resolve) => (session.arrived = resolve));
  seen.set(sessionId, session);
  const blocks = [{ type: "text", text }];
  if (image) blocks.push({ type: "image", mimeType: "image/png", data: image });
  const { stopReason } = await agent.request(methods.agent.session.prompt, { sessionId, prompt: blocks });
  if (stopReason !== "end_turn") throw new Error(`a turn ended with ${stopReason}`);
  if (expected > 0) await arrived;
  return session;
}

const said = async (agent, sessionId, text, image) =>
  (await prompt(agent, sessionId, text, 1, { image, folded: true })).text;

const usages = async (agent, sessionId) => [JSON.parse(await said(agent, sessionId, "usage")), usage()];

const plays = {
  async stream(agent, sessionId) {
    const watch = new Watch();
    const { messages, bytes } = await prompt(agent, sessionId, `stream ${first} ${second}`, first);
    return { messages, bytes, wall_ns: watch.wall() };
  },
  async prompts(agent, sessionId) {
    const watch = new Watch();
    for (let i = 0; i < first; i += 1) {
      await prompt(agent, sessionId, "end", 0);
      watch.lap();
    }
    return { messages: first, bytes: 0, wall_ns: watch.wall(), latency_ns: watch.latency() };
  },
  async read(agent, sessionId) {
    const watch = new Watch();
    const { count, bytes, ...latency } = JSON.parse(await said(agent, sessionId, `read ${first}`));
    return { messages: count, bytes, wall_ns: watch.wall(), latency_ns: latency };
  },
  async sessions(agent) {
    const open = [];
    for (let i = 0; i < first; i += 1) open.push(await newSession(agent));
    const watch = new Watch();
    const turns = await Promise.all(open.map((id) => prompt(agent, id, `stream ${second} ${third}`, second)));
    const wall_ns = watch.wall();
    if (turns.some(({ messages }) => messages !== second)) throw new Error("a session did not see all its updates");
    const sum = (name) => turns.reduce((total, turn) => total + turn[name], 0);
    return { messages: sum("messages"), bytes: sum("bytes"), wall_ns };
  },
  async idle(agent) {
    const watch = new Watch();
    const open = [];
    for (let i = 0; i < first; i += 1) open.push(await newSession(agent));
    return { messages: open.length, bytes: 0, wall_ns: watch.wall() };
  },
  async image(agent, sessionId) {
    const image = "A".repeat(first);
    const watch = new Watch();
    let bytes = 0;
    for (let i = 0; i < second; i += 1) {
      watch.again();
      bytes += Number(await said(agent, sessionId, "image", image));
      watch.lap();
    }
    return { messages: second, bytes, wall_ns: watch.wall(), latency_ns: watch.latency() };
  },
  async redraw(agent, sessionId) {
    const watch = new Watch();
    const turn = await prompt(agent, sessionId, `redraw ${first} ${second}`, 3 * first, { folded: true });
    return { messages: turn.messages, bytes: turn.text.length, wall_ns: watch.wall() };
  },
};

let figures;
if (play === "start") {
  const watch = new Watch();
  for (let i = 0; i < first; i += 1) {
    watch.again();
    await connected(() => watch.lap());
  }
  figures = { messages: first, bytes: 0, wall_ns: watch.wall(), latency_ns: watch.latency() };
} else {
  figures = await connected(async (agent) => {
    const sessionId = await newSession(agent);
    const before = await usages(agent, sessionId);
    const played = await plays[play](agent, sessionId);
    const after = await usages(agent, sessionId);
    return { ...played, agent: [before[0], after[0]], client: [before[1], after[1]] };
  });
}
console.log(JSON.stringify(figures));
process.exit(0);
