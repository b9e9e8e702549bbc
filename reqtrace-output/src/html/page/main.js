// The page: its parts put together, and what follows from a change of the view.

import { duration, moment, number, share } from './format.js';
import { card, el, fill } from './dom.js';
import { load } from './model.js';
import { look, readHash, view, watch } from './state.js';
import { between, byLatency, cellsOf, split, sumOf, typicalCells } from './sums.js';
import { header } from './header.js';
import { heatmap } from './heatmap.js';
import { drawLedger } from './ledger.js';
import { drawHeld, drawRequests, drawStatements, slowestOf } from './tables.js';
import { flame } from './flame.js';
import { timeline } from './timeline.js';

/** @typedef {import('./model.js').Model} Model */

/**
 * @param {Model} model
 * @param {HTMLElement} page
 */
function show(model, page) {
  const parts = {
    ledger: el('div', { class: 'two' }),
    requests: el('div', null),
    statements: el('div', null),
    held: el('div', null),
    selection: el('p', { id: 'selection', role: 'status' }),
  };
  /** @type {ReturnType<typeof slowestOf>} */
  let list = { shown: [], known: 0 };
  const openSlowest = () => {
    const first = list.shown.find((one) => one.slow);
    if (first) {
      look({ request: first.id });
    }
  };
  const map = heatmap(model, openSlowest);
  const graph = flame(model);
  const line = timeline(model);
  const lineCard = card('timeline', 'What happened in it', line.node);
  /** @type {number[]} */
  let cells = [];

  const slowest = () => {
    if (cells.length === 0) {
      return;
    }
    const [low] = between(byLatency(model, cells), 0.99, 1);
    look({ box: [0, model.columns - 1, low, model.latencyRows - 1] });
  };
  // Whole rows of the picture are selected, which may have more than 1 %.
  const nameSlowest = () => {
    const counts = byLatency(model, cells);
    const [low] = between(counts, 0.99, 1);
    const sum = (/** @type {Float64Array} */ of) => of.reduce((all, count) => all + count, 0);
    const button = presets[1];
    if (button && cells.length > 0) {
      button.textContent = `Slowest ${share(sum(counts.slice(low)), sum(counts))}`;
    }
  };
  const typical = () => {
    if (cells.length === 0) {
      return;
    }
    const [low, high] = between(byLatency(model, cells), 0.4, 0.6);
    look({ box: [0, model.columns - 1, low, high] });
  };
  const names = model.types.length > 1 ? ['All types', ...model.types] : [];
  const types = names.map((name, at) => el('button', { type: 'button', 'data-type': at - 1, onclick: () => look({ type: at - 1, box: null }) }, name));
  const bases = [['typical', 'typical ones'], ['rest', 'all others']].map(([base, name]) => (
    el('button', { type: 'button', 'data-base': base, onclick: () => look({ base }) }, name)));
  const acts = { All: () => look({ box: null }), 'Slowest 1 %': slowest, Typical: typical };
  const presets = Object.entries(acts).map(([name, act]) => (
    el('button', { type: 'button', 'data-preset': name, onclick: act }, name)));

  fill(page, header(model), el('main', null,
    card('requests', 'Requests by time and latency',
      el('div', { class: 'controls' },
        types.length > 0 ? el('span', { class: 'group', role: 'group', 'aria-label': 'Request type' }, types) : null,
        el('span', { class: 'group', role: 'group', 'aria-label': 'Select' }, presets),
        el('span', { class: 'hint' }, 'Drag over requests to select them; everything below follows.'),
        el('span', { class: 'right' }, el('span', { class: 'hint' }, 'compare with '),
          el('span', { class: 'group', role: 'group', 'aria-label': 'Compare with' }, bases))),
      map.node, parts.selection),
    lineCard,
    card('where', 'Selection and comparison', parts.ledger),
    card('slowest', 'Slowest requests of the selection', parts.requests),
    card('held', 'Who held them up', parts.held),
    card('flame', 'Flame graph', graph.node),
    card('statements', 'Statements', parts.statements)));

  /** @param {Set<string>} changed */
  function update(changed) {
    const has = (/** @type {string[]} */ ...names) => names.some((name) => changed.has(name));
    if (has('theme')) {
      document.documentElement.dataset.theme = view.theme;
    }
    if (has('type', 'box', 'base', 'theme', 'flame', 'time', 'reversed', 'search')) {
      select(has('type', 'box', 'base', 'theme'));
    }
    if (has('request', 'theme')) {
      lineCard.hidden = !model.slowById.has(view.request);
      line.draw();
      document.querySelectorAll('#requests-table tr[data-id]').forEach((row) => {
        row.toggleAttribute('aria-current', row.getAttribute('data-id') === String(view.request));
      });
      if (has('request') && !lineCard.hidden) {
        lineCard.scrollIntoView({ block: 'nearest' });
      }
    }
  }

  /** @type {[import('./sums.js').Sum, import('./sums.js').Sum, string] | null} */
  let sums = null;

  /** @param {boolean} isNew */
  function select(isNew) {
    if (isNew || !sums) {
      cells = cellsOf(model, view.type);
      nameSlowest();
      const [inside, outside] = split(model, cells, view.box);
      const base = view.base === 'rest' ? outside : typicalCells(model, cells);
      const own = sumOf(model, inside);
      const other = sumOf(model, base);
      sums = [own, other, view.base === 'rest' ? 'all others' : 'typical ones'];
      map.draw(cells);
      list = slowestOf(model, view.type, view.box);
      describe(own.count, own.latency);
      drawLedger(parts.ledger, model, own, other, view.base === 'rest' ? 'all others' : 'typical');
      drawRequests(parts.requests, model, list, own.count);
      drawHeld(parts.held, model, own);
      drawStatements(parts.statements, model, own);
      press(types, 'type', String(view.type));
      press(bases, 'base', view.base);
    }
    graph.draw(...sums);
  }

  /**
   * @param {number} count
   * @param {number} latency
   */
  function describe(count, latency) {
    const all = cells.reduce((sum, cell) => sum + model.cells.count[cell], 0);
    const [left, right, low, high] = view.box ?? [0, model.columns - 1, 0, model.latencyRows - 1];
    const from = left * model.column_ns;
    const to = (right + 1) * model.column_ns;
    const [least, most] = [model.edges_ns[low] ?? 0, model.edges_ns[high + 1] ?? 0];
    Object.assign(parts.selection.dataset, { count, latency, from, to, least, most });
    fill(parts.selection, el('strong', null, number(count)), view.box
      ? ` of ${number(all)} requests (${share(count, all)}), begun at ${moment(from)} to ${moment(to)}, latency ${duration(least)} to ${duration(most)}`
      : ' requests: all of them',
    `; ${duration(latency)} of latency together`);
  }

  watch(update);
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key === '/' && !isTyping) {
      event.preventDefault();
      graph.focusSearch();
    } else if (event.key === 'o' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      graph.nextTime();
    } else if (event.key === 'Escape' && !isTyping) {
      look(view.request ? { request: 0 } : { box: null });
    }
  });
  const bounds = { types: model.types.length, columns: model.columns, rows: model.latencyRows, first: model.types.length === 1 ? 0 : -1, hasSamples: model.hasSamples };
  addEventListener('hashchange', () => look(readHash(location.hash, bounds)));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => update(new Set(['theme'])));
  document.title = `reqtrace ${model.summary.trace.profile}`;
  Object.assign(view, readHash(location.hash, bounds));
  update(new Set(['theme', 'type', 'request']));
}

/**
 * @param {HTMLElement[]} buttons
 * @param {string} key
 * @param {string} value
 */
function press(buttons, key, value) {
  buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.dataset[key] === value)));
}

const place = /** @type {HTMLElement} */ (document.getElementById('page'));
try {
  const data = /** @type {HTMLElement} */ (document.getElementById('data'));
  const text = data.textContent ?? '';
  data.remove();
  show(await load(text), place);
  performance.mark('shown');
  document.documentElement.dataset.ready = 'yes';
} catch (error) {
  fill(place, el('p', { class: 'waiting', role: 'alert' },
    `This page cannot be shown: ${error instanceof Error ? error.message : error}. It needs a browser of 2023 or later; the file may also be cut.`));
  throw error;
}
