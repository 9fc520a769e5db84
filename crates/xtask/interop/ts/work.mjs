// Work orders: what this peer does, and what it orders.
import assert from "node:assert/strict";
import { their } from "./exchange.mjs";
import { asIs, failure } from "./surface.mjs";

const input = (action, more) => ({
  context: { feature_id: "login", workflow: "feature", iteration: 1 },
  paths: { feature_root: "features/login" },
  task: { action, params: {} },
  ...more,
});

export function hookWork(app) {
  return app.onRequest("_session/work", asIs, ({ params: { input } }) => ({ output: output(input) }));
}

function output({ task, paths, prior_context = [] }) {
  const done = { success: true, summary: "done", artifacts: [], recommendation: "proceed" };
  switch (task.action) {
    case "fail":
      return { ...done, success: false, summary: "not done", recommendation: "retry" };
    case "puzzle":
      return { ...done, recommendation: "ask the oracle" };
    default:
      const path = `${paths.feature_root}/spec.md`;
      return { ...done, artifacts: [{ path, operation: "create", content: "é世界 😀\n" }], notes: [...prior_context, "one more"] };
  }
}

export const workRows = {
  async work(peer) {
    const order = (input) => peer.request("_session/work", { sessionId: their.session, input });
    const { output } = await order(input("specify", { prior_context: ["a note"], colour: "blue" }));
    assert.deepEqual([output.success, output.recommendation], [true, "proceed"]);
    assert.deepEqual(output.artifacts, [{ path: "features/login/spec.md", operation: "create", content: "é世界 😀\n" }]);
    assert.deepEqual(output.notes, ["a note", "one more"]);
  },
  async "work, not done"(peer) {
    const { output } = await peer.request("_session/work", { input: input("fail") });
    assert.deepEqual([output.success, output.recommendation], [false, "retry"]);
  },
  async "work, missed"(peer) {
    for (const missing of ["context", "paths", "task"]) {
      const { [missing]: _, ...rest } = input("specify");
      const error = await peer.request("_session/work", { input: rest }).catch((error) => error);
      assert.equal(error.code, -32602, failure(error));
      assert.match(error.message, new RegExp(missing));
    }
  },
};
