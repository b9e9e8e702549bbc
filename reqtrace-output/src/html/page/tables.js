// Tables of the selection: the slowest requests, statements, and who held whom up.

import { card, el, fill } from './dom.js';
import { duration, number, share } from './format.js';
import { CHANGE_COLUMNS, changeCells, leftOutOf, sortedTable } from './difftables.js';
import { heldUpWords, ledgerBar, mainState, statesOf } from './ledger.js';
import { holderOf, LOST, ON_CPU, PREEMPTED, RUN_QUEUE, timeOfDay } from './model.js';
import { look, view } from './state.js';

/** @typedef {import('./model.js').Model} Model */
/** @typedef {import('./sums.js').Sum} Sum */
/** @typedef {{id: number, request: number, begin: number, latency: number, tid: number, statement: number, states: number[], slow: import('./model.js').Slow | undefined}} Listed */

/** Requests that the list has, and those that it shows before it is asked for all. */
const LISTED = 100;
const FIRST = 12;
/** Lines of the other tables. */
const LINES = 14;

/**
 * The requests of a selection, the slowest first, as far as they are known one by one; and how many there are.
 * @param {Model} model
 * @param {number} type
 * @param {[number, number, number, number] | null} box
 * @returns {{shown: Listed[], known: number}}
 */
export function slowestOf(model, type, box) {
  const [left, right, low, high] = box ?? [0, model.columns - 1, 0, model.latencyRows - 1];
  const from = left * model.column_ns;
  const to = (right + 1) * model.column_ns;
  const least = model.edges_ns[low] ?? 0;
  const most = model.edges_ns[high + 1] ?? Infinity;
  const isIn = (/** @type {number} */ request, /** @type {number} */ begin, /** @type {number} */ latency) => (
    (type < 0 || request === type) && begin >= from && begin < to && latency >= least && latency < most);
  const { rows } = model;
  if (!rows) {
    const slow = model.slowest.filter((one) => isIn(one.request, one.begin, one.latency));
    slow.sort((one, two) => two.latency - one.latency);
    return { shown: slow.slice(0, LISTED).map((one) => ({ ...one, states: statesOf(one), slow: one })), known: slow.length };
  }
  const inside = [];
  for (let at = 0; at < rows.id.length; at += 1) {
    if (isIn(rows.request[at], rows.begin[at], rows.latency[at])) {
      inside.push(at);
    }
  }
  inside.sort((one, two) => rows.latency[two] - rows.latency[one] || rows.id[one] - rows.id[two]);
  const shown = inside.slice(0, LISTED).map((at) => {
    const slow = model.slowById.get(rows.id[at]);
    const states = new Array(model.states.length).fill(0);
    states[ON_CPU] = rows.on_cpu[at];
    states[RUN_QUEUE] = rows.run_queue[at];
    states[PREEMPTED] = rows.preempted[at];
    states[LOST] = rows.blocked[at];
    if (model.firstQueued > model.firstParked) {
      states[model.firstQueued - 1] = rows.parked[at];
      states[model.states.length - 1] = rows.queued[at];
    }
    return {
      id: rows.id[at],
      request: rows.request[at],
      begin: rows.begin[at],
      latency: rows.latency[at],
      tid: rows.tid[at],
      statement: rows.statement[at],
      states: slow ? statesOf(slow) : states,
      slow,
    };
  });
  return { shown, known: inside.length };
}

/**
 * The list of the slowest requests.
 * @param {HTMLElement} node
 * @param {Model} model
 * @param {{shown: Listed[], known: number}} list
 * @param {number} count requests of the selection
 */
export function drawRequests(node, model, list, count) {
  if (list.shown.length === 0) {
    const why = count > 0 ? `None of them is among the ${number(model.slowest.length)} slowest, which are known one by one.` : 'No request is selected.';
    fill(node, el('p', { class: 'empty' }, why));
    return;
  }
  const hasLabels = model.statements.length > 2 || model.slowest.some((slow) => slow.label !== '');
  const row = (/** @type {Listed} */ one, /** @type {number} */ at) => {
    const open = () => look({ request: one.id });
    return el('tr', {
      'data-id': one.id,
      class: one.slow ? 'open' : 'closed',
      hidden: at >= FIRST,
      tabindex: one.slow ? '0' : null,
      'aria-current': one.id === view.request ? 'true' : null,
      onclick: one.slow ? open : () => {},
      onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === 'Enter' && one.slow && open(),
      title: one.slow ? 'Show what happened in it' : `Only the ${number(model.max_slowest)} slowest can be opened`,
    },
    el('td', { class: 'num strong' }, duration(one.latency)),
    el('td', { class: 'wide' }, ledgerBar(model, one.states, one.latency)),
    el('td', null, one.slow ? mainState(model, one.states) : '–'),
    el('td', { class: 'num', title: `${(one.begin / 1e9).toFixed(3)} s after the start` }, timeOfDay(model, one.begin)),
    el('td', { class: 'num' }, `${one.id}`),
    el('td', { class: 'num' }, `${one.tid}`),
    hasLabels ? el('td', { class: 'label' }, one.slow?.label || model.statements[one.statement]) : null,
    model.types.length > 1 ? el('td', null, model.types[one.request]) : null);
  };
  const more = list.known - list.shown.length;
  const all = el('button', { type: 'button', id: 'requests-all', onclick: () => {
    node.querySelectorAll('tr[hidden]').forEach((hidden) => hidden.removeAttribute('hidden'));
    all.remove();
  } }, `Show ${number(list.shown.length)}`);
  fill(node,
    el('div', { class: 'wrap' }, el('table', { id: 'requests-table', 'data-known': list.known },
      el('thead', null, el('tr', null, ['latency', 'where it went', 'mostly', 'begun at (UTC)', 'id', 'thread', ...(hasLabels ? ['statement or path'] : []), ...(model.types.length > 1 ? ['type'] : [])]
        .map((name, at) => el('th', { scope: 'col', class: [0, 3, 4, 5].includes(at) ? 'num' : null }, name)))),
      el('tbody', null, list.shown.map(row)))),
    el('p', { class: 'hint' }, list.shown.length > FIRST ? [all, ' '] : null, more > 0 ? `${number(more)} more are faster than these. ` : '',
      'A click on a request shows what happened in it.'));
}

/**
 * Statements of the selection.
 * @param {HTMLElement} node
 * @param {Model} model
 * @param {Sum} own
 */
export function drawStatements(node, model, own) {
  const named = [...own.statements].filter(([statement]) => statement > 0);
  if (named.length === 0) {
    fill(node, el('p', { class: 'empty' }, 'No labels were recorded. With --labels requests are told apart by their statement or path.'));
    return;
  }
  const lines = [...own.statements].sort(([, one], [, two]) => two[1] - one[1]);
  const rest = lines.splice(LINES);
  const row = (/** @type {string} */ name, /** @type {number[]} */ [count, latency, onCpu, blocked, longest]) => el('tr', { 'data-count': count, 'data-ns': latency },
    el('td', { class: 'label', title: name }, name),
    el('td', { class: 'num' }, number(count)),
    el('td', { class: 'num strong' }, share(latency, own.latency)),
    el('td', { class: 'num' }, duration(latency / count)),
    el('td', { class: 'num' }, duration(onCpu / count)),
    el('td', { class: 'num' }, duration(blocked / count)),
    el('td', { class: 'num' }, duration(longest)));
  const rows = lines.map(([statement, sums]) => row(model.statements[statement] || '(no label)', sums));
  if (rest.length > 0) {
    const sums = rest.map(([, one]) => one).reduce((all, one) => all.map((sum, at) => (at === 4 ? Math.max(sum, one[4]) : sum + one[at])));
    rows.push(row(`[${number(rest.length)} more]`, sums));
  }
  fill(node, el('div', { class: 'wrap' }, el('table', { id: 'statements-table' },
    el('thead', null, el('tr', null, ['statement', 'requests', 'of latency', 'mean', 'on CPU', 'blocked', 'longest']
      .map((name, at) => el('th', { scope: 'col', class: at > 0 ? 'num' : null }, name)))),
    el('tbody', null, rows))));
}

/**
 * Who held the selection up, and whose statements held whose up.
 * @param {HTMLElement} node
 * @param {Model} model
 * @param {Sum} own
 */
export function drawHeld(node, model, own) {
  if (!model.has_blame) {
    fill(node, el('p', { class: 'empty' }, 'Not known: the trace has no intervals. Trace with --html or --blame.'));
    return;
  }
  /** @type {Map<string, {name: string, cause: number, ns: number, classes: Map<number, number>, threads: Set<string>}>} */
  const lines = new Map();
  let all = 0;
  own.holdings.forEach((ns, at) => {
    if (ns === 0) {
      return;
    }
    const holding = model.holdings[at];
    const { key, who, cause } = holderOf(model, at);
    const line = lines.get(key) ?? { name: who, cause, ns: 0, classes: new Map(), threads: new Set() };
    line.ns += ns;
    line.classes.set(holding.class, (line.classes.get(holding.class) ?? 0) + ns);
    line.threads.add(threadWords(model, holding));
    lines.set(key, line);
    all += ns;
  });
  if (all === 0) {
    fill(node, el('p', { class: 'empty' }, 'These requests were not blocked.'));
    return;
  }
  const sorted = [...lines.values()].sort((one, two) => two.ns - one.ns);
  const rest = sorted.splice(LINES);
  const mostly = (/** @type {Map<number, number>} */ classes) => {
    const [most] = [...classes].sort(([, one], [, two]) => two - one)[0];
    return most < 0 ? 'unattributed' : model.states[LOST + 1 + most].name;
  };
  const row = (/** @type {string} */ cause, /** @type {string} */ name, /** @type {string} */ thread, /** @type {number} */ ns, /** @type {string} */ where, color = 'transparent') => el('tr', { 'data-ns': ns },
    el('td', null, el('span', { class: 'swatch', style: { background: color } }), cause),
    el('td', { class: 'label', title: name }, name),
    el('td', null, thread),
    el('td', { class: 'num strong' }, share(ns, all)),
    el('td', { class: 'wide' }, el('span', { class: 'bar' }, el('span', { style: { width: `${(ns / all) * 100}%`, background: color } }))),
    el('td', { class: 'num' }, duration(own.isMixed ? ns : ns / own.count)),
    el('td', null, where));
  const threads = (/** @type {Set<string>} */ of) => (of.size > 1 ? 'several' : [...of][0]);
  const rows = sorted.map((line) => row(model.causes[line.cause][1], line.name, threads(line.threads), line.ns, mostly(line.classes), model.cause_colors[line.cause]));
  if (rest.length > 0) {
    rows.push(row(`${number(rest.length)} more`, '', '', rest.reduce((sum, line) => sum + line.ns, 0), ''));
  }
  fill(node,
    el('div', { class: 'wrap' }, el('table', { id: 'held-table', 'data-all-ns': all },
      el('thead', null, el('tr', null, ['root cause', 'who', 'thread of program', `of ${heldUpWords(model)}`, '', own.isMixed ? 'together' : 'per request', 'mostly in']
        .map((name, at) => el('th', { scope: 'col', class: at === 3 || at === 5 ? 'num' : null }, name)))),
      el('tbody', null, rows))),
    matrix(model, own));
}

/**
 * The one thread of a holding, and its program.
 * @param {Model} model
 * @param {import('./model.js').Holding} holding
 * @returns {string}
 */
function threadWords(model, { kind, thread }) {
  if (!thread) {
    return ['request', 'thread'].includes(kind) ? 'several' : '';
  }
  const [pid, tid] = thread;
  const program = model.summary.trace.processes.find((/** @type {{pid: number}} */ one) => one.pid === pid)?.name;
  return program ? `${tid} of ${program}` : `${tid} of pid ${pid}`;
}

/** Rows and columns of the matrix. */
const MATRIX = 8;

/**
 * Statements that waited, and statements that held them up.
 * @param {Model} model
 * @param {Sum} own
 * @returns {HTMLElement | null}
 */
function matrix(model, own) {
  /** @type {Map<string, Map<string, number>>} */
  const cells = new Map();
  /** @type {Map<string, number>} */
  const culprits = new Map();
  own.holdings.forEach((ns, at) => {
    const holding = model.holdings[at];
    if (ns === 0 || !holding.victim || !holding.label) {
      return;
    }
    const culprit = holding.kind === 'thread' ? `idle after ${holding.label}` : holding.label;
    const row = cells.get(holding.victim) ?? new Map();
    row.set(culprit, (row.get(culprit) ?? 0) + ns);
    cells.set(holding.victim, row);
    culprits.set(culprit, (culprits.get(culprit) ?? 0) + ns);
  });
  if (cells.size === 0) {
    return null;
  }
  const sum = (/** @type {Map<string, number>} */ row) => [...row.values()].reduce((all, ns) => all + ns, 0);
  const victims = [...cells].sort(([, one], [, two]) => sum(two) - sum(one)).slice(0, MATRIX);
  const columns = [...culprits].sort(([, one], [, two]) => two - one).slice(0, MATRIX).map(([name]) => name);
  const most = Math.max(...victims.flatMap(([, row]) => [...row.values()]));
  const left = [cells.size - victims.length, culprits.size - columns.length].filter((count) => count > 0);
  return el('div', { class: 'wrap' },
    el('h3', null, 'Which statement waited for which'),
    el('table', { id: 'matrix-table', class: 'matrix' },
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'waited ↓  held up by →'),
        columns.map((name) => el('th', { scope: 'col', title: name }, el('span', null, name))))),
      el('tbody', null, victims.map(([victim, row]) => el('tr', null,
        el('th', { scope: 'row', class: 'label', title: victim }, victim),
        columns.map((name) => {
          const ns = row.get(name) ?? 0;
          const level = ns > 0 ? 1 + Math.min(6, Math.floor((ns / most) * 6.999)) : 0;
          return el('td', { class: `num heat-${level}`, title: `${victim} waited ${duration(ns)} for ${name}` }, ns > 0 ? duration(ns) : '');
        }))))),
    left.length > 0 ? el('p', { class: 'hint' }, `The ${MATRIX} with the most time; ${number(left.reduce((all, count) => all + count, 0))} more are left out.`) : null);
}

/**
 * Rows of both sides of a comparison, as far as they have some; what is noise is shown when it is asked for.
 * @param {HTMLElement} node
 * @param {string} id
 * @param {string} title
 * @param {{rows: import('./against.js').ChangedRow[], small: number}} changed
 */
export function drawChanged(node, id, title, { rows, small }) {
  if (rows.length === 0) {
    return;
  }
  const cells = (/** @type {boolean} */ isNoise) => rows.filter((row) => (row.estimate.is_clear === false) === isNoise)
    .map((row) => changeCells(row.estimate, row.totals, row.sides, row.name));
  node.prepend(el('h3', null, title), sortedTable(id, CHANGE_COLUMNS, cells(false), leftOutOf({ noise: 0, small }), cells(true)),
    el('h3', null, 'In B'));
}

/** Lines of what had a time of a request type. */
const SHARES = 5;

/**
 * @param {string} title
 * @param {any[]} parts those with the most time first
 * @param {number} all nanoseconds
 * @returns {HTMLElement}
 */
function shares(title, parts, all) {
  const lines = parts.slice(0, SHARES).map((part) => el('li', null, el('strong', null, share(part.ns, all)), ` ${part.text}`));
  return el('div', null, el('p', null, title), el('ul', null, lines));
}

/**
 * What CPUs and disks did while requests of the whole trace waited for them; nothing where the trace does not say.
 * @param {Model} model
 * @returns {HTMLElement | null}
 */
export function machine(model) {
  const lines = (model.summary.blame ?? []).flatMap((/** @type {any} */ of) => [
    of.cpu?.waited_ns > 0 && of.cpu.had_by.length > 0 ? shares(
      `Who had the CPU of \`${of.request}\`, of ${duration(of.cpu.waited_ns)} that it waited:`, of.cpu.had_by, of.cpu.waited_ns) : null,
    of.queue?.queued_ns > 0 ? shares(
      `What \`${of.request}\` was queued behind, of ${duration(of.queue.queued_ns)} that it waited for its runtime:`, of.queue.behind, of.queue.queued_ns) : null,
    of.disk ? el('p', null, of.disk.text) : null,
  ]).filter(Boolean);
  if (lines.length === 0) {
    return null;
  }
  return card('machine', 'CPUs and disks, of the whole trace', lines);
}
