'use strict';
// Makes elements of the items of a transcript. All texts are inserted as text: no innerHTML, no links, no images.

/** The groups of items: an id, a label, and the kinds of the items. */
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

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function count(number, what) {
  return `${number.toLocaleString('en')} ${what}${number === 1 ? '' : 's'}`;
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

/**
 * Returns the function that makes the row of an item.
 *
 * `view.timed` is true if the items have times, and `view.sessions` has the sessions. `view.isOpen(key)` is true for a part
 * that is open, and `view.opened(key, isOpen)` is called when one is opened or closed. `view.frames(item)` returns the
 * lines of an item, or a promise of them. `view.drawn(root)` is called with every new part.
 */
function itemView(view) {
  /** Returns a time since the start, or nothing if the log has none. */
  function clock(micros) {
    if (!view.timed) return '';
    const seconds = micros / 1e6;
    if (seconds < 60) return seconds.toFixed(3);
    const minutes = Math.floor(seconds / 60);
    return `${minutes}:${(seconds - 60 * minutes).toFixed(2).padStart(5, '0')}`;
  }

  function row(item, place) {
    const element = make('li', item.failed ? 'item failed' : 'item');
    element.dataset.kind = item.kind;
    element.dataset.place = place;
    element.tabIndex = -1;
    const time = make('span', 'time', view.timed ? clock(item.at) : place + 1);
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
    if (item.session !== undefined && view.sessions.length > 1) {
      const session = view.sessions[item.session];
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
        box.append(make('small', '', view.timed ? `cleared at ${clock(draft.at)}` : 'cleared'), make('del', 'text', draft.text));
        text.before(box);
      }
      text.before(make('small', 'final', 'in the end'));
    };
    button.addEventListener('click', () => {
      const isOpen = button.getAttribute('aria-expanded') !== 'true';
      set(isOpen);
      view.opened(key, isOpen);
      view.drawn(element);
    });
    // The text below it does not exist yet.
    queueMicrotask(() => set(view.isOpen(key)));
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
    return disclose(`${place}`, count(item.frames.length, 'frame'), () => {
      const lines = view.frames(item);
      return lines.then ? lines.then((them) => them.map(figure)) : lines.map(figure);
    });
  }

  /** Returns the element of a recorded line. */
  function figure(frame) {
    const element = make('figure', 'frame');
    const caption = element.appendChild(make('figcaption'));
    caption.append(make('span', '', view.timed ? `${clock(frame.at)} s` : ''), make('span', '', `from the ${frame.from}`));
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
    element.append(pre);
    return element;
  }

  /** Returns a part that can be opened. It is built when it is opened first. */
  function disclose(key, label, contents) {
    const details = make('details');
    details.append(make('summary', '', label));
    let made = false;
    const add = (inside) => {
      inside.forEach(view.drawn);
      details.append(...inside);
    };
    const fill = () => {
      if (made) return;
      made = true;
      const inside = contents();
      if (inside.then) inside.then(add, (error) => add([make('p', 'text small', String(error))]));
      else add(inside);
    };
    if (view.isOpen(key)) {
      fill();
      details.open = true;
    }
    details.addEventListener('toggle', () => {
      if (details.open) fill();
      if (details.open !== view.isOpen(key)) view.opened(key, details.open);
    });
    return details;
  }

  return row;
}
