// Shared code of the programs of a scripted dialogue: updates of a client, requests, and handlers.
import { difference, failure } from "./surface.mjs";

/** The updates that a client has received since the last prompt. */
export class Updates {
  seen = [];
  #wake = () => {};

  constructor(report) {
    this.report = report;
  }

  /** Adds the update of the params of `session/update`. Its session becomes the member `of`. */
  push({ sessionId, update }) {
    this.seen.push({ ...update, of: sessionId });
    this.#wake();
  }

  /** Waits for an update that has these members. */
  async until(expected) {
    const late = Date.now() + 10000;
    for (;;) {
      const found = this.seen.find((update) => !difference(expected, update));
      if (found) return found;
      if (Date.now() > late) {
        throw new Error(`${JSON.stringify(expected)} did not come: ${JSON.stringify(this.seen)}`);
      }
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, 100);
      });
    }
  }

  /** Reports an update, and drops it with all before it: the updates of a turn are expected in order. */
  expect(row, expected) {
    const at = this.seen.findIndex((update) => !difference(expected, update));
    const rival = this.seen.find((update) => update.sessionUpdate === expected.sessionUpdate);
    this.report(row, at < 0 ? (difference(expected, rival) ?? "did not come") : undefined);
    if (at >= 0) this.seen = this.seen.slice(at + 1);
  }
}

/** Returns a function that sends a request and reports the response. */
export const requester = (agent, report) => async (method, params, expected, row = method) => {
  try {
    const response = await agent.request(method, params);
    report(row, difference(expected, response));
    return response;
  } catch (error) {
    report(row, failure(error));
    throw error;
  }
};

/** Registers handlers, each with the expected params and a function for the response. */
export function serve(app, handlers, report) {
  for (const [method, [params, respond]] of Object.entries(handlers)) {
    app.onRequest(method, (context) => {
      report(method, difference(params, context.params));
      return respond(context);
    });
  }
}

export const text = (text) => ({ type: "text", text });
