// Where the time of the selection went, and its root causes, each beside requests to compare with.

import { el, fill } from './dom.js';
import { duration, number, share } from './format.js';
import { fallOf, intervalOf, markOf, percentOf, signed } from './fall.js';
import { LOST } from './model.js';
import { heldUpOf } from './sums.js';

/** @typedef {import('./model.js').Model} Model */
/** @typedef {import('./sums.js').Sum} Sum */
/** @typedef {import('./against.js').Against} Against */
/** @typedef {import('./against.js').Estimate} Estimate */

/** Lines below this share of everything are put together. */
const LEAST = 0.005;

/**
 * The time that root causes are known of.
 * @param {Model} model
 * @returns {string}
 */
export function heldUpWords(model) {
  return model.firstQueued > model.firstParked ? 'blocked and parked' : 'blocked';
}

/**
 * One line of a comparison.
 * @typedef {{name: string, color: string | null, own: number, other: number, key: string, estimate?: Estimate}} Line
 */

/**
 * Draws both tables.
 * @param {HTMLElement} node
 * @param {Model} model
 * @param {Sum} own
 * @param {Sum} other
 * @param {string} otherName
 * @param {Against | null} compared the same, judged
 */
export function drawLedger(node, model, own, other, otherName, compared) {
  if (own.count === 0) {
    fill(node, el('p', { class: 'empty' }, 'No request is selected.'));
    return;
  }
  const states = model.states.map((state, at) => ({
    name: state.name, color: state.color, own: own.states[at], other: other.states[at], key: state.name, estimate: compared?.ofState[at],
  }));
  const causes = model.causes.map(([key, name], at) => ({
    name, color: model.cause_colors[at], own: own.causes[at], other: other.causes[at], key, estimate: compared?.ofCause[at],
  }));
  const tables = [
    comparison('ledger-table', 'Where the time went', states, own, other, otherName, own.latency, other.latency, 'latency', compared?.change),
  ];
  if (model.has_blame) {
    tables.push(comparison('causes-table', `What ${heldUpWords(model)} time came down to`, causes, own, other, otherName,
      heldUpOf(model, own), heldUpOf(model, other), heldUpWords(model)));
  }
  const hints = [['noise', compared && noiseWords(compared)], ['lost-cpu', lostCpuWords(model)]];
  fill(node, tables, hints.map(([id, words]) => words && el('p', { id, class: 'across hint' }, words)));
}

/**
 * What took the CPU from requests while they ran: known of types, not of cells.
 * @param {Model} model
 */
function lostCpuWords(model) {
  const types = model.summary.requests.filter((/** @type {any} */ type) => type.lost_cpu?.requests > 0);
  const words = types.map((/** @type {any} */ type) => {
    const { requests, interrupts_ns: interrupts, softirqs_ns: softirqs, steal_ns: steal } = type.lost_cpu;
    const parts = [['interrupts', interrupts], ['softirqs', softirqs], ['steal', steal]].filter(([, ns]) => ns !== null);
    return `${type.name}: ${parts.map(([name, ns]) => `${name} ${duration(ns / requests)}`).join(', ')}`;
  });
  return words.length > 0 ? `Part of the time on CPU, mean per request of the whole trace: ${words.join('; ')}.` : null;
}

/** @param {Against} compared */
function noiseWords(compared) {
  return compared.lacking ?? `~ is noise: as much comes about by chance, among so many rows. ${compared.how}`;
}

/**
 * Draws what changed from the selection that is kept to the present one.
 * @param {HTMLElement} node
 * @param {Against} compared
 */
export function drawChange(node, compared) {
  const { count, mean, change } = compared;
  const lead = el('p', { id: 'change', 'data-mark': markOf(change), 'data-interval': change.interval?.join(' ') },
    el('strong', null, `${duration(mean[0])} → ${duration(mean[1])}`), ' mean latency, ',
    el('strong', null, `${signed(change.change)} (${percentOf(change.change / mean[0])})`),
    change.interval ? `, 95 %: ${intervalOf(change)}` : null, el('span', { class: 'mark' }, markOf(change) && ` ${markOf(change)}`),
    `; ${number(count[0])} requests in A, ${number(count[1])} in B`);
  /** @type {[string, import('./fall.js').Fall | null][]} */
  const named = [['Where the mean changed', compared.parts], ['The same by root cause', compared.causes]];
  const falls = named.map(([name, fall], at) => (fall ? el('div', { 'data-fall': at }, el('h3', null, name), fallOf(fall)) : null));
  fill(node, el('div', { class: 'across' }, lead, el('p', { id: 'noise', class: 'hint' }, noiseWords(compared))), falls);
}

/**
 * @param {string} id
 * @param {string} title
 * @param {Line[]} lines
 * @param {Sum} own
 * @param {Sum} other
 * @param {string} otherName
 * @param {number} ownAll
 * @param {number} otherAll
 * @param {string} allName
 * @param {Estimate} [change] of everything
 * @returns {HTMLElement}
 */
function comparison(id, title, lines, own, other, otherName, ownAll, otherAll, allName, change) {
  const isMixed = own.isMixed || other.isMixed;
  const each = (/** @type {number} */ ns, /** @type {Sum} */ sum) => {
    const whole = isMixed ? (sum === own ? ownAll : otherAll) : sum.count;
    return whole > 0 ? ns / whole : 0;
  };
  const words = (/** @type {number} */ value) => (isMixed ? share(value, 1) : duration(value));
  const difference = isMixed ? 0 : each(ownAll, own) - each(otherAll, other);
  const most = Math.max(...lines.map((line) => Math.max(each(line.own, own), each(line.other, other))), isMixed ? 0 : 1);
  const isShown = (/** @type {Line} */ line) => line.own > ownAll * LEAST || line.other > otherAll * LEAST;
  const shown = lines.filter(isShown).sort((one, two) => each(two.own, own) - each(one.own, own));
  const rest = lines.filter((line) => !isShown(line) && (line.own > 0 || line.other > 0));
  if (rest.length > 0) {
    const sum = (/** @type {'own' | 'other'} */ which) => rest.reduce((all, line) => all + line[which], 0);
    shown.push({ name: 'all else', color: null, own: sum('own'), other: sum('other'), key: 'all else' });
  }
  const row = (/** @type {Line} */ line) => {
    const delta = each(line.own, own) - each(line.other, other);
    return el('tr', { 'data-key': line.key, 'data-ns': line.own },
      el('th', { scope: 'row' }, el('span', { class: 'swatch', style: { background: line.color ?? 'transparent' } }), line.name),
      el('td', { class: 'num strong' }, words(each(line.own, own))),
      el('td', { class: 'bars' }, bar(each(line.own, own) / most, line.color), bar(each(line.other, other) / most, null)),
      el('td', { class: 'num' }, other.count > 0 ? words(each(line.other, other)) : '–'),
      el('td', { class: 'num' }, Math.abs(difference) > 0 && other.count > 0 ? share(delta * Math.sign(difference), Math.abs(difference)) : '–'),
      markCell(line.estimate));
  };
  return el('div', { class: 'comparison' },
    el('h3', null, title),
    el('table', { id, 'data-count': own.count, 'data-all-ns': ownAll },
      el('thead', null, el('tr', null,
        el('th', { scope: 'col' }, isMixed ? 'share of the time of all types' : 'mean per request'),
        el('th', { scope: 'col', class: 'num' }, 'selection'),
        el('th', { scope: 'col' }, ''),
        el('th', { scope: 'col', class: 'num' }, otherName),
        el('th', { scope: 'col', class: 'num' }, 'of difference'),
        el('th', { scope: 'col' }, '~'))),
      el('tbody', null, shown.map(row)),
      el('tfoot', null, el('tr', null,
        el('th', { scope: 'row' }, allName),
        el('td', { class: 'num strong' }, words(each(ownAll, own))),
        el('td', { class: 'num' }, `${number(own.count)} | ${number(other.count)} requests`),
        el('td', { class: 'num' }, other.count > 0 ? words(each(otherAll, other)) : '–'),
        el('td', null), markCell(change)))));
}

/** @param {Estimate | undefined} estimate */
function markCell(estimate) {
  return el('td', { class: 'mark', title: estimate ? intervalOf(estimate) : null }, estimate ? markOf(estimate) : '');
}

/**
 * @param {number} part
 * @param {string | null} color
 * @returns {HTMLElement}
 */
function bar(part, color) {
  return el('span', { class: color ? 'bar' : 'bar other' },
    el('span', { style: { width: `${Math.max(0, Math.min(1, part)) * 100}%`, ...(color ? { background: color } : {}) } }));
}

/**
 * A thin bar of all states of one request.
 * @param {Model} model
 * @param {ArrayLike<number>} states
 * @param {number} latency
 * @returns {HTMLElement}
 */
export function ledgerBar(model, states, latency) {
  const parts = Array.from(states, (ns, at) => ({ ns, state: model.states[at] }))
    .filter(({ ns }) => ns > latency * 0.002);
  const words = parts.map(({ ns, state }) => `${state.name} ${duration(ns)}`).join(', ');
  return el('span', { class: 'ledger-bar', role: 'img', 'aria-label': words, title: words },
    parts.map(({ ns, state }) => el('span', { style: { width: `${(ns / latency) * 100}%`, background: state.color } })));
}

/**
 * The states of a slow request.
 * @param {import('./model.js').Slow} slow
 * @returns {number[]}
 */
export function statesOf(slow) {
  return [slow.on_cpu, slow.run_queue, slow.preempted, slow.unattributed, ...slow.classes, ...slow.parked, ...slow.queued];
}

/**
 * The state in which most of the time off the CPU was spent.
 * @param {Model} model
 * @param {number[]} states
 * @returns {string}
 */
export function mainState(model, states) {
  let most = 0;
  states.forEach((ns, at) => {
    most = ns > states[most] ? at : most;
  });
  return most === LOST ? 'blocked, stack lost' : model.states[most].name;
}
