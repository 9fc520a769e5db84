// What the TypeScript agent and client share: the surface they play, comparing, and reporting.
import { appendFileSync, readFileSync } from "node:fs";

const { INTEROP_SURFACE, INTEROP_CWD, INTEROP_LACKS = "" } = process.env;
export const vars = { CWD: INTEROP_CWD };
export const surface = JSON.parse(readFileSync(INTEROP_SURFACE, "utf8"));
const lacks = new Set(INTEROP_LACKS.split(",").filter(Boolean));
/** Leaves out what the other SDK lacks. */
export const known = (items = []) => items.filter((item) => !lacks.has(rowOf(item)));
export const rowOf = (item) => item.sessionUpdate ?? item.cancel ?? item.method ?? item.notify;

/** The parser of an extension's params. */
export const asIs = (params) => params;
/** Handles a request; extensions bring a parser. */
export const onRequest = (app, method, handler) =>
  method.startsWith("_") ? app.onRequest(method, asIs, handler) : app.onRequest(method, handler);

/** Puts the values of `vars` where the surface says $NAME. */
export function fill(value) {
  if (typeof value === "string") return value.replace(/\$([A-Z]+)/g, (all, name) => vars[name] ?? all);
  if (Array.isArray(value)) return value.map(fill);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item)]));
  }
  return value;
}

/** The first difference: everything expected must be there, more may be. `$NAME` not yet known is learnt. */
export function difference(expected, actual, at = "") {
  if (actual === undefined && lacks.has(at)) return undefined;
  if (typeof expected === "string" && /^\$[A-Z]+$/.test(expected) && !(expected.slice(1) in vars)) {
    if (typeof actual !== "string" || !actual) return `${at}: no value for ${expected}`;
    vars[expected.slice(1)] = actual;
    return undefined;
  }
  expected = fill(expected);
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length) return `${at}: ${JSON.stringify(actual)}`;
  } else if (!expected || typeof expected !== "object") {
    return expected === actual ? undefined : `${at}: ${JSON.stringify(actual)} is not ${JSON.stringify(expected)}`;
  } else if (!actual || typeof actual !== "object") {
    return `${at}: ${JSON.stringify(actual)} is no object`;
  }
  for (const key of Object.keys(expected)) {
    const found = difference(expected[key], actual[key], `${at}/${key}`);
    if (found) return found;
  }
  return undefined;
}

/** The candidate that fits `actual` (the most demanding one), or what is wrong with it. */
export function pick(candidates, field, actual) {
  let best = { problem: "not in the surface" };
  const size = (entry) => JSON.stringify(entry[field]).length;
  for (const entry of candidates.toSorted((a, b) => size(b) - size(a))) {
    const problem = difference(entry[field], actual);
    if (!problem) return { entry };
    if (!best.entry) best = { entry, problem };
  }
  return best;
}

/** One line of the report: a method or variant, and the problem if there is one. */
export function reporter(file) {
  return (row, problem, detail) =>
    appendFileSync(file, `${JSON.stringify({ row, ok: !problem, detail: problem ?? detail })}\n`);
}

export const failure = (error) => (error?.code ? `${error.code} ${error.message}` : String(error?.stack ?? error));
