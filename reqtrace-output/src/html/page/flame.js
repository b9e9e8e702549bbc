// Flame graphs: the stacks of a selection, drawn from the outermost frame downwards.

import { el, fill, hideTip, showTip, sized, themed } from './dom.js';
import { duration, number, share } from './format.js';
import { ON_CPU } from './model.js';
import { look, view } from './state.js';
import { LEAST_WIDTH, ROOT, causesOfChains, chainsTree, laidOut, stacksTree, valuesOf } from './stacktree.js';

/**
 * @typedef {import('./model.js').Model} Model
 * @typedef {import('./sums.js').Sum} Sum
 * @typedef {import('./stacktree.js').Tree} Tree
 * @typedef {import('./stacktree.js').Values} Values
 * @typedef {import('./stacktree.js').Box} Box
 */

const ROW = 18;
/** Whose stacks are shown, and how that is called. */
const TIMES = [['off', 'Off CPU'], ['on', 'On CPU'], ['all', 'All']];

/**
 * The picture with its controls, and what redraws it.
 * @param {Model} model
 * @returns {{node: HTMLElement, draw: (own: Sum, base: Sum, baseName: string) => void, focusSearch: () => void, nextTime: () => void}}
 */
export function flame(model) {
  /** @type {Map<string, Tree>} */
  const trees = new Map();
  const canvas = el('canvas', {
    id: 'flame-picture',
    tabindex: '0',
    role: 'img',
    'aria-label': 'Flame graph. Arrows move between frames, Enter zooms, Escape goes back.',
  });
  const search = el('input', { id: 'search', type: 'search', placeholder: 'Search frames ( / )', 'aria-label': 'Search frames', spellcheck: 'false' });
  const found = el('span', { id: 'found', class: 'hint', role: 'status' });
  const legend = el('div', { class: 'legend' });
  const reset = el('button', { type: 'button', class: 'quiet', onclick: () => zoomTo(ROOT) }, 'Whole graph');
  const title = el('p', { id: 'flame-words', class: 'hint' });
  const kinds = [['stacks', 'Stacks'], ['diff', 'Difference']].concat(model.chains ? [['chains', 'Chains']] : []);
  const buttons = kinds.map(([kind, name]) => el('button', { type: 'button', 'data-flame': kind, onclick: () => look({ flame: kind }) }, name));
  const reversed = el('button', { type: 'button', id: 'reversed', onclick: () => look({ reversed: !view.reversed }) }, 'Innermost first');
  const times = (model.hasSamples ? TIMES : []).map(([time, name]) => el('button', { type: 'button', 'data-time': time, onclick: () => look({ time }) }, name));
  const wrap = el('div', { class: 'flame' }, canvas);
  const node = el('div', null,
    el('div', { class: 'controls' }, el('span', { class: 'group', role: 'group', 'aria-label': 'Which graph' }, buttons),
      times.length > 0 ? el('span', { class: 'group', role: 'group', 'aria-label': 'Which time ( o )' }, times)
        : el('span', { class: 'hint' }, 'No on-CPU stacks: the trace took no samples.'),
      reversed, reset, search, found),
    title, legend, wrap);
  /** @type {Box[]} */
  let boxes = [];
  /** @type {Values | null} */
  let values = null;
  /** @type {Tree | null} */
  let tree = null;
  let zoom = ROOT;
  let cursor = ROOT;
  let counts = [1, 1];
  let isMixed = false;
  const chainCauses = causesOfChains(model);
  /** @type {Set<number>} */
  const hidden = new Set();
  /** @type {[Sum, Sum, string] | null} */
  let last = null;
  /** @type {Uint8Array} */
  let matches = new Uint8Array(0);

  /** @returns {Tree} */
  function chosen() {
    const key = view.flame === 'chains' ? 'chains' : view.reversed ? 'reversed' : 'stacks';
    const known = trees.get(key);
    if (known) {
      return known;
    }
    const made = key === 'chains' ? chainsTree(model) : stacksTree(model, key === 'reversed');
    trees.set(key, made);
    return made;
  }

  /**
   * @param {Sum} own
   * @param {Sum} base
   * @param {string} baseName
   */
  function draw(own, base, baseName) {
    last = [own, base, baseName];
    const before = tree;
    tree = chosen();
    if (tree !== before) {
      zoom = ROOT;
      cursor = ROOT;
    }
    const isChains = view.flame === 'chains';
    isMixed = own.isMixed || base.isMixed;
    counts = [own, base].map((sum) => Math.max(1, isMixed ? sum.latency : sum.count));
    values = isChains
      ? valuesOf(tree, model.chains?.ns ?? [], null, (chain) => chainCauses[chain], model.causes.length, true)
      : valuesOf(tree, own.stacks, view.flame === 'diff' ? base.stacks : null,
        (stack) => (isShown(model.stackState[stack]) && !hidden.has(model.stackState[stack]) ? model.stackState[stack] : -1),
        model.states.length, !view.reversed);
    const split = view.time === 'off' ? '' : ` On-CPU time is split by ${number(own.samples)} samples.`;
    const texts = {
      stacks: `${timeWords()} of the selection: ${duration(values.all)}, ${each(values.all)}. A frame has the colour of what most of its time was spent in; ⋯ stands for frames above it that do not fork.${split}`,
      diff: `${timeWords()} ${isMixed ? 'as share of all time' : 'per request'} of the selection (widths), and what is more or less than in ${baseName}: ${each(values.all)} against ${each(values.baseAll, 1)}.${split}`,
      chains: `Blocked time of all requests of the trace: where they waited, -- who held them up, and where that one waited; ${duration(values.all)}. Colours are root causes.`,
    };
    title.dataset.ns = String(values.all);
    fill(title, texts[/** @type {'stacks' | 'diff' | 'chains'} */ (view.flame)] ?? '');
    for (const button of buttons) {
      button.setAttribute('aria-pressed', String(button.dataset.flame === view.flame));
    }
    reversed.setAttribute('aria-pressed', String(view.reversed));
    reversed.disabled = isChains;
    for (const button of times) {
      button.setAttribute('aria-pressed', String(button.dataset.time === view.time));
      button.disabled = isChains;
    }
    drawLegend(own, isChains);
    find();
    paint();
  }

  /**
   * Whether a state is of the time that is shown.
   * @param {number} state
   * @returns {boolean}
   */
  function isShown(state) {
    return view.time === 'all' || (state === ON_CPU) === (view.time === 'on');
  }

  /** @returns {string} */
  function timeWords() {
    return { on: 'On-CPU time', all: 'All time' }[view.time] ?? 'Off-CPU time';
  }

  /** The next kind of time. */
  function nextTime() {
    const at = TIMES.findIndex(([time]) => time === view.time);
    if (model.hasSamples && view.flame !== 'chains') {
      look({ time: TIMES[(at + 1) % TIMES.length][0] });
    }
  }

  /**
   * @param {Sum} own
   * @param {boolean} isChains
   */
  function drawLegend(own, isChains) {
    if (view.flame === 'diff') {
      fill(legend, el('span', { class: 'key' }, el('span', { class: 'swatch', style: { background: themed('--more') } }), 'more than there'),
        el('span', { class: 'key' }, el('span', { class: 'swatch', style: { background: themed('--less') } }), 'less than there'));
      return;
    }
    if (isChains) {
      const byCause = model.causes.map(() => 0);
      model.chains?.ns.forEach((ns, chain) => {
        byCause[chainCauses[chain]] += ns;
      });
      const all = byCause.reduce((sum, ns) => sum + ns, 0);
      fill(legend, [...byCause.keys()].filter((cause) => byCause[cause] > 0).sort((one, two) => byCause[two] - byCause[one])
        .map((cause) => el('span', { class: 'key', 'data-ns': byCause[cause] },
          el('span', { class: 'swatch', style: { background: model.cause_colors[cause] } }), `${model.causes[cause][1]} ${share(byCause[cause], all)}`)));
      return;
    }
    const sums = new Float64Array(model.states.length);
    own.stacks.forEach((ns, stack) => {
      if (isShown(model.stackState[stack])) {
        sums[model.stackState[stack]] += ns;
      }
    });
    const all = sums.reduce((sum, ns) => sum + ns, 0);
    const keys = [...sums.keys()].filter((state) => sums[state] > all * 0.001)
      .sort((one, two) => sums[two] - sums[one])
      .map((state) => el('button', {
        type: 'button',
        class: 'key',
        'aria-pressed': String(!hidden.has(state)),
        'data-state': model.states[state].name,
        'data-ns': sums[state],
        title: hidden.has(state) ? 'Show it' : 'Leave it out',
        onclick: () => {
          if (!hidden.delete(state)) {
            hidden.add(state);
          }
          if (last) {
            draw(...last);
          }
        },
      }, el('span', { class: 'swatch', style: { background: model.states[state].color } }), `${model.states[state].name} ${share(sums[state], all)}`));
    fill(legend, keys, el('span', { class: 'key' }, 'the paler, the more of others'));
  }

  /** Looks for the word of the search. */
  function find() {
    if (!tree || !values) {
      return;
    }
    matches = new Uint8Array(tree.names.length);
    if (search.value !== view.search) {
      search.value = view.search;
    }
    if (!view.search) {
      fill(found);
      return;
    }
    const test = tester(view.search);
    tree.names.forEach((name, at) => {
      matches[at] = Number(test(name));
    });
    const isBelow = new Uint8Array(tree.parent.length);
    let sum = 0;
    for (let at = 0; at < tree.parent.length; at += 1) {
      const parent = tree.parent[at];
      const below = parent >= 0 && (isBelow[parent] === 1 || matches[tree.name[parent]] === 1);
      isBelow[at] = Number(below);
      if (!below && matches[tree.name[at]] === 1) {
        sum += values.own[at];
      }
    }
    found.dataset.ns = String(sum);
    fill(found, `${duration(sum)}, ${share(sum, values.all)} match`);
  }

  /**
   * A name's test: a regular expression if it is one, or else part of the name.
   * @param {string} text
   * @returns {(name: string) => boolean}
   */
  function tester(text) {
    try {
      const pattern = new RegExp(text, 'i');
      return (name) => pattern.test(name);
    } catch {
      const part = text.toLowerCase();
      return (name) => name.toLowerCase().includes(part);
    }
  }

  function paint() {
    if (!tree || !values) {
      return;
    }
    const width = Math.max(320, wrap.clientWidth);
    boxes = laidOut(tree, values, zoom, width);
    const depth = boxes.reduce((most, box) => Math.max(most, box.y), 0) + 1;
    const height = Math.max(3, depth) * ROW + 2;
    const context = sized(canvas, width, height);
    context.font = '12px ui-monospace, "DejaVu Sans Mono", monospace';
    context.textBaseline = 'middle';
    const letter = context.measureText('m').width;
    const ink = themed('--frame-ink');
    const mixed = themed('--mixed');
    const hit = themed('--hit');
    if (values.all === 0) {
      context.fillStyle = themed('--faint');
      context.fillText(view.flame === 'chains' ? 'No chains.' : `${timeWords()}: none.`, 8, ROW);
    }
    for (const box of boxes) {
      const y = box.y * ROW;
      const inside = foldedInto(box.node);
      const name = (inside.length > 0 ? '⋯ ' : '') + nameOf(box.node);
      context.globalAlpha = box.node !== ROOT && isAbove(box.node) ? 0.55 : 1;
      context.fillStyle = box.node === ROOT ? mixed : colorOf(box.node, mixed);
      context.fillRect(box.x, y, Math.max(LEAST_WIDTH, box.width - 0.5), ROW - 1);
      if (view.search && [box.node, ...inside].some((at) => at !== ROOT && matches[/** @type {Tree} */ (tree).name[at]])) {
        context.fillStyle = hit;
        context.fillRect(box.x, y + ROW - 4, Math.max(LEAST_WIDTH, box.width - 0.5), 3);
      }
      const letters = Math.floor((box.width - 6) / letter);
      if (letters >= 3) {
        context.fillStyle = ink;
        context.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, box.x + 3, y + ROW / 2);
      }
      if (box.node === cursor && document.activeElement === canvas) {
        context.strokeStyle = themed('--ink');
        context.lineWidth = 1.5;
        context.strokeRect(box.x + 0.5, y + 0.5, Math.max(1, box.width - 1), ROW - 2);
      }
    }
    context.globalAlpha = 1;
    reset.disabled = zoom === ROOT;
  }

  /**
   * @param {number} at
   * @returns {string}
   */
  function nameOf(at) {
    return at === ROOT ? 'all' : /** @type {Tree} */ (tree).names[/** @type {Tree} */ (tree).name[at]];
  }

  /**
   * The frames that one stands for beside itself, the nearest first.
   * @param {number} at
   * @returns {number[]}
   */
  function foldedInto(at) {
    const inside = [];
    const { parent } = /** @type {Tree} */ (tree);
    for (let above = at; above !== ROOT && parent[above] !== ROOT && values?.folded[parent[above]] === above; above = parent[above]) {
      inside.push(parent[above]);
    }
    return inside;
  }

  /**
   * Time of one side in words: per request, or of all time where several types have no mean together.
   * @param {number} ns
   * @param {number} side
   * @returns {string}
   */
  function each(ns, side = 0) {
    return isMixed ? `${share(ns, counts[side])} of all time` : `${duration(ns / counts[side])} per request`;
  }

  /**
   * @param {number} at
   * @returns {boolean}
   */
  function isAbove(at) {
    for (let above = zoom === ROOT ? ROOT : /** @type {Tree} */ (tree).parent[zoom]; above !== ROOT; above = /** @type {Tree} */ (tree).parent[above]) {
      if (above === at) {
        return true;
      }
    }
    return false;
  }

  /**
   * @param {number} at
   * @param {string} mixed
   * @returns {string}
   */
  function colorOf(at, mixed) {
    const of = /** @type {Values} */ (values);
    if (view.flame === 'diff') {
      const [own, base] = [of.own[at] / counts[0], of.base[at] / counts[1]];
      // Twice as much is a light tint, and from 32 times as much on the colour is full.
      const part = base > 0 && own > 0 ? Math.log2(own / base) / 5 : Math.sign(own - base);
      const strength = Math.round(Math.min(1, Math.abs(part)) * 100);
      return `color-mix(in oklab, ${themed(part > 0 ? '--more' : '--less')} ${strength}%, ${mixed})`;
    }
    const state = of.state[at];
    if (state < 0) {
      return mixed;
    }
    const color = view.flame === 'chains' ? model.cause_colors[state] : model.states[state].color;
    return of.part[at] > 0.999 ? color : `color-mix(in oklab, ${color} ${Math.round(of.part[at] * 85)}%, ${mixed})`;
  }

  /** @param {number} at */
  function zoomTo(at) {
    zoom = at;
    cursor = at;
    hideTip();
    paint();
  }

  /**
   * @param {MouseEvent} event
   * @returns {Box | undefined}
   */
  function boxAt(event) {
    const { left, top } = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, Math.floor((event.clientY - top) / ROW)];
    return boxes.find((box) => box.y === y && x >= box.x && x < box.x + box.width);
  }

  canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
    const box = boxAt(event);
    if (!box || !tree || !values) {
      hideTip();
      return;
    }
    const [own, base] = box.node === ROOT ? [values.all, values.baseAll] : [values.own[box.node], values.base[box.node]];
    const inside = foldedInto(box.node);
    const state = box.node === ROOT ? -1 : values.state[box.node];
    const lines = [nameOf(box.node),
      `${duration(own)}, ${share(own, values.all)} of what is shown`];
    if (view.flame !== 'chains') {
      lines.push(each(own));
    }
    if (state >= 0 && view.flame !== 'diff') {
      lines.push(`${share(values.part[box.node], 1)} ${view.flame === 'chains' ? model.causes[state][1] : model.states[state].name}`);
    }
    if (view.flame === 'diff' && last) {
      lines.push(`${each(base, 1)} in ${last[2]}`);
    }
    if (inside.length > 0) {
      lines.push(`it stands for ${inside.length} more above it: ${inside.slice(0, 6).map(nameOf).join(' ← ')}${inside.length > 6 ? ' ← …' : ''}`);
    }
    showTip(event, lines);
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('click', (/** @type {MouseEvent} */ event) => {
    const box = boxAt(event);
    if (box) {
      zoomTo(box.node);
    }
  });
  canvas.addEventListener('focus', paint);
  canvas.addEventListener('blur', paint);
  canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    const at = boxes.findIndex((box) => box.node === cursor);
    const box = boxes[Math.max(0, at)];
    if (!box || !tree) {
      return;
    }
    const beside = boxes.filter((other) => other.y === box.y).sort((one, two) => one.x - two.x);
    const place = beside.indexOf(box);
    const widest = (/** @type {Box[]} */ some) => some.reduce((/** @type {Box | undefined} */ best, one) => (!best || one.width > best.width ? one : best), undefined);
    const next = {
      ArrowLeft: beside[place - 1],
      ArrowRight: beside[place + 1],
      ArrowUp: boxes.find((other) => other.y === box.y - 1 && other.x <= box.x && other.x + other.width >= box.x + box.width),
      ArrowDown: widest(boxes.filter((other) => other.y === box.y + 1 && other.x >= box.x - 0.01 && other.x < box.x + box.width)),
    }[event.key];
    if (next) {
      event.preventDefault();
      cursor = next.node;
      paint();
    } else if (event.key === 'Enter') {
      zoomTo(cursor);
    } else if (event.key === 'Escape' && zoom !== ROOT) {
      event.stopPropagation();
      zoomTo(ROOT);
    }
  });
  search.addEventListener('input', () => look({ search: search.value }));
  search.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      look({ search: '' });
      search.blur();
    }
  });
  new ResizeObserver(paint).observe(wrap);
  return { node, draw, focusSearch: () => search.focus(), nextTime };
}
