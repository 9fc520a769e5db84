// Dialogue messages, signed and verified with what Node has: RFC 8785 for the canonical form, RFC 7515 for the rest.
import assert from "node:assert/strict";
import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { about, arrive, their } from "./exchange.mjs";
import { asIs } from "./surface.mjs";

const [OWN, THEIRS] = ["agent://ts.example/desk", "agent://duologue.example/desk"];
const KEYS = {
  "ts-1": { owner: OWN, secret: "what the peer on the TypeScript SDK signs with" },
  "duologue-1": { owner: THEIRS, secret: "what our side of the interop run signs with" },
};

export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  // Sorted by UTF-16 code units, as the RFC wants it and as JavaScript does it.
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
  return `{${members.join()}}`;
}

const base64url = (text) => Buffer.from(text).toString("base64url");
const mac = (header, message, secret) =>
  createHmac("sha256", secret).update(`${header}.${base64url(canonical(message))}`).digest();

export function sign({ signature, ...message }, kid = "ts-1") {
  const header = base64url(JSON.stringify({ alg: "HS256", kid, typ: "dialogue" }));
  return { ...message, signature: `${header}..${mac(header, message, KEYS[kid].secret).toString("base64url")}` };
}

/** Whether the sender of a message signed it as it is. */
export function isSigned({ signature, ...message }) {
  const [header, given] = signature?.split("..") ?? [];
  if (!given) return false;
  const { alg, kid, typ } = JSON.parse(Buffer.from(header, "base64url"));
  const key = KEYS[kid];
  if (alg !== "HS256" || typ !== "dialogue" || key?.owner !== message.sender_id) return false;
  const [made, claimed] = [mac(header, message, key.secret), Buffer.from(given, "base64url")];
  return made.length === claimed.length && timingSafeEqual(made, claimed);
}

const message = (session_id, interaction_step, message_type, content, parent_message_id = null) => ({
  ...{ message_id: randomUUID(), session_id, parent_message_id, sender_id: OWN, recipient_id: THEIRS },
  ...{ timestamp: new Date().toISOString(), interaction_step, message_type, dialogue_act: null },
  content: { previous_context: [], domain: "interop", parameters: {}, ...content },
  metadata: { priority: 4, ttl: 60 },
});
const send = (peer, message) => peer.request("_session/dialogue", { sessionId: their.session, message });

/** Why a message was not taken. Nobody signs that: it is no part of the dialogue. */
function refusal(failed, error_code, error_message) {
  const { message_id, session_id, sender_id, recipient_id } = failed;
  const content = { error_code, error_message, details: {}, failed_message_id: message_id };
  Object.assign(content, { failed_session_id: session_id, failed_sender_id: sender_id, failed_recipient_id: recipient_id });
  return { error: message(session_id, failed.interaction_step + 1, "error", content, message_id) };
}

/** What is said to a message, if anything. */
function answer({ message_type, content: { parameters } }) {
  if (message_type === "request") return ["response", { natural_language: "heard é世界 😀", parameters }];
  if (message_type !== "propose") return [];
  return parameters.price > 17_000 ? ["reject", { parameters: { counter_offer: { price: 16_000 } } }] : ["accept", {}];
}

/** Takes what is signed, and answers with messages of its own. */
export function hookDialogue(app) {
  return app.onRequest("_session/dialogue", asIs, ({ params, client, agent }) => {
    const heard = params.message;
    if (!isSigned(heard)) return refusal(heard, "UNAUTHORIZED", "who says that?");
    if (heard.content.task === "refuse") return refusal(heard, "INVALID_PARAMETER", "not that");
    arrive({ id: heard.message_id, ref: heard.parent_message_id, message: heard });
    const [move, content] = answer(heard);
    if (move) {
      const answer = message(heard.session_id, heard.interaction_step + 1, move, content, heard.message_id);
      setTimeout(reply, 20, client ?? agent, sign(answer), heard.content.task === "alter");
    }
    return { receipt: { message_id: heard.message_id, session_id: heard.session_id, duplicate: false, status: "delivered" } };
  });
}

/** Sends an answer, on request with one that somebody altered before it. */
async function reply(peer, answer, altered) {
  if (altered) await send(peer, { ...answer, content: { ...answer.content, natural_language: "heard nothing" } });
  await send(peer, answer);
}

/** Keys in no order, numbers and characters that are written in several ways, and what nobody knows. */
const odd = { natural_language: "é世界 😀 \u0001", z: 1e21, "\u20ac": 0.1, "\r": -0, "1": 1.5e-7, "\ud83d\ude00": "\u2028", parameters: { a: [1, null] } };

const taken = async (peer, message) => {
  const { receipt, error } = await send(peer, message);
  assert.ok(receipt, JSON.stringify(error));
  assert.deepEqual([receipt.message_id, receipt.session_id], [message.message_id, message.session_id]);
  return receipt;
};
const notTaken = async (peer, message, code) => {
  const { error } = await send(peer, message);
  assert.equal(error?.message_type, "error");
  assert.equal(error.signature, undefined, "a refusal is not signed");
  assert.deepEqual([error.content.error_code, error.content.failed_message_id], [code, message.message_id]);
};

export const dialogueRows = {
  async "dialogue, signed"(peer) {
    const asked = sign(message(randomUUID(), 1, "request", odd));
    assert.deepEqual(await taken(peer, asked).then(({ duplicate, status }) => [duplicate, status]), [false, "delivered"]);
    const [{ message: answer }] = await about(asked.message_id);
    assert.ok(isSigned(answer), "the answer is signed");
    assert.deepEqual([answer.message_type, answer.interaction_step], ["response", 2]);
    assert.equal(answer.content.natural_language, "heard é世界 😀");
  },
  async "dialogue, altered"(peer) {
    const signed = sign(message(randomUUID(), 1, "request", { parameters: { price: 16000 } }));
    signed.content.parameters.price = 18000;
    await notTaken(peer, signed, "UNAUTHORIZED");
  },
  async "dialogue, forged and unsigned"(peer) {
    const asked = message(randomUUID(), 1, "request", {});
    await notTaken(peer, sign({ ...asked, sender_id: "agent://ts.example/other" }), "UNAUTHORIZED");
    await notTaken(peer, sign(asked, "duologue-1"), "UNAUTHORIZED");
    await notTaken(peer, asked, "UNAUTHORIZED");
  },
  async "dialogue, twice"(peer) {
    const told = sign(message(randomUUID(), 1, "inform", {}));
    assert.equal((await taken(peer, told)).duplicate, false);
    assert.equal((await taken(peer, told)).duplicate, true);
    await notTaken(peer, sign({ ...told, message_type: "propose" }), "CONFLICT");
  },
  async "dialogue, expired"(peer) {
    const timestamp = new Date(Date.now() - 600_000).toISOString();
    await notTaken(peer, sign({ ...message(randomUUID(), 1, "inform", {}), timestamp }), "EXPIRED");
  },
  async "dialogue, out of order"(peer) {
    const dialogue = randomUUID();
    const [first, second, third] = [1, 2, 3].map((step) => sign(message(dialogue, step, "inform", {})));
    const came = [];
    for (const told of [first, third, second]) came.push((await taken(peer, told)).status);
    assert.deepEqual(came, ["delivered", "held", "delivered"]);
  },
  async "dialogue, illegal moves"(peer) {
    const dialogue = randomUUID();
    await notTaken(peer, sign(message(dialogue, 1, "accept", {})), "INVALID_PARAMETER");
    await taken(peer, sign(message(dialogue, 1, "inform", {})));
    await taken(peer, sign(message(dialogue, 2, "termination", {})));
    await notTaken(peer, sign(message(dialogue, 3, "inform", {})), "INVALID_PARAMETER");
  },
};
