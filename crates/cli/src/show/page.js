'use strict';
// Shows the data of the page. All of it is inserted as text: no innerHTML, no links, no images.

const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);

/** The checkboxes: a name, and the kinds of its items. */
const GROUPS = [
  ['messages', 'Messages', ['user', 'agent']],
  ['thoughts', 'Thoughts', ['thought']],
  ['tools', 'Tool calls', ['tool']],
  ['permissions', 'Permissions', ['permission']],
  ['plans', 'Plans', ['plan']],
  ['requests', 'Requests and answers', ['request', 'answer']],
  ['updates', 'Other updates', ['update']],
  ['process', 'Process and noise', ['process']],
];
const NAMES = { user: 'User', agent: 'Agent', thought: 'Thought', permission: 'Permission', plan: 'Plan' };
const STEPS = { completed: '✓', in_progress: '▸', pending: '·' };
/** The number of items in a batch, which is drawn and laid out as a whole. */
const BATCH = 100;
/** The height of an item that has not been drawn, in rem. */
const HEIGHT = 2.4;
/** The milliseconds for which batches are drawn before the browser gets its turn. */
const SLICE = 12;
/** Limit on the marked words. */
const MARKS = 5000;

/** The view, which the address contains. `open` has indexes of items, with a `d` for their drafts. */
const state = { session: null, hide: new Set(), q: '', open: new Set() };
/** The batches that have not been drawn, with their places. */
let undrawn = new Map();
let drawing = 0;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Returns a time since the start, or nothing if the log has none. */
function clock(micros) {
  if (!data.timed) return '';
  const seconds = micros / 1e6;
  if (seconds < 60) return seconds.toFixed(3);
  const minutes = Math.floor(seconds / 60);
  return `${minutes}:${(seconds - 60 * minutes).toFixed(2).padStart(5, '0')}`;
}

function count(number, what) {
  return `${number.toLocaleString('en')} ${what}${number === 1 ? '' : 's'}`;
}

// The address.

function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  const session = address.get('session');
  state.session = data.sessions.findIndex((it) => it.id === session);
  if (state.session < 0) state.session = session === '-' ? -1 : null;
  state.q = address.get('q') || '';
  state.hide = new Set((address.get('hide') || '').split(',').filter(Boolean));
  state.open = new Set((address.get('open') || '').split(',').filter(Boolean));
}

function writeAddress() {
  const address = new URLSearchParams();
  if (state.session !== null) address.set('session', state.session < 0 ? '-' : data.sessions[state.session].id);
  if (state.q) address.set('q', state.q);
  if (state.hide.size) address.set('hide', [...state.hide].join(','));
  if (state.open.size) address.set('open', [...state.open].join(','));
  history.replaceState(null, '', `#${address}`);
}

function remember(key, isOpen) {
  if (isOpen) state.open.add(key);
  else state.open.delete(key);
  writeAddress();
}

// The matching items.

const haystacks = new Map();

/** Returns the searchable text of an item, which is built at the first search. */
function haystack(place) {
  let text = haystacks.get(place);
  if (text === undefined) {
    const item = data.items[place];
    const raw = (item.frames || []).map((frame) => data.frames[frame].text);
    const drafts = (item.drafts || []).map((draft) => draft.text);
    text = [item.name, item.text, item.outcome || '', ...drafts, ...raw].join('\n').toLowerCase();
    haystacks.set(place, text);
  }
  return text;
}

function matching() {
  const hidden = new Set(GROUPS.filter(([id]) => state.hide.has(id)).flatMap(([, , kinds]) => kinds));
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const places = [];
  data.items.forEach((item, place) => {
    if (hidden.has(item.kind)) return;
    if (state.session !== null && (item.session ?? -1) !== state.session) return;
    if (words.length && !words.every((word) => haystack(place).includes(word))) return;
    places.push(place);
  });
  return places;
}

// The timeline.

/** Draws a batch, unless that has been done. */
function fill(batch) {
  const places = undrawn.get(batch);
  if (!places) return;
  undrawn.delete(batch);
  visible.unobserve(batch);
  const fragment = document.createDocumentFragment();
  for (const place of places) fragment.append(row(place));
  highlight(fragment);
  batch.append(fragment);
}

/** Draws the batches that are nearly visible. */
const visible = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => fill(entry.target)),
  { rootMargin: '1000px' },
);

/** Draws the first items at once, those that are visible when they become so, and the others meanwhile. */
function draw() {
  const turn = ++drawing;
  const places = matching();
  visible.disconnect();
  undrawn = new Map();
  $('nothing').hidden = places.length > 0;
  $('count').textContent = `${count(places.length, 'event')} of ${data.items.length.toLocaleString('en')}`;
  const batches = [];
  for (let at = 0; at < places.length; at += BATCH) {
    const batch = make('ol', 'batch');
    undrawn.set(batch, places.slice(at, at + BATCH));
    batch.style.setProperty('--height', `${HEIGHT * undrawn.get(batch).length}rem`);
    batches.push(batch);
  }
  window.CSS?.highlights?.delete('found');
  $('items').replaceChildren(...batches);
  const wanted = [...state.open].map((key) => Math.floor(places.indexOf(parseInt(key, 10)) / BATCH));
  for (const at of [0, ...wanted]) if (batches[at]) fill(batches[at]);
  for (const batch of undrawn.keys()) visible.observe(batch);
  let next = 0;
  // A timer and not an idle callback: an invisible page never runs those.
  const more = () => {
    if (turn !== drawing) return;
    const end = performance.now() + SLICE;
    while (next < batches.length && performance.now() < end) fill(batches[next++]);
    if (next < batches.length) setTimeout(more);
  };
  setTimeout(more);
}

/** Marks the matches in a part of the page without changing it. */
function highlight(root) {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length || !window.Highlight || !CSS.highlights) return;
  const found = CSS.highlights.get('found') || new Highlight();
  CSS.highlights.set('found', found);
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && found.size < MARKS; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    // Some letters are longer in lower case, so their offsets differ.
    if (text.length !== node.data.length) continue;
    for (const word of words) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        found.add(range);
      }
    }
  }
}

function row(place) {
  const item = data.items[place];
  const element = make('li', item.failed ? 'item failed' : 'item');
  element.dataset.kind = item.kind;
  element.dataset.place = place;
  element.tabIndex = -1;
  const time = make('span', 'time', data.timed ? clock(item.at) : place + 1);
  if (item.until > item.at) time.title = `until ${clock(item.until)}`;
  const way = make('span', 'way', item.from === 'client' ? '→' : item.from === 'agent' ? '←' : '·');
  way.title = item.from ? `from the ${item.from}` : '';
  way.setAttribute('aria-label', way.title);
  element.append(time, way, body(item, place));
  return element;
}

function body(item, place) {
  const isProse = ['user', 'agent', 'thought'].includes(item.kind);
  const element = make('div', isProse ? 'body prose' : 'body');
  const head = element.appendChild(make('div', 'head'));
  const name = NAMES[item.kind] || (item.kind === 'tool' ? `Tool · ${item.name}` : item.name);
  head.append(make('span', 'name', name));
  if (item.outcome) head.append(make('span', 'outcome', item.outcome.replaceAll('_', ' ')));
  if (item.drafts) head.append(toggle(item, place, element));
  if (item.session !== undefined && data.sessions.length > 1) {
    const session = data.sessions[item.session];
    const label = make('span', 'session', session.title || session.id);
    label.style.setProperty('--hue', (item.session * 137 + 250) % 360);
    head.append(label);
  }
  if (item.text || isProse) {
    const small = ['request', 'answer', 'update', 'process'].includes(item.kind);
    const text = make('div', small ? 'text small' : 'text', item.text);
    if (!item.text) {
      text.classList.add('empty');
      text.textContent = item.drafts ? 'Cleared; nothing was said instead.' : 'Nothing.';
    }
    element.append(text);
  }
  if (item.parts) parts(item, place, element);
  if (item.frames) element.append(frames(item, place));
  return element;
}

/** Returns the button that shows the cleared texts of a message above its text. */
function toggle(item, place, element) {
  const key = `${place}d`;
  const label = `${count(item.drafts.length, 'cleared draft')}`;
  const button = make('button', 'toggle');
  button.type = 'button';
  const set = (isOpen) => {
    button.setAttribute('aria-expanded', isOpen);
    button.textContent = isOpen ? `hide ${label}` : label;
    for (const old of element.querySelectorAll('.draft, .final')) old.remove();
    if (!isOpen) return;
    const text = element.querySelector(':scope > .text');
    for (const draft of item.drafts) {
      const box = make('div', 'draft');
      box.append(make('small', '', data.timed ? `cleared at ${clock(draft.at)}` : 'cleared'), make('del', 'text', draft.text));
      text.before(box);
    }
    text.before(make('small', 'final', 'in the end'));
  };
  button.addEventListener('click', () => {
    const isOpen = button.getAttribute('aria-expanded') !== 'true';
    set(isOpen);
    remember(key, isOpen);
    highlight(element);
  });
  // The text below it does not exist yet.
  queueMicrotask(() => set(state.open.has(key)));
  return button;
}

function parts(item, place, element) {
  if (item.kind === 'permission') {
    const list = element.appendChild(make('ul', 'choices'));
    for (const { option } of item.parts) {
      const choice = list.appendChild(make('li', option.chosen ? 'chosen' : '', option.name));
      if (option.chosen) choice.setAttribute('aria-label', `${option.name}, chosen`);
    }
    return;
  }
  if (item.kind === 'plan') {
    const list = element.appendChild(make('ul', 'steps'));
    for (const { step } of item.parts) {
      const line = list.appendChild(make('li', step.status));
      line.append(make('span', '', STEPS[step.status] || '·'), make('span', '', step.text));
      line.title = step.status;
    }
    return;
  }
  // Changes are open. Input and output are closed.
  const changes = item.parts.filter((it) => it.diff);
  const rest = item.parts.filter((it) => !it.diff);
  element.append(...changes.map(part));
  if (!rest.length) return;
  const names = rest.map((it) => (it.field ? it.field.name : 'content'));
  element.append(disclose(`${place}p`, [...new Set(names)].join(', '), () => rest.map(part)));
}

function part(it) {
  const element = make('div', 'part');
  if (it.text !== undefined) {
    element.append(make('pre', '', it.text));
  } else if (it.field) {
    element.append(make('div', 'label', it.field.name), make('pre', '', indented(it.field.text)));
  } else if (it.diff) {
    const box = make('pre', 'diff');
    for (const [mark, text] of it.diff.lines) {
      const line = make('div', { '+': 'add', '-': 'del', '@': 'gap' }[mark] || '', `${mark === '@' ? ' ' : mark} ${text}`);
      box.append(line);
    }
    element.append(make('div', 'label', it.diff.path), box);
  }
  return element;
}

function frames(item, place) {
  return disclose(`${place}`, count(item.frames.length, 'frame'), () =>
    item.frames.map((at) => {
      const frame = data.frames[at];
      const figure = make('figure', 'frame');
      const caption = figure.appendChild(make('figcaption'));
      caption.append(make('span', '', data.timed ? `${clock(frame.at)} s` : ''), make('span', '', `from the ${frame.from}`));
      const pre = make('pre', '', indented(frame.text));
      const button = make('button', 'toggle', 'as it was sent');
      button.type = 'button';
      button.setAttribute('aria-pressed', 'false');
      button.addEventListener('click', () => {
        const asSent = button.getAttribute('aria-pressed') !== 'true';
        button.setAttribute('aria-pressed', asSent);
        pre.textContent = asSent ? frame.text : indented(frame.text);
      });
      caption.append(button);
      figure.append(pre);
      return figure;
    }));
}

/** Returns a part that can be opened. It is built when it is opened first. */
function disclose(key, label, contents) {
  const details = make('details');
  details.append(make('summary', '', label));
  let made = false;
  const fill = () => {
    if (made) return;
    made = true;
    const inside = contents();
    inside.forEach(highlight);
    details.append(...inside);
  };
  if (state.open.has(key)) {
    fill();
    details.open = true;
  }
  details.addEventListener('toggle', () => {
    if (details.open) fill();
    if (details.open !== state.open.has(key)) remember(key, details.open);
  });
  return details;
}

/** Returns JSON with line breaks, changed only in its white space. Returns other text as it is. */
function indented(text) {
  if (!/^\s*[{[]/.test(text)) return text;
  try { JSON.parse(text); } catch { return text; }
  let out = '';
  let depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) || [];
  const line = () => `\n${'  '.repeat(depth)}`;
  tokens.forEach((token, at) => {
    const isEmpty = (tokens[at + 1] === '}' || tokens[at + 1] === ']');
    if (token === '{' || token === '[') {
      depth += 1;
      out += isEmpty ? token : token + line();
    } else if (token === '}' || token === ']') {
      depth -= 1;
      out += tokens[at - 1] === '{' || tokens[at - 1] === '[' ? token : line() + token;
    } else if (token === ',') {
      out += token + line();
    } else {
      out += token === ':' ? ': ' : token;
    }
  });
  return out;
}

// The filters.

function choice(type, name, value, label, number, isChecked, change) {
  const element = make('label');
  const input = element.appendChild(make('input'));
  Object.assign(input, { type, name, value, checked: isChecked });
  input.addEventListener('change', () => change(input));
  const text = element.appendChild(make('span', '', label));
  text.title = label;
  element.append(make('span', 'n', number.toLocaleString('en')));
  return element;
}

function filters() {
  const changed = () => {
    writeAddress();
    draw();
  };
  const of = (place) => data.items.filter((item) => (item.session ?? -1) === place).length;
  const pick = (place, value, label, number) =>
    choice('radio', 'session', value, label, number, state.session === place, () => {
      state.session = place;
      changed();
    });
  const sessions = [pick(null, '', 'All', data.items.length)];
  data.sessions.forEach((it, place) => sessions.push(pick(place, it.id, it.title || it.id, of(place))));
  if (of(-1)) sessions.push(pick(-1, '-', 'The connection', of(-1)));
  $('sessions').replaceChildren($('sessions').firstElementChild, ...sessions);

  const kinds = GROUPS.map(([id, label, kinds]) => [id, label, data.items.filter((it) => kinds.includes(it.kind)).length]);
  const boxes = kinds.filter(([, , number]) => number).map(([id, label, number]) =>
    choice('checkbox', 'kind', id, label, number, !state.hide.has(id), (input) => {
      if (input.checked) state.hide.delete(id);
      else state.hide.add(id);
      changed();
    }));
  $('kinds').replaceChildren($('kinds').firstElementChild, ...boxes);
  $('search').value = state.q;
}

/** Returns the item before or after another one. */
function neighbour(item, step) {
  const side = step > 0 ? 'nextElementSibling' : 'previousElementSibling';
  const batch = item[side] ? null : item.parentElement[side];
  if (!batch) return item[side];
  fill(batch);
  return step > 0 ? batch.firstElementChild : batch.lastElementChild;
}

function move(step) {
  const current = document.activeElement.closest?.('.item');
  const next = current ? neighbour(current, step) : document.querySelector('.item');
  if (!next) return;
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

function keys(event) {
  const isTyping = event.target.matches('input[type=search]');
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape' && isTyping) {
    // The browser empties the box, or does not: the filter is cleared in any case.
    $('search').value = '';
    search();
    $('timeline').focus();
  }
  if (isTyping) return;
  if (event.key === '/') $('search').focus();
  else if (event.key === 'j') move(1);
  else if (event.key === 'k') move(-1);
  else if (event.key === 'Enter' && event.target.matches('.item')) event.target.querySelector('button.toggle, summary')?.click();
  else return;
  event.preventDefault();
}

let typing;

/** Shows the items that match the search box. */
function search() {
  clearTimeout(typing);
  const words = $('search').value.trim();
  if (words === state.q) return;
  state.q = words;
  writeAddress();
  draw();
}

function begin() {
  $('title').textContent = data.title;
  for (const [name, value] of data.about) {
    const pair = $('about').appendChild(make('div'));
    pair.append(make('dt', '', name), make('dd', '', value));
  }
  for (const fault of data.faults) $('faults').append(make('p', '', fault));
  $('faults').hidden = !data.faults.length;
  const show = () => {
    readAddress();
    filters();
    draw();
    const first = Math.min(...[...state.open].map((key) => parseInt(key, 10)));
    document.querySelector(`[data-place="${first}"]`)?.scrollIntoView({ block: 'center' });
  };
  $('search').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(search, 120);
  });
  $('filters').addEventListener('submit', (event) => event.preventDefault());
  document.addEventListener('keydown', keys);
  addEventListener('beforeprint', () => [...undrawn.keys()].forEach(fill));
  // Not the page's own changes: only a followed link or the back button.
  addEventListener('hashchange', () => {
    if (location.hash !== '#timeline') show();
  });
  show();
}

begin();
