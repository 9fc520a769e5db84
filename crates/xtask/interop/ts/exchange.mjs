// Envelopes on the SDK's hooks for methods of one's own, and nothing else: how they look, and what this peer answers.
import { randomBytes, randomUUID } from "node:crypto";
import { RequestError } from "@agentclientprotocol/sdk";
import { asIs } from "./surface.mjs";

/** What this peer says in `initialize`, and who it is. */
export const own = randomBytes(16).toString("hex");
export const offers = { duologue: { agentId: own, envelope: { v: [1] }, dialogue: {}, work: {} } };
/** What the other side said there, and the session both are in. */
export const their = {};
export const introduced = (capabilities) => {
  their.offers = capabilities?._meta?.duologue;
  their.id = their.offers?.agentId;
};

export const envelope = (kind, payload, ref = null) => ({
  ...{ v: 1, id: randomUUID(), from: own, to: their.id ?? "", ts: Date.now() },
  ...{ kind, ref, payload },
});
export const tell = (peer, kind, payload, ref) =>
  peer.notify(`_session/${kind}`, { sessionId: their.session, envelope: envelope(kind, payload, ref) });

/** The fault of an exchange: a JSON-RPC error with the whole envelope in it. */
const fault = (ref, rpc, code, message, retryable = false) =>
  new RequestError(rpc, message, { envelope: envelope("error", { code, message, retryable }, ref) });

const MOST = 2;
const CANCELLED = { code: "cancelled", message: "as you wish", retryable: false };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const running = new Map();
const news = [];
let withdrawn = 0;
/** Everything that came as a notification, and who waits for more. */
export const inbox = [];
let wake = () => {};
let arrived = new Promise((resolve) => (wake = resolve));
export function arrive(letter) {
  inbox.push(letter);
  wake();
  arrived = new Promise((resolve) => (wake = resolve));
}

/** The notifications that belong to `ref`, as soon as there are `many`. */
export async function about(ref, ms = 5000, many = 1) {
  const late = sleep(ms).then(() => "late");
  for (;;) {
    const found = inbox.filter((letter) => letter.ref === ref);
    if (found.length >= many) return found;
    if ((await Promise.race([arrived, late])) === "late") return found;
  }
}

/** What is answered, by kind: the kind of the answer and its payload. */
const answers = {
  ping: () => ["pong", { status: running.size > 0 ? "busy" : "idle", uptime_secs: 1, active_tasks: running.size, agent_name: "ts" }],
  discover: () => [
    "capabilities",
    { agent_name: "ts", domains: ["family.calendar"], channels: ["work.build"], tools: ["clock"], max_concurrent_tasks: MOST, model: "none" },
  ],
  async query({ id, payload }, peer, signal) {
    const answer = (summary, data = null) => ["response", { data, summary, tokens_used: 3, truncated: false }];
    switch (payload.question) {
      case "fault":
        throw fault(id, -31004, "unknown_domain", "nobody knows");
      case "plain fault":
        throw new RequestError(-32602, "no envelope in here");
      case "fault of its own":
        throw fault(id, -32000, "tired", "after lunch", true);
      case "nulls":
        return ["response", { data: null, summary: "none", tokens_used: null, truncated: null }];
      case "wrong ref":
        return [...answer("not yours"), { ref: randomUUID() }];
      case "wrong kind":
        return ["pong", { status: "idle" }];
      case "no summary":
        return ["response", { data: 7 }];
      case "forever":
        if (signal.aborted) withdrawn++;
        else signal.addEventListener("abort", () => withdrawn++);
        return new Promise(() => {});
      case "withdrawn":
        return answer("so many", withdrawn);
      case "twice":
        setTimeout(() => tell(peer, ...answer("again"), id), 20);
        return answer("once");
      case "by notification":
        await tell(peer, ...answer("as a notification"), id);
        return new Promise(() => {});
      case "ended":
        await tell(peer, "error", { code: "overloaded", message: "not today", retryable: true }, id);
        return answer("too late");
      case "late":
        await sleep(400);
        return answer("too late");
      case "ask back":
        return answer((await ask(peer, "query", { question: "echo", max_tokens: 0 })).payload.summary);
      case "told":
        return answer("the news", news);
      default:
        return answer("heard é世界 😀", payload);
    }
  },
  async delegate({ id, payload }, peer) {
    const { task, context, priority = "normal", report_back = true } = payload;
    if (running.size >= MOST + (priority === "urgent" ? 1 : 0)) throw fault(id, -31005, "overloaded", "no room", true);
    const error = { code: "not_authorized", message: "not for you", retryable: false };
    const end = (kind, result) => {
      if (running.delete(id) && report_back) return tell(peer, kind, result, id);
    };
    const result = (status, more) => end("result", { status, outcome: task, data: { context }, error: null, ...more });
    if (task === "refuse") return ["ack", { accepted: false, reason: "no", error }];
    running.set(id, () => end("error", CANCELLED));
    if (task === "early") await result("completed");
    else if (task === "progress") {
      await tell(peer, "notify", { topic: "task.progress", data: "half", importance: "low" }, id);
      setTimeout(result, 20, "completed");
    } else if (task === "fail") setTimeout(result, 20, "failed", { error });
    else if (task === "end twice") {
      setTimeout(tell, 20, peer, "result", { status: "completed", outcome: task, data: null, error: null }, id);
      setTimeout(end, 20, "error", CANCELLED);
    } else if (task === "ack by notification") {
      await tell(peer, "ack", { accepted: true, estimated_ms: 20 }, id);
      setTimeout(result, 20, "completed");
      return new Promise(() => {});
    } else if (task === "partial") setTimeout(result, 20, "partial");
    else if (task === "break") setTimeout(end, 20, "error", { code: "internal", message: "broke", retryable: true });
    else if (task !== "wait") setTimeout(result, 20, "completed");
    return ["ack", { accepted: true, estimated_ms: 20 }];
  },
  cancel({ ref }) {
    const stop = running.get(ref);
    if (!stop) return ["ack", { accepted: false, reason: "already finished", error: { code: "not_found", message: "already finished", retryable: false } }];
    setTimeout(stop, 20);
    return ["ack", { accepted: true }];
  },
};

/** What is wrong with any envelope, whatever it carries. */
function check({ v, id, to, kind }, method) {
  if ((v ?? 1) !== 1) throw fault(id, -31002, "unsupported_version", "v has to be 1");
  if (to && to !== own) throw fault(id, -32002, "not_found", "nobody here is called that");
  if (!(kind in answers)) throw fault(id, -32601, "unknown_kind", "there is no such kind");
  if (method !== `_session/${kind}`) throw fault(id, -32602, "kind_mismatch", `this is the method of another kind`);
}

/** Hangs the answers on an app of the SDK, an agent's or a client's. */
export function hook(app) {
  for (const [kind, answer] of Object.entries(answers)) {
    app.onRequest(`_session/${kind}`, asIs, async ({ params, client, agent, signal }) => {
      // Who did not say its name in `initialize` is called what it calls itself.
      their.id ??= params.envelope.from;
      check(params.envelope, `_session/${kind}`);
      const [reply, payload, change] = await answer(params.envelope, client ?? agent, signal);
      return { envelope: { ...envelope(reply, payload, params.envelope.id), ...change } };
    });
  }
  app.onRequest("*", ({ method, params }) => {
    if (method.startsWith("_session/") && params?.envelope) check(params.envelope, method);
    throw RequestError.methodNotFound(method);
  });
  for (const kind of ["notify", "result", "error", "pong", "response", "ack", "capabilities"]) {
    app.onNotification(`_session/${kind}`, asIs, ({ params }) => {
      const { id, payload } = params.envelope;
      if (kind === "notify" && payload.topic.startsWith("work.") && inbox.every((letter) => letter.id !== id)) {
        news.push(payload.topic);
      }
      arrive(params.envelope);
    });
  }
  return app;
}

/** Asks the other side and returns the whole answer. */
export async function ask(peer, kind, payload, change = {}) {
  const asked = { ...envelope(kind, payload), ...change };
  const params = { sessionId: their.session, envelope: asked };
  return { asked, ...(await peer.request(`_session/${kind}`, params)).envelope };
}
