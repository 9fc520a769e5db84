// Shows the data of the page. The script in front of this one makes the elements of the items.

const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);

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
const row = itemView({
  timed: data.timed,
  sessions: data.sessions,
  isOpen: (key) => state.open.has(key),
  opened: remember,
  frames: (item) => item.frames.map((at) => data.frames[at]),
  drawn: highlight,
});

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
  for (const place of places) fragment.append(row(data.items[place], place));
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
