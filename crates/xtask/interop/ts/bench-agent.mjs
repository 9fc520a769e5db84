// The agent of the benchmark on the official TypeScript SDK. crates/bench/src/play.rs has the language of its prompts.
import { createServer } from "node:http";
import { Readable, Writable } from "node:stream";
import { RequestError, agent, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { Watch, usage } from "./bench.mjs";

const { session, fs } = methods.client;
let made = 0;

async function turn(client, sessionId, prompt) {
  const say = (text) =>
    client.notify(session.update, {
      sessionId,
      update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
    });
  const [name, ...numbers] = prompt.find((block) => block.type === "text").text.split(" ");
  const [first, second] = numbers.map(Number);
  switch (name) {
    case "end":
      return;
    case "stream": {
      const chunk = "x".repeat(second);
      for (let i = 0; i < first; i += 1) await say(chunk);
      return;
    }
    case "read": {
      const watch = new Watch();
      let bytes = 0;
      for (let i = 0; i < first; i += 1) {
        const answer = await client.request(fs.readTextFile, { sessionId, path: "/bench/file" });
        bytes += answer.content.length;
        watch.lap();
      }
      return say(JSON.stringify({ count: first, bytes, ...watch.latency() }));
    }
    case "redraw": {
      const whole = "x".repeat(second);
      let there = 0;
      for (let round = 1; round <= first; round += 1) {
        const length = Math.floor((second * round) / first);
        await say(whole.slice(there, length));
        // The SDK knows no clear; a chunk without text stands for one.
        await say("");
        await say(whole.slice(0, length));
        there = length;
      }
      return;
    }
    case "image":
      return say(String(prompt.find((block) => block.type === "image").data.length));
    case "usage":
      return say(JSON.stringify(usage()));
    default:
      throw RequestError.invalidParams("the prompt is none of the benchmark's");
  }
}

const app = agent({ name: "bench" })
  .onRequest(methods.agent.initialize, () => ({
    protocolVersion: 1,
    agentCapabilities: { promptCapabilities: { image: true } },
  }))
  // As long as a UUID, which is what agents use.
  .onRequest(methods.agent.session.new, () => ({ sessionId: String((made += 1)).padStart(36, "0") }))
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    await turn(client, params.sessionId, params.prompt);
    return { stopReason: "end_turn" };
  });
if (process.argv[2] === "--serve") {
  const { AcpServer } = await import("@agentclientprotocol/sdk/experimental/server");
  const { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } = await import("@agentclientprotocol/sdk/experimental/node");
  const { WebSocketServer } = await import("ws");
  const acp = new AcpServer({ agent: app });
  const server = createServer(createNodeHttpHandler(acp));
  server.on("upgrade", createNodeWebSocketUpgradeHandler(acp, new WebSocketServer({ noServer: true })));
  server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
} else {
  app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
}
