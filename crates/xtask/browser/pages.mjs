// Clicks through the pages of `duologue show --html`. Arguments: the browser, a folder for its profile, then the addresses of
// the pages `tour`, `hostile` and `many`, and the number of events of the last one.
import assert from "node:assert/strict";
import { launch } from "puppeteer-core";

const [executablePath, userDataDir, ...rest] = process.argv.slice(2);
const count = rest.pop();
// As the browser writes them: without `..`.
const [tour, hostile, many] = rest.map((address) => new URL(address).href);
const EVENTS = Number(count);
// The time limit until a large page shows anything, and until it shows a search result.
const PATIENCE = 5000;
// The time limit until all of it is drawn. The visible part comes first.
const DRAWN = 60_000;

const browser = await launch({
  executablePath,
  userDataDir,
  args: ["--no-sandbox", "--disable-gpu"],
  defaultViewport: { width: 1280, height: 900 },
});

// Opens a page, runs a check, and requires that the page sent no request and logged only the expected errors.
async function check(url, run, errors = []) {
  const page = await browser.newPage();
  const found = [];
  page.on("pageerror", (error) => found.push(String(error)));
  page.on("console", (message) => message.type() === "error" && found.push(message.text()));
  page.on("request", (request) => {
    if (request.url().split("#")[0] !== url.split("#")[0]) found.push(request.url());
  });
  const start = performance.now();
  await page.goto(url);
  await run(page, start);
  await page.evaluate("0");
  assert.equal(found.length, errors.length, found.join("\n"));
  errors.forEach((text, at) => assert.ok(found[at].includes(text), found[at]));
  await page.close();
}

const items = (page, number, selector = ".item") =>
  page.waitForFunction(`document.querySelectorAll(${JSON.stringify(selector)}).length === ${number}`, { polling: 20 });
const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const number = async (page, selector) => (await page.$$(selector)).length;
const select = (page) => page.$eval("#search", (field) => field.select());

await check(tour, async (page) => {
  assert.equal(await page.title(), "sketcher --acp");
  assert.equal(await text(page, "h1"), "sketcher --acp");
  assert.equal(await number(page, "header,form,main"), 3);
  assert.equal(await number(page, ".item"), 26);

  // The session filter.
  await page.click("#sessions label:nth-of-type(3)");
  await items(page, 5);
  assert.ok(!(await text(page, "#items")).includes("moon"));
  assert.equal(await page.evaluate("location.hash"), "#session=sess-mars");
  await page.click("#sessions label:nth-of-type(1)");
  await items(page, 26);

  // The filter of kinds.
  await page.click("#kinds input[value=requests]");
  await items(page, 16);
  await page.click("#kinds input[value=requests]");
  await items(page, 26);

  // A cleared message shows its last state at once. Its first state appears on request, struck through.
  const message = ".item[data-kind=agent]";
  assert.ok((await text(page, message)).includes("384,400 km"));
  assert.ok(!(await text(page, message)).includes("300,000 miles"));
  await page.click(`${message} button.toggle`);
  assert.ok((await text(page, message)).includes("384,400 km"));
  assert.ok((await text(page, message)).includes("300,000 miles"));
  const line = await page.$eval(`${message} del`, (draft) => getComputedStyle(draft).textDecorationLine);
  assert.equal(line, "line-through");

  // The raw frames.
  await page.click(`${message} summary`);
  await page.waitForFunction(
    (message) => document.querySelector(message).querySelectorAll("pre").length === 5,
    {},
    message,
  );
  await page.click(`${message} figcaption button`);
  assert.ok((await text(page, `${message} pre`)).startsWith('{"jsonrpc":"2.0"'));

  // The search, by keyboard. It finds drafts too.
  await page.keyboard.press("/");
  assert.equal(await page.evaluate("document.activeElement.id"), "search");
  await page.keyboard.type("300,000 miles");
  await items(page, 1);
  assert.equal(await text(page, "#count"), "1 event of 26");
  await select(page);
  await page.keyboard.type("nothing like it");
  await page.waitForFunction("document.querySelector('#nothing').checkVisibility()");

  // Escape empties the box and shows all items again.
  await page.keyboard.press("Escape");
  await items(page, 26);
  assert.equal(await page.$eval("#search", (field) => field.value), "");
  assert.equal(await page.evaluate("document.activeElement.id"), "timeline");
  assert.ok(!(await page.evaluate("location.hash")).includes("q="));
});

// An address restores the filters, the search and an open draft.
await check(`${tour}#session=sess-moon&hide=requests&q=moon&open=9d`, async (page) => {
  assert.equal(await page.$eval("#sessions input:checked", (input) => input.value), "sess-moon");
  assert.equal(await page.$eval("#search", (field) => field.value), "moon");
  assert.equal(await number(page, ".item[data-kind=request]"), 0);
  assert.equal(await text(page, "del"), "The moon is about 300,000 miles away.");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  const focus = "[...document.querySelectorAll('.item')].indexOf(document.activeElement)";
  assert.equal(await page.evaluate(focus), 1);
});

// Hostile text stays text.
await check(
  hostile,
  async (page) => {
    await page.click(".item[data-kind=agent] button.toggle");
    await page.$$eval("summary", (summaries) => summaries.forEach((summary) => summary.click()));
    await page.waitForFunction("document.querySelectorAll('.frame').length > 5");
    assert.equal(await page.evaluate("window.hit ?? null"), null);
    const strays = "img,svg,iframe,object,embed,link,a[href^=javascript],b,[onerror],[onload]";
    assert.equal(await number(page, strays), 0);
    assert.equal(await page.evaluate("document.scripts.length"), 2);
    const shown = await text(page, "#timeline");
    for (const payload of [
      "<img src=x onerror=window.hit=4>",
      "javascript:window.hit=6",
      "\\u{202e}gpj.exe",
      "{policy}{title}",
      "</script><script>",
    ]) {
      assert.ok(shown.includes(payload), payload);
    }
    assert.ok(!/[\u202a-\u202e\u2066-\u2069]/.test(shown));
    // The content security policy stops a script even if the escaping fails.
    await page.evaluate(() => {
      document.body.insertAdjacentHTML("beforeend", '<p onclick="window.hit=10" id=planted>x</p>');
      document.querySelector("#planted").click();
    });
    assert.equal(await page.evaluate("window.hit ?? null"), null);
  },
  ["Content Security Policy"],
);

// A long transcript stays quick.
await check(many, async (page, start) => {
  await page.waitForFunction("document.querySelectorAll('.item').length > 0");
  const first = performance.now() - start;
  const begun = performance.now();
  await page.click("#search");
  await page.keyboard.sendCharacter(`word${EVENTS - 1}.`);
  await items(page, 1);
  const found = performance.now() - begun;
  const times = `${EVENTS} events are shown after ${first | 0} ms, one of them is found after ${found | 0} ms`;
  assert.ok(Math.max(first, found) <= PATIENCE, times);
  console.log(times);
  await select(page);
  const emptied = performance.now();
  await page.keyboard.press("Escape");
  // What is visible is drawn before the rest.
  await page.waitForFunction("document.querySelectorAll('.item').length > 1", { polling: 20 });
  await page.evaluate("scrollTo(0, document.body.scrollHeight / 2)");
  const inSight = "document.elementFromPoint(innerWidth / 2, innerHeight / 2).closest('.item') !== null";
  await page.waitForFunction(inSight, { polling: 20, timeout: PATIENCE });
  const scrolled = performance.now() - emptied;
  const all = `document.querySelectorAll('.item').length === ${EVENTS + 2}`;
  await page.waitForFunction(all, { polling: 500, timeout: DRAWN });
  const drawn = performance.now() - emptied;
  console.log(`the middle is drawn after ${scrolled | 0} ms, all after ${drawn | 0} ms`);
});

await browser.close();
