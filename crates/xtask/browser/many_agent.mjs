// An agent over stdio that answers every prompt with many updates: `node many_agent.mjs NUMBER`.
import { once } from "node:events";
import { createInterface } from "node:readline";

const EVENTS = Number(process.argv[2]);
const write = async (message) => {
  if (!process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)) await once(process.stdout, "drain");
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") await write({ id, result: { protocolVersion: 1, agentCapabilities: {}, authMethods: [] } });
  else if (method === "session/new") await write({ id, result: { sessionId: "many" } });
  else if (method === "session/prompt") {
    for (let place = 0; place < EVENTS; place += 1) {
      const update =
        place % 4 === 3
          ? { sessionUpdate: "tool_call", toolCallId: `t${place}`, title: `tool ${place}`, kind: "read", status: "completed" }
          : { sessionUpdate: "agent_message_chunk", messageId: `m${place}`, content: { type: "text", text: `Some words and word${place}.` } };
      await write({ method: "session/update", params: { sessionId: params.sessionId, update } });
    }
    await write({ id, result: { stopReason: "end_turn" } });
  } else if (id !== undefined) await write({ id, error: { code: -32601, message: "unknown" } });
}
