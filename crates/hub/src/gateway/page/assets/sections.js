// The sections of the page. Each fills the list, and some the part above it.

import { follow, path, query, request } from '/page/api.js';
import { ChunkList } from '/page/list.js';
import { count, indented, itemView, make, printable } from '/page/view.js';

/** The agents that the caller can find, as they were last. */
export const AGENTS = { ids: [] };
/** The most sessions, and the most tasks of an agent, whose questions are looked for. */
const ASKING = 100;
/** The agents whose questions are looked for at a time. */
const AT_A_TIME = 4;
/** The lines of an item that are shown. Its log has all. */
const FRAMES = 100;
/** The least milliseconds between two refreshes of a session that runs. */
const SESSION_REFRESH = 400;

const GOOD = ['online', 'completed'];
const BAD = ['failed', 'error', 'offline', 'rejected', 'expired'];
const OPEN = ['input_required', 'busy', 'working', 'processing', 'live'];

// Parts of rows.

function state(word) {
  const kind = GOOD.includes(word) ? 'good' : BAD.includes(word) ? 'bad' : OPEN.includes(word) ? 'open' : '';
  return make('span', `state ${kind}`, word.replaceAll('_', ' '));
}

function time(millis, label) {
  const element = make('time', '', new Date(millis).toLocaleString());
  element.dateTime = new Date(millis).toISOString();
  if (label) element.title = label;
  return element;
}

function link(text, hash, name) {
  const element = make('a', name ? 'name' : '', text);
  element.href = hash;
  element.dataset.action = hash;
  return element;
}

function button(text, action, run) {
  const element = make('button', '', text);
  element.type = 'button';
  element.dataset.action = action;
  element.addEventListener('click', async () => {
    element.disabled = true;
    await run(element);
    element.disabled = false;
  });
  return element;
}

/** Returns a button that asks before it runs. */
function sureButton(text, sure, action, run) {
  let isSure = false;
  return button(text, action, async (element) => {
    if (isSure) await run();
    isSure = !isSure;
    element.textContent = isSure ? sure : text;
  });
}

function facts(pairs) {
  const list = make('dl', 'facts');
  for (const [name, value] of pairs) {
    if (value === undefined || value === null || value === '') continue;
    const cell = make('dd');
    cell.append(typeof value === 'string' ? printable(value) : value);
    list.append(make('dt', '', name), cell);
  }
  return list;
}

/** Returns JSON or text as a block that can be opened. */
function raw(label, value) {
  const details = make('details');
  details.append(make('summary', '', label));
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  details.append(make('pre', '', indented(text)));
  return details;
}

function select(label, choices, chosen, change) {
  const element = make('label', '', label);
  const input = element.appendChild(make('select'));
  for (const [value, text] of choices) {
    const option = input.appendChild(make('option', '', text));
    option.value = value;
    option.selected = value === chosen;
  }
  input.addEventListener('change', () => change(input.value));
  return element;
}

/** Shows a list with pages of the hub. */
function show(tools, options) {
  const list = new ChunkList(tools.scroller, {
    failed: (error) => {
      tools.status('');
      tools.failed(error);
    },
    loaded: (answer) => {
      tools.fine();
      tools.status(count(answer.total, options.what));
    },
    ...options,
  });
  tools.keep(list);
  tools.status('Loading…');
  return list;
}

/** Loads pages of a route whose answer has its entries under a name. */
function pages(target, name, filters = {}) {
  return async (offset, limit) => {
    const answer = await request(`${target}${query({ ...filters, offset, limit })}`);
    return { items: answer[name], total: answer.pagination.total };
  };
}

/** Returns all agents, with those that are offline. */
async function agents() {
  const answer = await request(`/registry/agents${query({ limit: 1000 })}`);
  AGENTS.ids = answer.agents.map((agent) => agent.agentId);
  return AGENTS.ids;
}

/** Shows the filter by agent of a section, and returns the chosen one. */
async function agentFilter(tools, section, more = []) {
  const ids = await agents();
  const chosen = tools.segments[0] ?? ids[0];
  const go = (agent) => tools.go(`#/${section}/${encodeURIComponent(agent)}`);
  tools.filters.replaceChildren(select('Agent', ids.map((id) => [id, id]), chosen, go), ...more);
  tools.filters.hidden = false;
  tools.filters.onsubmit = (event) => event.preventDefault();
  if (chosen === undefined) throw new Error('There is no agent that you can find.');
  return chosen;
}

// Agents.

async function showAgents(tools) {
  tools.title('Agents');
  const list = show(tools, {
    what: 'agent',
    load: pages('/registry/agents', 'agents'),
    key: (agent) => agent.agentId,
    row: (agent) => {
      const row = make('li', 'row');
      const id = encodeURIComponent(agent.agentId);
      const capabilities = agent.capabilities.map((it) => (typeof it === 'string' ? it : it.name));
      row.append(make('span', 'name', agent.agentId), state(agent.status));
      const words = [agent.metadata.provider, agent.metadata.version, ...capabilities, ...agent.tags].filter(Boolean);
      row.append(make('span', 'more', words.join(' · ')));
      const end = row.appendChild(make('span', 'end'));
      if (agent.lastSeen) end.append(time(agent.lastSeen, 'last seen'));
      const to = { Tasks: `tasks/${id}`, Sessions: `sessions?agent=${id}`, Inbox: `inbox/${id}`, 'Dead letters': `dead-letters/${id}` };
      for (const [name, hash] of Object.entries(to)) {
        const element = end.appendChild(link(name, `#/${hash}`));
        element.setAttribute('aria-label', printable(`${name} of ${agent.agentId}`));
      }
      return row;
    },
  });
  tools.every(() => list.refresh());
  await list.refresh();
}

// Questions.

/** Returns a question of a task. */
function questionOfTask(agent, task, question) {
  const target = `${path('agents', agent, 'tasks', task.taskId, 'input')}${query({ owner: task.owner })}`;
  const id = JSON.stringify([agent, task.owner, task.taskId, question.questionId]);
  return { id, agent, question, target, name: task.taskId, hash: taskHash(task) };
}

/** Returns the open questions of the sessions of editors, and as `more` the number of sessions that were not looked at. */
async function questionsOfSessions() {
  const { sessions, pagination } = await request(`/sessions${query({ awaiting: true, limit: ASKING })}`);
  const found = [];
  found.more = pagination.total - sessions.length;
  for (const session of sessions) {
    const target = path('sessions', session.sessionId, 'input');
    // It may have been removed meanwhile.
    const open = await request(target).catch((error) => {
      if (error.status === 404) return { questions: [] };
      throw error;
    });
    for (const question of open.questions) {
      const id = JSON.stringify([session.sessionId, question.questionId]);
      const [name, hash] = [session.title || session.sessionId, `#/session/${encodeURIComponent(session.sessionId)}`];
      found.push({ id, agent: session.agentId, question, target, name, hash });
    }
  }
  return found;
}

/**
 * Returns the open questions of the tasks of all agents, and of the sessions of editors, and as `more` the number of tasks and
 * sessions that were not looked at.
 */
export async function questionsOf() {
  const waiting = [...(await agents())];
  const found = await questionsOfSessions();
  const work = async () => {
    for (let agent = waiting.pop(); agent !== undefined; agent = waiting.pop()) {
      const list = `${path('agents', agent, 'tasks')}${query({ state: 'input_required', limit: ASKING })}`;
      // Tasks may be hidden from a caller who finds the agent.
      const answer = await request(list).catch((error) => {
        if (error.status === 404) return { tasks: [], pagination: { total: 0 } };
        throw error;
      });
      found.more += answer.pagination.total - answer.tasks.length;
      for (const task of answer.tasks) {
        const open = await request(`${path('agents', agent, 'tasks', task.taskId, 'input')}${query({ owner: task.owner })}`);
        found.push(...open.questions.map((question) => questionOfTask(agent, task, question)));
      }
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  return found.sort((one, other) => one.question.createdAt - other.question.createdAt || (one.id < other.id ? -1 : 1));
}

/** Returns a question with the means to answer it. */
function questionCard(tools, tag, { agent, question, target, name, hash }, answered) {
  const card = make(tag, 'card');
  const body = question.question;
  const head = card.appendChild(make('p'));
  const title = body?.toolCall?.title || body?.message || body?.type || 'Question';
  head.append(make('span', 'name', title), ' ', time(question.createdAt));
  const from = card.appendChild(make('p', 'more'));
  from.append(printable(`${agent} asks about `), link(name, hash));
  card.append(raw('question', body));
  const give = async (answer) => {
    try {
      await request(target, { method: 'POST', body: { questionId: question.questionId, answer } });
      tools.fine();
      await answered();
    } catch (error) {
      tools.failed(error);
      await answered();
    }
  };
  const answers = card.appendChild(make('div', 'answers'));
  const options = Array.isArray(body?.options) ? body.options : [];
  if (options.length) {
    answers.setAttribute('role', 'group');
    answers.setAttribute('aria-label', `Answers to: ${title}`);
    for (const option of options) {
      const choice = button(option.name || option.optionId, `answer ${option.optionId}`, () => give({ optionId: option.optionId }));
      if (String(option.kind).startsWith('allow')) choice.classList.add('primary');
      answers.append(choice);
    }
  } else {
    const label = answers.appendChild(make('label', '', 'Answer, as JSON or text '));
    const field = label.appendChild(make('textarea'));
    answers.append(button('Answer', 'answer', () => {
      let answer = field.value;
      try { answer = JSON.parse(answer); } catch { /* It is text. */ }
      return give(answer);
    }));
    if (body?.type === 'elicitation') {
      field.value = '{"action": "accept", "content": {}}';
      answers.append(button('Decline', 'decline', () => give({ action: 'decline' })));
    }
  }
  return card;
}

async function showQuestions(tools) {
  tools.title('Questions');
  let found = [];
  const list = show(tools, {
    what: 'open question',
    empty: 'No agent waits for an answer.',
    height: 140,
    loaded: (answer) => {
      tools.fine();
      const more = found.more ? `. Those of ${count(found.more, 'further session')} are not shown` : '';
      tools.status(`${count(answer.total, 'open question')}${more}`);
    },
    load: async (offset, limit) => ({ items: found.slice(offset, offset + limit), total: found.length }),
    key: (question) => question.id,
    row: (question) => questionCard(tools, 'li', question, again),
  });
  async function again() {
    found = await tools.look();
    await list.refresh();
  }
  tools.every(again);
  await again();
}

// Tasks.

const STATES = ['submitted', 'working', 'input_required', 'cancelling', 'completed', 'failed', 'cancelled', 'rejected', 'expired'];

function taskHash(task) {
  return `#/task/${[task.agentId, task.owner, task.taskId].map(encodeURIComponent).join('/')}`;
}

function progressOf(task) {
  if (task.progress === undefined) return undefined;
  const bar = make('progress');
  Object.assign(bar, { max: 100, value: task.progress });
  bar.setAttribute('aria-label', `${task.progress} percent`);
  return bar;
}

function taskRow(task) {
  const row = make('li', 'row');
  row.append(link(task.taskId, taskHash(task), true), state(task.state), make('span', 'more', `${task.type} from ${task.from}`));
  const bar = task.state === 'working' && progressOf(task);
  if (bar) row.append(bar);
  if (task.error) row.append(make('span', 'more', `${task.error.code}: ${task.error.message}`));
  row.appendChild(make('span', 'end')).append(time(task.createdAt, 'created'));
  return row;
}

async function showTasks(tools) {
  tools.title('Tasks');
  const wanted = tools.search.get('state');
  const choices = [['', 'all'], ...STATES.map((it) => [it, it.replaceAll('_', ' ')])];
  const filter = select('State', choices, wanted || '', (value) => {
    tools.go(`${location.hash.split('?')[0]}${query({ state: value })}`);
  });
  const agent = await agentFilter(tools, 'tasks', [filter]);
  const list = show(tools, {
    what: 'task',
    load: pages(path('agents', agent, 'tasks'), 'tasks', { state: wanted }),
    key: (task) => JSON.stringify([task.owner, task.taskId]),
    row: taskRow,
  });
  tools.every(() => list.refresh());
  await list.refresh();
}

async function showTask(tools) {
  const [agent, owner, id] = tools.segments;
  tools.title(`Task ${id}`);
  tools.scroller.hidden = true;
  tools.detail.hidden = false;
  tools.detail.classList.add('whole');
  const target = path('agents', agent, 'tasks', id);
  let shown;
  const draw = async () => {
    const task = await request(`${target}${query({ owner })}`, { signal: tools.signal });
    const input = task.awaiting ? await request(`${target}/input${query({ owner })}`, { signal: tools.signal }) : { questions: [] };
    const text = JSON.stringify([task, input]);
    if (text === shown || tools.signal.aborted) return;
    shown = text;
    const session = task.sessionId && link(task.sessionId, `#/session/${encodeURIComponent(task.sessionId)}`);
    const parts = [
      facts([
        ['State', state(task.state)],
        ['Progress', progressOf(task)],
        ['Agent', task.agentId],
        ['Type', task.type],
        ['From', task.from],
        ['Owner', task.owner],
        ['Priority', task.priority],
        ['Session', session],
        ['Created', time(task.createdAt)],
        ['Changed', time(task.updatedAt)],
        ['Ended', task.completedAt && time(task.completedAt)],
        ['Error', task.error && `${task.error.code}: ${task.error.message}`],
      ]),
    ];
    for (const question of input.questions) {
      parts.push(questionCard(tools, 'section', questionOfTask(agent, task, question), async () => {
        await Promise.all([draw(), tools.look()]);
      }));
    }
    if (task.result !== undefined) {
      const result = raw('result', task.result);
      result.open = true;
      parts.push(result);
    }
    if (!task.completedAt && !task.cancelling) {
      parts.push(sureButton('Cancel the task', 'Cancel it now', 'cancel', async () => {
        await request(`${target}/cancel${query({ owner })}`, { method: 'POST' }).then(tools.fine, tools.failed);
        await draw();
      }));
    }
    const action = document.activeElement?.dataset?.action;
    tools.detail.replaceChildren(...parts);
    if (action && document.activeElement === document.body) {
      (tools.detail.querySelector(`[data-action="${CSS.escape(action)}"]`) || document.getElementById('view')).focus();
    }
  };
  await draw();
  const again = later(draw, tools);
  follow(`${target}/events${query({ owner })}`, tools.signal, (name) => {
    if (name !== 'update') again();
  });
}

/** Returns a function that runs a job soon, and not more often than its time allows. */
function later(job, tools) {
  let timer = null;
  let took = 0;
  let isWanted = false;
  const run = () => {
    timer = setTimeout(async () => {
      isWanted = false;
      const begun = performance.now();
      try {
        if (!tools.signal.aborted) await job();
      } catch (error) {
        tools.failed(error);
      }
      took = performance.now() - begun;
      timer = null;
      // Something has changed meanwhile.
      if (isWanted) run();
    }, Math.max(SESSION_REFRESH, 4 * took));
  };
  return () => {
    isWanted = true;
    if (timer === null) run();
  };
}

// Sessions.

async function showSessions(tools) {
  tools.title('Sessions');
  const agent = tools.search.get('agent');
  const ids = await agents();
  const choices = [['', 'all'], ...ids.map((id) => [id, id])];
  tools.filters.replaceChildren(select('Agent', choices, agent || '', (value) => tools.go(`#/sessions${query({ agent: value })}`)));
  tools.filters.hidden = false;
  const list = show(tools, {
    what: 'session',
    empty: 'You have no sessions here.',
    load: pages('/sessions', 'sessions', { agent }),
    key: (session) => session.sessionId,
    row: (session) => {
      const row = make('li', 'row');
      const hash = `#/session/${encodeURIComponent(session.sessionId)}`;
      row.append(link(session.title || session.sessionId, hash, true));
      if (session.live) row.append(state('live'));
      row.append(make('span', 'more', `${session.agentId} · ${session.cwd}`));
      row.appendChild(make('span', 'end')).append(time(session.updatedAt, 'last change'));
      return row;
    },
  });
  tools.every(() => list.refresh());
  await list.refresh();
}

async function showSession(tools) {
  const [id] = tools.segments;
  const after = Number(tools.search.get('after')) || 0;
  const session = await request(path('sessions', id), { signal: tools.signal });
  tools.title(session.title || session.sessionId);
  const log = path('sessions', id, 'log');
  const opened = new Set();
  const item = itemView({
    timed: true,
    sessions: [],
    isOpen: (key) => opened.has(key),
    opened: (key, isOpen) => (isOpen ? opened.add(key) : opened.delete(key)),
    frames: (item) => linesOf(path('sessions', id), item.frames),
    drawn: (root) => inTabOrder(root, true),
  });
  const row = (it, place) => {
    const element = item(it, place);
    inTabOrder(element, false);
    element.addEventListener('focusin', () => inTabOrder(element, true));
    element.addEventListener('focusout', (event) => {
      if (!element.contains(event.relatedTarget)) inTabOrder(element, false);
    });
    return element;
  };
  let next = after;
  let isLive = false;
  const buttons = [
    button('Begin', 'begin', async () => (tools.scroller.scrollTop = 0)),
    button('End', 'end', () => list.showEnd()),
  ];
  const part = button('Next part', 'part', async () => tools.go(`#/session/${encodeURIComponent(id)}${query({ after: next })}`));
  part.hidden = true;
  const about = make('span', 'more', `${session.agentId} · ${session.cwd}`);
  tools.filters.replaceChildren(about, ...buttons, part);
  tools.filters.hidden = false;
  const list = show(tools, {
    what: 'event',
    empty: 'Nothing has been said yet.',
    height: 82,
    load: async (offset, limit) => {
      const answer = await request(`${path('sessions', id, 'view')}${query({ after, offset, limit })}`, { signal: tools.signal });
      return { items: answer.items, total: answer.pagination.total, answer };
    },
    loaded: ({ total, answer }) => {
      tools.fine();
      ({ next } = answer);
      isLive = answer.live;
      part.hidden = !answer.more;
      tools.status(`${count(total, 'event')}${isLive ? ', and the session runs' : ''}`);
    },
    key: (item, place) => place,
    row,
  });
  await list.refresh();
  if (!isLive) return;
  const again = later(async () => {
    const wasAtEnd = list.isAtEnd();
    await list.refresh();
    if (wasAtEnd) await list.showEnd();
  }, tools);
  follow(`${log}${query({ after: next })}`, tools.signal, again);
}

/** Puts the controls of an item into the order of Tab, or takes them out. The focused item alone has its controls there. */
function inTabOrder(root, isIn) {
  for (const control of root.querySelectorAll('summary, button')) control.tabIndex = isIn ? 0 : -1;
}

/** Returns lines of a session by their numbers. */
async function linesOf(session, numbers) {
  const lines = [];
  const wanted = numbers.slice(0, FRAMES);
  for (let left = [...wanted]; left.length;) {
    // Lines of other items can be between them.
    const limit = Math.min(left.at(-1) - left[0] + 1, 1000);
    const answer = await request(`${session}/view/lines${query({ after: left[0] - 1, limit })}`);
    lines.push(...answer.lines.filter((line) => left.includes(line.number)));
    if (answer.next < left[0]) break;
    left = left.filter((number) => number > answer.next);
  }
  const left = numbers.length - wanted.length;
  if (left > 0) lines.push({ at: 0, from: 'hub', text: `${count(left, 'more frame')} in the log` });
  return lines;
}

// Inbox and dead letters.

function messageRow(message, actions = []) {
  const row = make('li', 'row');
  row.append(make('span', 'name', message.messageId), state(message.status));
  const attempts = message.attempts ? `, ${count(message.attempts, 'attempt')}` : '';
  row.append(make('span', 'more', `${message.message.type} from ${message.from}${attempts}`));
  if (message.error) row.append(make('span', 'more', `${message.error.code}: ${message.error.message}`));
  const end = row.appendChild(make('span', 'end'));
  end.append(time(message.timestamp, 'arrived'), ...actions);
  row.append(raw('message', message.message));
  if (message.response !== undefined) row.append(raw('response', message.response));
  return row;
}

async function showInbox(tools) {
  tools.title('Inbox');
  const agent = await agentFilter(tools, 'inbox');
  const list = show(tools, {
    what: 'message',
    empty: 'No messages.',
    height: 64,
    load: pages(path('agents', agent, 'messages'), 'messages'),
    key: (message) => JSON.stringify([message.sender, message.messageId]),
    row: (message) => messageRow(message),
  });
  tools.every(() => list.refresh());
  await list.refresh();
}

async function showDeadLetters(tools) {
  tools.title('Dead letters');
  const kind = tools.search.get('kind') === 'task' ? 'task' : 'message';
  const filter = select('Kind', [['message', 'messages'], ['task', 'tasks']], kind, (value) => {
    tools.go(`${location.hash.split('?')[0]}${query({ kind: value })}`);
  });
  const agent = await agentFilter(tools, 'dead-letters', [filter]);
  const base = path('agents', agent, 'dead-letters');
  const change = async (method, target) => {
    try {
      await request(target, { method });
      tools.fine();
    } catch (error) {
      tools.failed(error);
    }
    await list.refresh();
  };
  const actions = (id, sender) => {
    const target = `${base}${path(id)}`;
    const which = query({ kind, sender });
    const both = [
      button('Send again', 'resend', () => change('POST', `${target}/resend${which}`)),
      sureButton('Drop', 'Drop it now', 'drop', () => change('DELETE', `${target}${which}`)),
    ];
    for (const element of both) element.title = printable(id);
    return both;
  };
  const list = show(tools, {
    what: 'dead letter',
    empty: 'No dead letters.',
    height: 64,
    load: pages(base, kind === 'task' ? 'tasks' : 'messages', { kind }),
    key: (it) => JSON.stringify([it.sender ?? it.owner, it.messageId ?? it.taskId]),
    row: (it) => {
      if (kind === 'message') return messageRow(it, actions(it.messageId, it.sender));
      const row = taskRow(it);
      row.querySelector('.end').append(...actions(it.taskId, it.owner));
      return row;
    },
  });
  tools.every(() => list.refresh());
  await list.refresh();
}

/** The sections by the first part of the address. */
export const SECTIONS = {
  agents: showAgents,
  questions: showQuestions,
  tasks: showTasks,
  task: showTask,
  sessions: showSessions,
  session: showSession,
  inbox: showInbox,
  'dead-letters': showDeadLetters,
};
