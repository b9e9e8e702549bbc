// The page: its parts put together, and what follows from a change of the view.

import { duration, number, share } from './format.js';
import { card, el, fill, holdLoad } from './dom.js';
import { load, timeOfDay } from './model.js';
import { dropKept, keepSelection, keptSelection, look, readHash, view, watch } from './state.js';
import { between, byLatency, cellsOf, columnsBeside, columnsOf, split, sumOf, typicalCells } from './sums.js';
import { against } from './against.js';
import { header } from './header.js';
import { heatmap } from './heatmap.js';
import { drawChange, drawLedger } from './ledger.js';
import { drawChanged, drawHeld, drawRequests, drawStatements, machine, slowestOf } from './tables.js';
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
    kept: el('p', { id: 'kept', role: 'status' }),
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
  const bases = [['typical', 'typical ones'], ['rest', 'all others'], ['kept', 'A']].map(([base, name]) => (
    el('button', { type: 'button', 'data-base': base, onclick: () => look({ base }) }, name)));
  const keep = el('button', { type: 'button', id: 'keep', title: 'Keep what is selected, to compare another selection with it', onclick: keepSelection }, 'Keep as A');
  const drop = el('button', { type: 'button', id: 'drop', class: 'quiet', 'aria-label': 'Drop A', title: 'Drop A', onclick: dropKept }, '×');
  const acts = { All: () => look({ box: null }), 'Slowest 1 %': slowest, Typical: typical };
  const presets = Object.entries(acts).map(([name, act]) => (
    el('button', { type: 'button', 'data-preset': name, onclick: act }, name)));

  fill(page, header(model), el('main', null,
    card('requests', 'Requests by time and latency',
      el('div', { class: 'controls' },
        types.length > 0 ? el('span', { class: 'group', role: 'group', 'aria-label': 'Request type' }, types) : null,
        el('span', { class: 'group', role: 'group', 'aria-label': 'Select' }, presets),
        el('span', { class: 'hint' }, 'Drag over requests or along an axis: all below follows.'),
        el('span', { class: 'right' }, el('span', { class: 'hint' }, 'compare with '),
          el('span', { class: 'group', role: 'group', 'aria-label': 'Compare with' }, bases), ' ', el('span', { class: 'group' }, keep, drop))),
      map.node, parts.kept, parts.selection),
    lineCard,
    card('where', 'Selection and comparison', parts.ledger),
    card('slowest', 'Slowest requests of the selection', parts.requests),
    card('held', 'Who held them up', parts.held),
    machine(model),
    card('flame', 'Flame graph', graph.node),
    card('statements', 'Statements', parts.statements)));

  /** @param {Set<string>} changed */
  function update(changed) {
    const has = (/** @type {string[]} */ ...names) => names.some((name) => changed.has(name));
    if (has('theme')) {
      document.documentElement.dataset.theme = view.theme;
    }
    if (has('type', 'box', 'base', 'kept', 'theme', 'flame', 'time', 'reversed', 'search')) {
      select(has('type', 'box', 'base', 'kept', 'theme'));
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
      const base = baseOf(outside);
      const isKept = view.base === 'kept';
      const own = { name: isKept ? 'B' : 'the selection', cells: inside, columns: columnsOf(model, view.box) };
      sums = [sumOf(model, inside), sumOf(model, base.cells), base.name];
      const compared = isSame() || sums[0].isMixed || sums[1].isMixed ? null : against(model, base, own, isKept);
      map.draw(cells);
      list = slowestOf(model, view.type, view.box);
      describe(sums[0]);
      if (isKept && compared) {
        drawChange(parts.ledger, compared);
      } else {
        const short = { typical: 'typical', rest: 'all others', kept: 'A' }[view.base] ?? '';
        drawLedger(parts.ledger, model, sums[0], sums[1], short, compared);
      }
      drawRequests(parts.requests, model, list, sums[0].count);
      drawHeld(parts.held, model, sums[0]);
      drawStatements(parts.statements, model, sums[0]);
      if (isKept && compared) {
        drawChanged(parts.held, 'held-changes', 'From A to B', compared.held);
        drawChanged(parts.statements, 'statements-changes', 'From A to B: what each adds to the mean of all', compared.statements);
      }
      press(types, 'type', String(view.type));
      press(bases, 'base', view.base);
      bases[2].hidden = !view.kept;
      drop.hidden = !view.kept;
      keep.disabled = isSame();
    }
    graph.draw(...sums);
  }

  /** Whether what is selected is what is kept. */
  function isSame() {
    return String(view.kept) === String([view.type, ...(view.box ?? [])]);
  }

  /**
   * What the selection is compared with.
   * @param {number[]} outside cells beside the selection
   * @returns {import('./against.js').Chosen}
   */
  function baseOf(outside) {
    const kept = keptSelection();
    if (view.base === 'kept' && kept) {
      const [own] = split(model, cellsOf(model, kept.type), kept.box);
      return { name: 'A', cells: own, columns: columnsOf(model, kept.box) };
    }
    return view.base === 'rest' ? { name: 'all others', cells: outside, columns: columnsBeside(model, view.box, outside) }
      : { name: 'typical ones', cells: typicalCells(model, cells), columns: columnsOf(model, null) };
  }

  /**
   * Says what is selected, and what is kept.
   * @param {import('./sums.js').Sum} own
   */
  function describe({ count, latency }) {
    const all = cells.reduce((sum, cell) => sum + model.cells.count[cell], 0);
    const [left, right, low, high] = view.box ?? [0, model.columns - 1, 0, model.latencyRows - 1];
    const from = left * model.column_ns;
    const to = (right + 1) * model.column_ns;
    const [least, most] = [model.edges_ns[low] ?? 0, model.edges_ns[high + 1] ?? 0];
    Object.assign(parts.selection.dataset, { count, latency, from, to, least, most });
    const kept = keptSelection();
    fill(parts.selection, view.base === 'kept' ? letter('B') : null, el('strong', null, number(count)), view.box
      ? ` of ${number(all)} requests (${share(count, all)}), ${boundsOf(view.box)}` : ' requests: all of them',
    `; ${duration(latency)} of latency together`);
    parts.kept.hidden = !kept;
    if (kept) {
      const type = model.types.length > 1 ? `${kept.type < 0 ? 'all types' : model.types[kept.type]}, ` : '';
      fill(parts.kept, letter('A'), `${type}${kept.box ? boundsOf(kept.box) : 'all requests'}`,
        isSame() ? '. Now select other requests, or another type: that is B, and is compared with A.' : '');
    }
  }

  /**
   * @param {import('./state.js').Box} box
   * @returns {string}
   */
  function boundsOf([left, right, low, high]) {
    const seconds = [left, right + 1].map((column) => Number(((column * model.column_ns) / 1e9).toFixed(3)));
    return `begun at ${timeOfDay(model, left * model.column_ns)} to ${timeOfDay(model, (right + 1) * model.column_ns)} (${seconds.join(' to ')} s), `
      + `latency ${duration(model.edges_ns[low] ?? 0)} to ${duration(model.edges_ns[high + 1] ?? 0)}`;
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
      if (!view.request && !view.box) {
        dropKept();
      } else {
        look(view.request ? { request: 0 } : { box: null });
      }
    }
  });
  const bounds = { types: model.types.length, columns: model.columns, rows: model.latencyRows, first: model.types.length === 1 ? 0 : -1, hasSamples: model.hasSamples };
  addEventListener('hashchange', () => look(readHash(location.hash, bounds)));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => update(new Set(['theme'])));
  document.title = `reqtrace ${model.summary.trace.profile}`;
  Object.assign(view, readHash(location.hash, bounds));
  update(new Set(['theme', 'type', 'request']));
}

/** @param {string} name of a side */
function letter(name) {
  return el('span', { class: `letter letter-${name}` }, name);
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
const letGo = holdLoad();
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
} finally {
  letGo();
}
