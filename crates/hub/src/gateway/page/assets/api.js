// Requests to the hub, and its streams of events.

/** The place of the token of the login. It is the secret of this address and port, as the cookie is not. */
export const TOKEN = 'duologue-page-token';

/** The milliseconds between two attempts to open a stream. */
const AGAIN = [500, 1000, 2000, 5000, 10000];

/** Returns a path from its segments. */
export function path(...segments) {
  return segments.map((segment) => `/${encodeURIComponent(segment)}`).join('');
}

/** Returns a query from the members that have a value. */
export function query(members) {
  const given = Object.entries(members).filter(([, value]) => value !== undefined && value !== '' && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : '';
}

/** Forgets the login and shows the form. */
export function leave() {
  localStorage.removeItem(TOKEN);
  location.replace('/login');
}

async function send(target, { method = 'GET', body, headers = {}, signal, stay }) {
  const token = localStorage.getItem(TOKEN);
  const all = { 'X-Duologue-Page': token || '', ...headers };
  if (body !== undefined) all['Content-Type'] = 'application/json';
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(target, { method, body: sent, headers: all, signal, redirect: 'error' });
  if (response.ok) return response;
  const refusal = await response.json().catch(() => ({ message: response.statusText }));
  if (response.status === 401 && !stay) leave();
  const error = new Error(refusal.message);
  Object.assign(error, { status: response.status, code: refusal.code });
  throw error;
}

/** Sends a request, and returns the JSON of its response. */
export async function request(target, options = {}) {
  const response = await send(target, options);
  return response.status === 204 ? null : response.json();
}

/**
 * Follows a stream of events until it ends, or until the signal. `seen(name, data)` is called for each event. A lost
 * connection is opened again behind the last event.
 */
export async function follow(target, signal, seen) {
  let last;
  for (let failures = 0; !signal.aborted;) {
    try {
      const headers = { Accept: 'text/event-stream', ...(last === undefined ? {} : { 'Last-Event-ID': last }) };
      const response = await send(target, { headers, signal });
      if (response.status === 204) return;
      for await (const event of parse(response.body)) {
        failures = 0;
        if (event.id !== undefined) last = event.id;
        if (event.data) seen(event.name, JSON.parse(event.data));
        if (event.name === 'end') return;
      }
    } catch (error) {
      // A refusal stays one.
      if (signal.aborted || (error.status && error.status < 500 && error.status !== 429)) return;
    }
    const pause = AGAIN[Math.min(failures, AGAIN.length - 1)];
    failures += 1;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** Parses server-sent events. */
async function* parse(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let event = {};
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (event.name || event.data) yield event;
        event = {};
        continue;
      }
      const colon = line.indexOf(':');
      const name = colon < 0 ? line : line.slice(0, colon);
      const text = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (name === 'event') event.name = text;
      else if (name === 'id') event.id = text;
      else if (name === 'data') event.data = event.data === undefined ? text : `${event.data}\n${text}`;
    }
  }
}
