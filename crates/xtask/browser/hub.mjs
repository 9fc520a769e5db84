// Uses the page of a hub as an operator does, by keyboard. Arguments: the browser, a folder for its profile, the address of the
// hub, its token, and the number of updates of the agent `many`.
import assert from "node:assert/strict";
import { launch } from "puppeteer-core";

const [executablePath, userDataDir, hub, token, count] = process.argv.slice(2);
const EVENTS = Number(count);
// The limits of a long list: the elements in the document, and the milliseconds of the slowest of 20 frames.
const ELEMENTS = 8000;
const FRAME = 120;
// A slow machine misses the targets of speed, which fail only with `--strict`.
const isStrict = Boolean(process.env.DUOLOGUE_STRICT);
const SHOTS = process.env.DUOLOGUE_SHOTS;

const api = async (method, path, body) => {
  const headers = { "X-API-Key": token, ...(body ? { "Content-Type": "application/json" } : {}) };
  const response = await fetch(`${hub}${path}`, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.status === 204 ? null : response.json();
};
const until = async (what, condition) => {
  for (const end = Date.now() + 120_000; Date.now() < end; ) {
    const found = await condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`it takes too long: ${what}`);
};
const task = (agent, id, prompt) =>
  api("POST", `/agents/${agent}/tasks`, { taskId: id, task: { type: "work", parameters: { prompt } } });

// Opens a session as an editor that is away from then on, and prompts the agent. Returns the id of the session.
const editorSession = async (agent, cwd) => {
  let connection;
  const send = async (id, method, params) => {
    const headers = { "X-API-Key": token, "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
    if (connection) headers["Acp-Connection-Id"] = connection;
    if (params.sessionId) headers["Acp-Session-Id"] = params.sessionId;
    const body = JSON.stringify({ jsonrpc: "2.0", id, method, params });
    const response = await fetch(`${hub}/acp/${agent}`, { method: "POST", headers, body });
    assert.ok(response.ok, `${method}: ${response.status} ${await response.text()}`);
    connection ??= response.headers.get("Acp-Connection-Id");
  };
  const list = async () => (await api("GET", `/sessions?agent=${agent}`)).sessions.map((session) => session.sessionId);
  const before = await list();
  await send(1, "initialize", { protocolVersion: 1, clientCapabilities: {} });
  await send(2, "session/new", { cwd, mcpServers: [] });
  const id = await until("the session", async () => (await list()).find((session) => !before.includes(session)));
  await send(3, "session/prompt", { sessionId: id, prompt: [{ type: "text", text: "permission" }] });
  return id;
};

// The work that the page shows.
await task("writer", "quick", "tools");
await task("many", "long", "go");
await api("PUT", "/registry/agents/scribe", { capabilities: ["translate"], tags: ["demo"] });
for (const id of ["m-1", "\u202egpj.exe"]) {
  await api("POST", "/agents/scribe/messages", { messageId: id, message: { type: "query", content: "<b>good day</b>" } });
}
const claimed = await api("POST", "/agents/scribe/messages/claim?max=1");
await api("POST", `/agents/scribe/messages/${encodeURIComponent(claimed.messages[0].messageId)}/nack`, {
  lease: claimed.messages[0].lease,
  requeue: false,
});
await until("the long task", async () => (await api("GET", "/agents/many/tasks/long")).status === "completed");
const { sessions } = await api("GET", "/sessions?agent=many");

const browser = await launch({
  executablePath,
  userDataDir,
  args: ["--no-sandbox", "--disable-gpu"],
  defaultViewport: { width: 1280, height: 900 },
});
const page = await browser.newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
page.on("request", (request) => {
  if (!request.url().startsWith(hub) || request.url().includes(token)) problems.push(request.url());
});
await page.evaluateOnNewDocument(() => {
  addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
});
const text = (selector) => page.$eval(selector, (element) => element.textContent);
const shows = (selector, part) =>
  page.waitForFunction(
    (selector, part) => [...document.querySelectorAll(selector)].some((it) => it.textContent.includes(part)),
    { polling: 50 },
    selector,
    part,
  );
const shot = async (name) => SHOTS && page.screenshot({ path: `${SHOTS}/${name}.png` });
// Presses Tab until an element has the focus. It fails if the keyboard does not reach it.
const tabTo = async (selector, modifiers = []) => {
  for (let presses = 0; presses < 80; presses += 1) {
    const is = await page.evaluate((selector) => document.activeElement.matches(selector), selector);
    if (is) {
      const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      assert.notEqual(outline, "none", `the focus of ${selector} is not visible`);
      return;
    }
    for (const key of modifiers) await page.keyboard.down(key);
    await page.keyboard.press("Tab");
    for (const key of modifiers) await page.keyboard.up(key);
  }
  throw new Error(`the keyboard does not reach ${selector}`);
};
const go = async (hash) => {
  // Out of a list, which may be long, and to the begin of the page.
  await page.keyboard.press("Escape");
  await tabTo("#skip", ["Shift"]);
  await tabTo(`nav a[href="${hash}"]`);
  await page.keyboard.press("Enter");
  await page.waitForFunction((hash) => location.hash.startsWith(hash), {}, hash);
};

const choose = async (hash, agent) => {
  await go(hash);
  await page.waitForSelector(`#filters option[value="${agent}"]`);
  await page.select("#filters select", agent);
  await page.waitForFunction((hash) => location.hash === hash, {}, `${hash}/${agent}`);
};

// The login, by keyboard. A wrong key has no effect.
await page.goto(hub);
assert.equal(new URL(page.url()).pathname, "/login");
assert.equal(await page.evaluate("document.activeElement.id"), "key");
await page.keyboard.type("wrong");
await page.keyboard.press("Enter");
await shows("#error", "not valid");
assert.equal(problems.splice(0).filter((it) => !it.includes("401")).length, 0);
await shot("login");
await page.keyboard.type(token);
await page.keyboard.press("Enter");
await page.waitForSelector("body.app");
assert.equal(new URL(page.url()).pathname, "/");
assert.equal(await page.evaluate("document.cookie"), "", "scripts cannot read the cookie");

// The agents.
for (const agent of ["writer", "reviewer", "many", "scribe"]) await shows(".row .name", agent);
assert.equal(await text("h1"), "Agents");
assert.equal(await text("#principal"), "local");
for (const landmark of ["header", "nav", "main", "footer"]) assert.equal((await page.$$(landmark)).length, 1, landmark);
await shot("agents");

// A question that arrives is announced, and answered by keyboard.
await task("reviewer", "asks", "permission");
await shows("#news", "1 new question");
await shows("#open", "1");
await go("#/questions");
await page.waitForSelector(".card .answers button");
await shot("questions");
await tabTo('[data-action^="answer allow"]');
await page.keyboard.press("Enter");
await shows(".nothing", "No agent waits");
await until("the answer", async () => (await api("GET", "/agents/reviewer/tasks/asks")).status === "completed");

// So is that of the session of an editor, which is away.
const [{ cwd }] = (await api("GET", "/sessions?agent=reviewer")).sessions;
const away = await editorSession("reviewer", cwd);
await shows("#open", "1");
await page.waitForSelector(`.card a[href="#/session/${away}"]`);
await shot("session-question");
await tabTo('[data-action^="answer allow"]');
await page.keyboard.press("Enter");
await shows(".nothing", "No agent waits");
await until("the end of its turn", async () => {
  const { records } = await api("GET", `/sessions/${away}/log?limit=1000`);
  return records.some(({ record }) => record.frame?.result?.stopReason === "end_turn");
});

// A task, from the list to its session.
await choose("#/tasks", "writer");
await shows(".row .name", "quick");
await shot("tasks");
await tabTo(".row a.name");
await page.keyboard.press("Enter");
await shows("#detail .state", "completed");
assert.equal(await text("h1"), "Task quick");
await shot("task");
await tabTo('#detail a[href^="#/session/"]');
await page.keyboard.press("Enter");

// The session is shown as `duologue show --html` shows a transcript.
await page.waitForSelector(".item[data-kind=user]");
await shows(".item[data-kind=user] .text", "tools");
await page.waitForSelector(".item[data-kind=tool]");
const isUser = () => page.evaluate(() => document.activeElement.matches(".item[data-kind=user]"));
for (let presses = 0; presses < 10 && !(await isUser()); presses += 1) await page.keyboard.press("j");
assert.ok(await isUser());
await page.keyboard.press("Enter");
await shows(".item[data-kind=user] .frame pre", "session/prompt");
await shot("session");

// A session that runs is followed: its question is there, then the answer.
await task("reviewer", "live", "permission");
const live = await until("its question", async () => {
  const { questions } = await api("GET", "/agents/reviewer/tasks/live/input");
  return questions[0] && { ...(await api("GET", "/agents/reviewer/tasks/live")), options: questions[0].question.options };
});
await page.evaluate((id) => (location.hash = `#/session/${encodeURIComponent(id)}`), live.sessionId);
await shows("#status", "the session runs");
await page.waitForSelector(".item[data-kind=permission]");
assert.equal((await page.$$(".choices .chosen")).length, 0);
const { optionId, name } = live.options.find((option) => option.kind.startsWith("allow"));
await api("POST", "/agents/reviewer/tasks/live/input", { answer: { optionId } });
await shows(".choices .chosen", name);
await page.waitForFunction(() => !document.getElementById("status").textContent.includes("runs"));

// The inbox and the dead letters. Text stays text, and hidden characters are visible.
await choose("#/inbox", "scribe");
await shows(".row .name", "m-1");
await shows(".row .name", "\\u{202e}gpj.exe");
await page.$$eval(".row summary", (all) => all.forEach((summary) => summary.click()));
await shows(".row pre", "<b>good day</b>");
assert.equal((await page.$$("b")).length, 0);
await shot("inbox");
await choose("#/dead-letters", "scribe");
await page.waitForSelector('.row [data-action="resend"]');
await tabTo('[data-action="resend"]');
await page.keyboard.press("Enter");
await shows(".nothing", "No dead letters");

// A session with very many events: the document stays small, and the frames short.
const opened = performance.now();
await page.evaluate((id) => (location.hash = `#/session/${encodeURIComponent(id)}`), sessions[0].sessionId);
await shows(".item .text", "word1.");
const first = performance.now() - opened;
const total = Number((await text("#status")).replace(/\D/g, ""));
assert.ok(total >= EVENTS, `${total} events`);
const scroll = await page.evaluate(async () => {
  const list = document.getElementById("list");
  const [frames, elements, missing] = [[], [], []];
  const frame = () => new Promise(requestAnimationFrame);
  let last = await frame();
  for (let step = 0; step < 240; step += 1) {
    // Half of the way in small steps, then jumps through all of the list.
    list.scrollTop = step < 120 ? list.scrollTop + 300 : ((step - 120) / 120) * list.scrollHeight;
    const now = await frame();
    frames.push(now - last);
    last = now;
    elements.push(document.querySelectorAll("*").length);
    if (step < 120) missing.push(list.querySelectorAll(".item").length === 0);
  }
  frames.sort((one, other) => one - other);
  const at = (part) => Math.round(frames[Math.floor(frames.length * part)]);
  return { median: at(0.5), slow: at(0.95), longest: at(0.999), elements: Math.max(...elements), missing: missing.filter(Boolean).length };
});
console.log(`${total} events are shown after ${first | 0} ms; frames of ${scroll.median} ms, ${scroll.slow} ms at 95 % and ${scroll.longest} ms at most; ${scroll.elements} elements; empty in ${scroll.missing} of 120 steps`);
assert.ok(scroll.elements <= ELEMENTS, `${scroll.elements} elements`);
assert.ok(scroll.slow <= FRAME || !isStrict, `frames of ${scroll.slow} ms`);
assert.ok(scroll.missing === 0 || !isStrict, `the list was empty in ${scroll.missing} of 120 steps`);
// The end is reached by keyboard, and so is the begin.
await page.focus("#list");
await page.keyboard.press("End");
await shows(".item .text", `tool ${EVENTS - 1}`);
await shot("many");
await page.keyboard.press("Home");
await shows(".item .text", "word1.");

// The dark scheme.
const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
const light = await paper();
await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
assert.notEqual(await paper(), light);
assert.equal(await paper(), "rgb(22, 23, 26)");
await shot("dark");

// Without the cookie the page shows nothing, and a log-out ends the login.
await go("#/agents");
await tabTo("#leave");
await page.keyboard.press("Enter");
await page.waitForSelector("body.login");
await page.goto(hub);
assert.equal(new URL(page.url()).pathname, "/login");
assert.deepEqual(problems, []);
await browser.close();
