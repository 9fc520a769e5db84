// The tour of examples/hub/tour.sh with a client whose types are generated from the description of the interface.
// Usage: node tour.js ADDRESS KEY

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Schemas = components["schemas"];

const [address, key] = process.argv.slice(2);
if (address === undefined || key === undefined) throw new Error("usage: node tour.js ADDRESS KEY");
const run = process.pid;
const hub = createClient<paths>({ baseUrl: address, headers: { "X-API-Key": key } });

/** Returns the body of a response, or throws the refusal. */
async function body<T>(sent: Promise<{ data?: T; error?: Schemas["Refusal"]; response: Response }>): Promise<T> {
  const { data, error, response } = await sent;
  if (data === undefined) {
    throw new Error(`${response.url}: ${response.status} ${error?.code}: ${error?.message}`);
  }
  return data;
}

function expect(condition: boolean, found: unknown): asserts condition {
  if (!condition) throw new Error(`unexpected: ${JSON.stringify(found)}`);
}

/** Repeats a request until its response has what is wanted. */
async function until<T>(request: () => Promise<T>, isWanted: (found: T) => boolean): Promise<T> {
  for (let left = 300; ; left--) {
    const found = await request();
    if (isWanted(found)) return found;
    expect(left > 0, found);
    await new Promise((wake) => setTimeout(wake, 100));
  }
}

const writer = { params: { path: { agentId: "writer" } } };
const reviewer = { params: { path: { agentId: "reviewer" } } };
const taskOf = (agentId: string, taskId: string) => ({ params: { path: { agentId, taskId } } });
const getTask = (agentId: string, taskId: string) => () =>
  body(hub.GET("/agents/{agentId}/tasks/{taskId}", taskOf(agentId, taskId)));
const getMessage = (messageId: string) => () =>
  body(hub.GET("/agents/{agentId}/messages/{messageId}", { params: { path: { agentId: "writer", messageId } } }));

// Discover agents.
const found = await body(hub.GET("/agents", { params: { query: { capability: "review" } } }));
expect(found.pagination.total === 1 && found.agents[0]?.agentId === "reviewer", found);
const { capabilities, metadata } = await body(hub.GET("/agents/{agentId}/capabilities", writer));
const names = capabilities.map((capability) => (typeof capability === "string" ? capability : capability.name));
expect(names.includes("write") && (metadata.maxConcurrentTasks ?? 0) > 0, { capabilities, metadata });

// Send a message, and wait for the answer.
const query: Schemas["NewMessage"] = {
  message: { type: "query", content: "hello", mimeType: "text/plain" },
  metadata: { origin: "tour", attempt: 1 },
  mode: "sync",
};
const sent = await body(hub.POST("/agents/{agentId}/messages", { ...writer, body: query }));
const answered = await until(getMessage(sent.messageId), (message) => message.status === "completed");
expect(answered.metadata?.["origin"] === "tour" && answered.response !== undefined, answered);

// Leave a message in the inbox.
const note: Schemas["NewMessage"] = { messageId: `note-${run}`, message: { type: "inform", content: "thoughts" } };
await body(hub.POST("/agents/{agentId}/messages", { ...writer, body: note }));
await until(getMessage(`note-${run}`), (message) => message.status === "completed");

// Create a task, and follow its events to the end.
const plan: Schemas["NewTask"] = { taskId: `plan-${run}`, task: { type: "write", parameters: { prompt: "plan" } } };
const created = await body(hub.POST("/agents/{agentId}/tasks", { ...writer, body: plan }));
expect(created.status === "accepted" && created.taskId === `plan-${run}`, created);
const again = await hub.POST("/agents/{agentId}/tasks", { ...writer, body: plan });
expect(again.response.status === 200, again.data);
const events = await body(
  hub.GET("/agents/{agentId}/tasks/{taskId}/events", { ...taskOf("writer", created.taskId), parseAs: "text" }),
);
expect(events.includes("event: update") && events.includes("event: end"), events);
const ended = await getTask("writer", created.taskId)();
expect(ended.status === "completed" && ended.progress === 100 && ended.result !== undefined, ended);

// Answer the question of a task.
const review: Schemas["NewTask"] = {
  taskId: `review-${run}`,
  task: { type: "review", parameters: { prompt: "permission" } },
};
await body(hub.POST("/agents/{agentId}/tasks", { ...reviewer, body: review }));
const input = () => body(hub.GET("/agents/{agentId}/tasks/{taskId}/input", taskOf("reviewer", `review-${run}`)));
const asked = await until(input, ({ questions }) => questions.length > 0);
const question = asked.questions[0];
expect(question?.state === "open", asked);
const answer: Schemas["NewAnswer"] = { questionId: question.questionId, answer: { optionId: "allow-once" } };
const given = await body(
  hub.POST("/agents/{agentId}/tasks/{taskId}/input", { ...taskOf("reviewer", `review-${run}`), body: answer }),
);
expect(given.status === "answered", given);
await until(getTask("reviewer", `review-${run}`), (task) => task.status === "completed");

// Cancel a task.
const long: Schemas["NewTask"] = { taskId: `long-${run}`, task: { type: "wait", parameters: { prompt: "cancel" } } };
await body(hub.POST("/agents/{agentId}/tasks", { ...writer, body: long }));
await until(getTask("writer", `long-${run}`), (task) => task.status === "processing");
await body(hub.POST("/agents/{agentId}/tasks/{taskId}/cancel", taskOf("writer", `long-${run}`)));
await until(getTask("writer", `long-${run}`), (task) => task.status === "cancelled");

// Read the sessions of the tasks, and the log of one.
const { sessions } = await body(hub.GET("/sessions", {}));
const session = sessions.find(({ sessionId }) => sessionId === ended.sessionId);
expect(session !== undefined && session.agentId === "writer", sessions);
const log = await body(
  hub.GET("/sessions/{sessionId}/log", { params: { path: { sessionId: session.sessionId }, query: { limit: 10 } } }),
);
expect(typeof log === "object" && log.records[0]?.number === 1 && log.records[0].record["at"] !== undefined, log);

// A refusal has a code, and the types know it.
const refused = await hub.GET("/agents/{agentId}/tasks/{taskId}", taskOf("writer", "absent"));
expect(refused.error?.code === "not_found" && !refused.error.retryable, refused.error);
console.log("The tour is complete.");
