// The page of a comparison: what changed in, cards out.

import { card, el, fill, holdLoad } from './dom.js';
import { duration, number } from './format.js';
import { heatmaps } from './diffheat.js';
import { diffFlame } from './diffflame.js';
import { fallOf, markOf, percentOf, signed } from './fall.js';
import { CHANGE_COLUMNS, changeCells, leftOutOf, sortedTable } from './difftables.js';

/** @typedef {import('./fall.js').Fall} Fall */
/** @typedef {any} Type */

/** The data, which is compressed. */
async function readDiff() {
  const packed = Uint8Array.from(atob((document.querySelector('#data')?.textContent ?? '').trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).json();
}

/**
 * @param {any} data
 * @returns {HTMLElement}
 */
function headOf(data) {
  const lines = data.sides.map((/** @type {any} */ side, /** @type {number} */ at) => el('p', { class: 'what' },
    el('strong', null, `${'AB'[at]}  `), [side.names.join(', '), duration(side.length_ns), `${number(side.requests)} requests`, ...side.which].join(' · ')));
  const unlike = data.unlike.length === 0 ? null : el('table', { id: 'unlike' },
    el('thead', null, el('tr', null, ['unlike', 'A', 'B'].map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', null, data.unlike.map((/** @type {any} */ one) => el('tr', null, [one.what, one.a, one.b].map((text) => el('td', null, text))))));
  return el('header', { class: 'head' }, el('h1', null, 'What changed from A to B ', el('span', { class: 'brand' }, `reqtrace ${data.reqtrace}`)),
    lines, data.too_short ? el('p', { class: 'warning' }, data.too_short) : null, unlike,
    data.notes.map((/** @type {string} */ note) => el('p', { class: 'hint' }, note)));
}

/** @param {Type} type */
function metricsOf(type) {
  const show = (/** @type {string} */ measure, /** @type {number} */ value) => (
    measure === 'rate' ? `${value.toFixed(1)}/s` : measure === 'slow' ? `${(value * 100).toFixed(3)} %` : duration(value));
  const rows = type.metrics.map((/** @type {any} */ metric) => {
    const estimate = metric.relative ?? metric.absolute;
    const shown = metric.relative ? percentOf : (/** @type {number} */ value) => show(metric.measure, value);
    return el('tr', { 'data-measure': metric.measure },
      el('th', { scope: 'row' }, metric.measure === 'p999' ? 'p99.9' : metric.measure),
      metric.sides.map((/** @type {any} */ side) => el('td', { class: 'num' }, show(metric.measure, side.value))),
      el('td', { class: 'num strong' }, shown(estimate.change)),
      el('td', null, estimate.interval ? `${shown(estimate.interval[0])} to ${shown(estimate.interval[1])}` : ''),
      el('td', null, markOf(estimate)));
  });
  return el('table', { id: 'metrics' }, el('thead', null, el('tr', null, ['', 'A', 'B', 'change', '95 %', ''].map((name, at) => (
    el('th', { scope: 'col', class: at > 0 && at < 4 ? 'num' : null }, name))))), el('tbody', null, rows));
}

/** @param {any} data */
function drawDiff(data) {
  const falls = el('div', { class: 'two' });
  const metrics = el('div', null);
  const groups = el('div', null);
  const items = el('div', null);
  const heat = heatmaps(data.edges_ns);
  const flame = diffFlame();
  const buttons = data.types.map((/** @type {Type} */ type, /** @type {number} */ at) => (
    el('button', { type: 'button', 'data-type': type.name, onclick: () => choose(at) }, type.name)));

  /** @param {number} at */
  function choose(at) {
    const type = data.types[at];
    buttons.forEach((/** @type {HTMLElement} */ button, /** @type {number} */ index) => button.setAttribute('aria-pressed', String(index === at)));
    fill(metrics, el('h3', null, `${type.name}: ${number(type.count[0])} → ${number(type.count[1])} requests`), metricsOf(type));
    /** @type {[string, Fall | null | undefined][]} */
    const named = [
      ['Mean, by part and wait class', type.parts],
      ['Mean, by root cause', type.causes],
      [`Slowest ${(type.tail?.share ?? 0) * 100} %, by part and wait class`, type.tail?.parts],
      [`Slowest ${(type.tail?.share ?? 0) * 100} %, by root cause`, type.tail?.causes],
    ];
    fill(falls, named.filter(([, fall]) => fall).map(([name, fall], index) => (
      el('div', { 'data-fall': index }, el('h3', null, name), fallOf(/** @type {Fall} */ (fall))))));
    heat.draw(data.heat[at]);
    flame.draw(data.stacks.filter((/** @type {any} */ stack) => stack[0] === at).map((/** @type {any} */ stack) => stack.slice(1)));
    const mix = type.mix ? el('p', { id: 'mix' }, `Other requests came: ${signed(type.mix.mix.change)} ${markOf(type.mix.mix)}; the same ones got slower: ${signed(type.mix.inside.change)} ${markOf(type.mix.inside)}.`) : null;
    const rows = type.groups.rows.map((/** @type {any} */ row) => changeCells(row.part, row.count, row.mean_ns, row.name));
    fill(groups, mix, sortedTable('fingerprints', ['change of the mean of all', 'mean in A', 'mean in B', 'became', '~', 'fingerprint'], rows, leftOutOf(type.groups)));
    fill(items, data.items.map((/** @type {any} */ kind) => {
      const own = kind.rows.filter((/** @type {any} */ row) => row.request === type.name);
      return el('div', null, el('h3', null, kind.what), sortedTable(kind.what, CHANGE_COLUMNS,
        own.map((/** @type {any} */ row) => changeCells(row.estimate, row.total_ns, row.each_ns, row.name)), leftOutOf(kind)));
    }));
  }

  const page = document.querySelector('#page');
  if (page) {
    fill(page, headOf(data), el('main', null,
      card('what', 'Requests', el('div', { class: 'controls' }, el('span', { class: 'group', role: 'group', 'aria-label': 'Request type' }, buttons)), metrics),
      card('falls', 'Where it changed', falls),
      card('heat', 'By time and latency', heat.node),
      card('flame', 'Stacks', flame.node),
      card('groups', 'Fingerprints', groups),
      card('items', 'Culprits, locks, files, stacks', items)));
  }
  if (data.types.length > 0) {
    choose(0);
  }
  document.documentElement.dataset.ready = 'yes';
}

const letGo = holdLoad();
readDiff().then(drawDiff).finally(letGo);
