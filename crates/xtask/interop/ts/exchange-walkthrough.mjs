// What this peer asks of the other one, and what it expects: a row of the report for each.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { dialogueRows } from "./dialogue.mjs";
import { about, ask, envelope, own, tell, their } from "./exchange.mjs";
import { failure, reporter } from "./surface.mjs";
import { workRows } from "./work.mjs";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** An envelope of the other side, checked as far as it is the same for all kinds. */
function opened(letter, kind, ref) {
  assert.deepEqual(Object.keys(letter).sort(), ["from", "id", "kind", "payload", "ref", "to", "ts", "v"]);
  assert.match(letter.id, UUID);
  assert.deepEqual([letter.v, letter.from, letter.to, letter.kind, letter.ref], [1, their.id, own, kind, ref]);
  assert.ok(Math.abs(Date.now() - letter.ts) < 60_000);
  return letter.payload;
}

async function asked(peer, kind, payload, reply, change) {
  const { asked, ...answer } = await ask(peer, kind, payload, change);
  return { id: asked.id, ...opened(answer, reply, asked.id) };
}

/** The error that a request is answered with: its code, and the fault in its envelope. */
async function refused(request, code, fault, ref) {
  const error = await request.then((answer) => assert.fail(`answered: ${JSON.stringify(answer)}`), (error) => error);
  assert.ok(error.data?.envelope, failure(error));
  assert.deepEqual([error.code, error.data.envelope.payload.code], [code, fault]);
  return opened(error.data.envelope, "error", ref ?? error.data.envelope.ref);
}

/** The one letter that ends a delegation. */
async function ended(id, kind) {
  const letters = await about(id);
  assert.equal(letters.length, 1, "one letter ends a delegation");
  return opened(letters[0], kind, id);
}

const query = (peer, question, more) => asked(peer, "query", { question, max_tokens: 0, ...more }, "response");
const delegate = (peer, task, more) =>
  asked(peer, "delegate", { task, context: { room: 7 }, priority: "normal", report_back: true, ...more }, "ack");

const rows = {
  async ping(peer) {
    const { status, active_tasks, agent_name } = await asked(peer, "ping", {}, "pong");
    assert.deepEqual([status, active_tasks, agent_name], ["idle", 0, "duologue"]);
  },
  async "ping, payload null and in no session"(peer) {
    const { kind } = (await peer.request("_session/ping", { envelope: envelope("ping", null) })).envelope;
    assert.equal(kind, "pong");
    const { payload, ...bare } = envelope("ping");
    assert.equal((await peer.request("_session/ping", { envelope: bare })).envelope.kind, "pong");
  },
  async discover(peer) {
    const { id, ...capabilities } = await asked(peer, "discover", {}, "capabilities");
    assert.equal(capabilities.agent_name, "duologue");
    assert.equal(capabilities.max_concurrent_tasks, 2);
    assert.deepEqual(capabilities.domains, ["family.calendar"]);
  },
  async query(peer) {
    const payload = { question: "echo", domain: "family.calendar", max_tokens: 200, deadline_ms: 5000, mood: "curious" };
    const { summary, data, truncated } = await query(peer, "echo", payload);
    assert.deepEqual([summary, truncated], ["heard é世界 😀", false]);
    assert.deepEqual(data, payload);
  },
  async "null for what is left out"(peer) {
    const { data } = await query(peer, "echo", { domain: null, max_tokens: null, deadline_ms: null });
    assert.deepEqual(data, { question: "echo", max_tokens: 0 });
    const none = { context: null, priority: null, report_back: null, deadline_ms: null };
    assert.equal((await ended((await delegate(peer, "finish", none)).id, "result")).status, "completed");
  },
  async "query, refused"(peer) {
    const fault = await refused(ask(peer, "query", { question: "fault" }), -31004, "unknown_domain");
    assert.deepEqual([fault.message, fault.retryable], ["nobody knows", false]);
  },
  async "query, asked back"(peer) {
    assert.equal((await query(peer, "ask back")).summary, "heard é世界 😀");
  },
  async "query, missed"(peer) {
    const missed = await refused(ask(peer, "query", { max_tokens: 1 }), -32602, "invalid_parameter");
    assert.match(missed.message, /question/);
  },
  async "query, withdrawn"(peer) {
    const withdraw = new AbortController();
    setTimeout(() => withdraw.abort(), 50);
    const params = { sessionId: their.session, envelope: envelope("query", { question: "forever" }) };
    const request = peer.request("_session/query", params, { cancellationSignal: withdraw.signal });
    await refused(request, -32800, "cancelled", params.envelope.id);
    assert.equal((await query(peer, "withdrawn")).data, 1);
  },
  async "no v is v 1"(peer) {
    assert.equal((await asked(peer, "query", { question: "echo" }, "response", { v: undefined })).summary, "heard é世界 😀");
  },
  async "v 2"(peer) {
    await refused(ask(peer, "ping", {}, { v: 2 }), -31002, "unsupported_version");
  },
  async "wrong to"(peer) {
    const id = randomUUID();
    await refused(ask(peer, "ping", {}, { id, to: "feed" }), -32002, "not_found", id);
  },
  async "kind of another method"(peer) {
    const params = { sessionId: their.session, envelope: envelope("ping", {}) };
    await refused(peer.request("_session/query", params), -32602, "kind_mismatch", params.envelope.id);
  },
  async "unknown kind"(peer) {
    const id = randomUUID();
    await refused(ask(peer, "dance", {}, { id }), -32601, "unknown_kind", id);
  },
  async "unknown kind, as a notification"(peer) {
    const params = { sessionId: their.session, envelope: envelope("dance", {}) };
    await peer.notify("_session/dance", params);
    assert.equal((await ended(params.envelope.id, "error")).code, "unknown_kind");
  },
  async "unknown session"(peer) {
    const [none, other] = [undefined, "nowhere"].map((sessionId) =>
      peer.request("_session/query", { sessionId, envelope: envelope("query", { question: "echo" }) }),
    );
    await refused(none, -32602, "invalid_parameter");
    await refused(other, -32002, "not_found");
  },
  async "delegate, result"(peer) {
    const { id, accepted } = await delegate(peer, "finish");
    assert.equal(accepted, true);
    const { status, outcome, data, error } = await ended(id, "result");
    assert.deepEqual([status, outcome, data, error ?? null], ["completed", "finish", { context: { room: 7 } }, null]);
  },
  async "delegate, failed"(peer) {
    const { status, error } = await ended((await delegate(peer, "fail")).id, "result");
    assert.deepEqual([status, error.code, error.message], ["failed", "not_authorized", "not for you"]);
  },
  async "delegate, partial"(peer) {
    assert.equal((await ended((await delegate(peer, "partial")).id, "result")).status, "partial");
  },
  async "delegate, ended by error"(peer) {
    const { code, message, retryable } = await ended((await delegate(peer, "break")).id, "error");
    assert.deepEqual([code, message, retryable], ["internal", "broke", true]);
  },
  async "delegate, refused"(peer) {
    const { accepted, error } = await delegate(peer, "refuse");
    assert.deepEqual([accepted, error], [false, { code: "not_authorized", message: "not for you", retryable: false }]);
  },
  async "delegate, progress"(peer) {
    const { id } = await delegate(peer, "progress");
    const [progress, result] = await about(id, 5000, 2);
    const { topic, data } = opened(progress, "notify", id);
    assert.deepEqual([topic, data], ["task.progress", "half"]);
    assert.equal(opened(result, "result", id).status, "completed");
  },
  async "delegate, deadline"(peer) {
    const { code } = await ended((await delegate(peer, "wait", { deadline_ms: 50 })).id, "error");
    assert.equal(code, "timeout");
  },
  async "delegate, sent twice"(peer) {
    const params = { sessionId: their.session, envelope: envelope("delegate", { task: "finish", context: {} }) };
    const [first, second] = await Promise.all([1, 2].map(() => peer.request("_session/delegate", params)));
    const { id } = params.envelope;
    assert.deepEqual([first, second].map((ack) => opened(ack.envelope, "ack", id).accepted), [true, true]);
    assert.equal((await ended(id, "result")).status, "completed");
    await query(peer, "echo");
    // The result is sent again if the task had ended when the second request arrived.
    const results = await about(id);
    assert.ok(results.length <= 2, `${results.length} results`);
    for (const result of results) assert.equal(opened(result, "result", id).status, "completed");
  },
  async "delegate, no report"(peer) {
    const { id, accepted } = await delegate(peer, "finish", { report_back: false });
    assert.equal(accepted, true);
    assert.deepEqual(await about(id, 200), []);
  },
  async cancel(peer) {
    const { id } = await delegate(peer, "wait");
    const cancel = await asked(peer, "cancel", { reason: "enough" }, "ack", { ref: id });
    assert.equal(cancel.accepted, true);
    assert.equal((await ended(id, "error")).code, "cancelled");
    for (const ref of [id, randomUUID()]) {
      assert.equal((await asked(peer, "cancel", { reason: "enough" }, "ack", { ref })).accepted, false);
    }
    await refused(ask(peer, "cancel", { reason: "enough" }), -32602, "invalid_parameter");
  },
  async overloaded(peer) {
    const waiting = [await delegate(peer, "wait"), await delegate(peer, "wait")];
    assert.equal((await asked(peer, "ping", {}, "pong")).active_tasks, 2);
    const third = { task: "finish", context: {}, priority: "normal", report_back: true };
    assert.equal((await refused(ask(peer, "delegate", third), -31005, "overloaded")).retryable, true);
    waiting.push(await delegate(peer, "wait", { priority: "urgent" }));
    await refused(ask(peer, "delegate", { ...third, priority: "urgent" }), -31005, "overloaded");
    for (const { id } of waiting) await asked(peer, "cancel", { reason: "" }, "ack", { ref: id });
    for (const { id } of waiting) assert.equal((await ended(id, "error")).code, "cancelled");
  },
  async "letters about nothing"(peer) {
    const error = { code: "internal", message: "", retryable: false };
    await tell(peer, "result", { status: "completed", outcome: "", data: null, error: null }, randomUUID());
    await tell(peer, "error", error, randomUUID());
    await tell(peer, "pong", { status: "idle" }, null);
    await tell(peer, "result", { status: 7 }, randomUUID());
    await peer.notify("_session/result", {});
    await peer.notify("_session/notify", { envelope: [] });
    assert.equal((await query(peer, "echo")).summary, "heard é世界 😀");
  },
  async notify(peer) {
    const news = { topic: "work.build", data: { green: true }, importance: "high" };
    const twice = { sessionId: their.session, envelope: envelope("notify", news) };
    await peer.notify("_session/notify", twice);
    await peer.notify("_session/notify", twice);
    for (const topic of ["family.dinner", "work.done"]) await tell(peer, "notify", { ...news, topic });
    // News and questions do not wait for each other.
    let told;
    do {
      told = (await query(peer, "told")).data;
    } while (told.at(-1) !== "work.done");
    assert.deepEqual(told, ["work.build", "work.done"], "the topics listened to, once");
  },
};

/** What went wrong, on one line. */
const problem = (error) =>
  error instanceof assert.AssertionError && error.generatedMessage
    ? `${JSON.stringify(error.actual)} is not ${JSON.stringify(error.expected)}`
    : failure(error);

/** Goes through all of it and reports each row. */
export async function tour(peer, file) {
  const report = reporter(file);
  for (const [row, run] of Object.entries({ ...rows, ...dialogueRows, ...workRows })) {
    const late = new Promise((_, reject) => setTimeout(reject, 8000, new Error("not done in 8 s")).unref());
    await Promise.race([run(peer), late]).then(() => report(row), (error) => report(row, problem(error)));
  }
}
