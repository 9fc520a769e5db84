// The page: its sections, what they show, and the questions that wait for an answer.

import { leave, path, request, TOKEN } from '/page/api.js';
import { AGENTS, questionsOf, SECTIONS } from '/page/sections.js';
import { count, printable } from '/page/view.js';

/** The milliseconds between two looks for questions, and between two refreshes of a list. */
const QUESTIONS = 5000;
const REFRESH = 3000;

/** The sections of what is not one. */
const PARTS = { task: 'tasks', session: 'sessions' };

const $ = (id) => document.getElementById(id);
/** The section that is shown, or a part of it. */
let current = null;
let known = new Set();

/** Returns the section of the address and what it names. */
function address() {
  const [hash, search] = location.hash.slice(1).split('?');
  const segments = hash.split('/').filter(Boolean).map(decodeURIComponent);
  return { name: segments[0] || 'agents', segments: segments.slice(1), search: new URLSearchParams(search) };
}

/** Shows the section of the address. */
async function show() {
  const place = address();
  const section = SECTIONS[place.name] || SECTIONS.agents;
  current?.close();
  for (const link of document.querySelectorAll('nav a')) {
    const isCurrent = link.hash === `#/${PARTS[place.name] || place.name}`;
    if (isCurrent) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  for (const id of ['filters', 'detail', 'failure']) {
    $(id).replaceChildren();
    $(id).hidden = true;
  }
  $('detail').className = '';
  $('keys').hidden = place.name !== 'session';
  $('list').replaceChildren();
  $('list').hidden = false;
  $('status').textContent = '';
  const shown = { closing: new AbortController(), list: null, again: null };
  shown.close = () => {
    shown.closing.abort();
    shown.list?.close();
  };
  current = shown;
  const tools = {
    ...place,
    signal: shown.closing.signal,
    title: (text) => {
      $('title').textContent = printable(text);
      document.title = `${printable(text)} · Duologue`;
    },
    status: (text) => ($('status').textContent = text),
    failed: (error) => {
      if (shown.closing.signal.aborted) return;
      $('failure').textContent = printable(error.message);
      $('failure').hidden = false;
    },
    fine: () => ($('failure').hidden = true),
    filters: $('filters'),
    detail: $('detail'),
    scroller: $('list'),
    keep: (list) => (shown.list = list),
    every: (again) => (shown.again = again),
    look,
    go: (hash) => (location.hash = hash),
  };
  try {
    await section(tools);
  } catch (error) {
    tools.failed(error);
  }
}

/** Looks for open questions, and tells of new ones. */
async function look() {
  const found = await questionsOf();
  const badge = $('open');
  badge.textContent = found.length;
  badge.hidden = !found.length;
  badge.setAttribute('aria-label', `${count(found.length, 'question')} open`);
  const ids = found.map((it) => it.id);
  const news = ids.filter((id) => !known.has(id));
  known = new Set(ids);
  if (news.length) $('news').textContent = `${count(news.length, 'new question')} to answer`;
  return found;
}

/** Runs a job again and again while the page is visible. */
function repeat(job, pause) {
  const run = async () => {
    if (document.visibilityState === 'visible') {
      try {
        await job();
      } catch (error) {
        console.debug(error);
      }
    }
    setTimeout(run, pause());
  };
  setTimeout(run, pause());
}

/** Moves the focus between the items of a transcript, opens the focused one, and leaves a list. */
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // A long list has too many controls to leave it with Tab.
  if (event.key === 'Escape') document.querySelector('nav a[aria-current], nav a').focus();
  if (event.target.matches('input, select, textarea')) return;
  const items = [...$('list').querySelectorAll('.item')];
  if (!items.length) return;
  const at = items.indexOf(document.activeElement.closest('.item'));
  const step = { j: 1, k: -1 }[event.key];
  if (step) {
    const top = $('list').getBoundingClientRect().top;
    const visible = items.findIndex((item) => item.getBoundingClientRect().bottom > top);
    const next = items[at < 0 ? visible : at + step];
    next?.focus({ preventScroll: true });
    next?.scrollIntoView({ block: 'nearest' });
  } else if (event.key === 'Enter' && event.target.matches('.item')) {
    event.target.querySelector('button.toggle, summary')?.click();
  } else {
    return;
  }
  event.preventDefault();
}

async function begin() {
  if (!localStorage.getItem(TOKEN)) return leave();
  try {
    const login = await request(path('page', 'login'));
    $('principal').textContent = printable(login.principal);
  } catch (error) {
    return leave();
  }
  $('leave').addEventListener('click', async () => {
    await request('/logout', { method: 'POST' }).catch(() => {});
    leave();
  });
  $('skip').addEventListener('click', (event) => {
    event.preventDefault();
    $('view').focus();
  });
  addEventListener('hashchange', show);
  // Another tab has logged out.
  addEventListener('storage', (event) => {
    if (event.key === TOKEN && !event.newValue) leave();
  });
  document.addEventListener('keydown', keys);
  await show();
  repeat(look, () => Math.max(QUESTIONS, AGENTS.ids.length * 100));
  repeat(() => current?.again?.(), () => REFRESH);
  look().catch((error) => console.debug(error));
}

begin();
