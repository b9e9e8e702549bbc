// The heatmap: requests by the time of their begin and by latency. A drag selects.

import { hideTip, el, fill, pic, showTip, sized, themed } from './dom.js';
import { clockSteps, duration, number } from './format.js';
import { holderOf, timeOfDay } from './model.js';
import { keptSelection, look, view } from './state.js';

/** @typedef {import('./model.js').Model} Model */
/** @typedef {import('./state.js').Box} Box */

const MAP_LEFT = 64;
const MAP_BOTTOM = 24;
const MAP_TOP = 6;
const MAP_HEIGHT = 250;
/** The square of a letter. */
const LETTER = 15;
/** Those that held requests up, and the height of each one's lane. */
const HOLDERS = 3;
const HOLD_HEIGHT = 34;

/**
 * The picture, and what redraws it.
 * @param {Model} model
 * @param {() => void} open opens the slowest request of the selection
 * @returns {{node: HTMLElement, draw: (cells: number[]) => void}}
 */
export function heatmap(model, open) {
  const canvas = el('canvas', {
    tabindex: '0',
    role: 'img',
    id: 'heatmap-picture',
    'aria-label': 'Requests by time and latency. Arrows move, Shift with arrows selects, Enter opens the slowest, Escape clears.',
  });
  const lanes = pic('svg', { id: 'holds', class: 'holds', role: 'img', 'aria-label': 'When each of those that held requests up most did so' });
  const node = el('div', { class: 'heatmap' }, canvas, lanes);
  /** @type {number[]} */
  let cells = [];
  /** @type {Map<number, number>} */
  let counts = new Map();
  let width = 0;
  let drawnHolds = '';
  let lowest = 0;
  let highest = 0;
  /** @type {[number, number] | null} */
  let dragFrom = null;
  /** @type {Box | null} */
  let dragged = null;
  let along = '';
  /** @type {[number, number] | null} */
  let cursor = null;

  const columnWidth = () => (width - MAP_LEFT) / model.columns;
  const rowHeight = () => (MAP_HEIGHT - MAP_BOTTOM - MAP_TOP) / (highest - lowest + 1);
  const xOf = (/** @type {number} */ column) => MAP_LEFT + column * columnWidth();
  const yOf = (/** @type {number} */ row) => MAP_HEIGHT - MAP_BOTTOM - (row - lowest) * rowHeight();
  const columnAt = (/** @type {number} */ x) => (
    Math.min(model.columns - 1, Math.max(0, Math.floor((x - MAP_LEFT) / columnWidth()))));
  const rowAt = (/** @type {number} */ y) => (
    Math.min(highest, Math.max(lowest, lowest + Math.floor((MAP_HEIGHT - MAP_BOTTOM - y) / rowHeight()))));

  /** @param {number[]} wanted */
  function draw(wanted) {
    cells = wanted;
    counts = new Map();
    lowest = model.latencyRows;
    highest = 0;
    for (const cell of cells) {
      const row = model.cells.row[cell];
      const key = model.cells.column[cell] * model.latencyRows + row;
      counts.set(key, (counts.get(key) ?? 0) + model.cells.count[cell]);
      lowest = Math.min(lowest, row);
      highest = Math.max(highest, row);
    }
    if (cells.length === 0) {
      lowest = 0;
    }
    paint();
    drawHolds();
  }

  /** Those that held requests up most, each with when the requests began that it held up. */
  function drawHolds() {
    if (drawnHolds === `${view.type} ${width}`) {
      return;
    }
    drawnHolds = `${view.type} ${width}`;
    const of = new Float64Array(model.holdings.length);
    /** @param {(holding: number, ns: number, column: number) => void} take */
    const each = (take) => cells.forEach((cell) => {
      for (let at = model.holdingAt[cell]; at < model.holdingAt[cell + 1]; at += 1) {
        take(model.cells.holding[at], model.cells.holding_ns[at], model.cells.column[cell]);
      }
    });
    each((holding, ns) => {
      of[holding] += ns;
    });
    /** @type {Map<string, {words: string, cause: number, all: number, of: Map<number, number>}>} */
    const sums = new Map();
    const lines = model.holdings.map(({ kind }, at) => {
      // Of nobody known, and of its own waits, there is nothing to show.
      if (of[at] === 0 || !['request', 'thread', 'peer'].includes(kind)) {
        return null;
      }
      const { key, who, cause } = holderOf(model, at);
      const sum = sums.get(key) ?? { words: `${who} (${model.causes[cause][1]})`, cause, all: 0, of: new Map() };
      sum.all += of[at];
      sums.set(key, sum);
      return sum;
    });
    const shown = [...sums.values()].sort((one, two) => two.all - one.all).slice(0, HOLDERS);
    each((holding, ns, column) => {
      const line = lines[holding];
      if (line && shown.includes(line)) {
        line.of.set(column, (line.of.get(column) ?? 0) + ns);
      }
    });
    fill(lanes, shown.flatMap(({ words, cause, all, of: columns }, lane) => {
      const y = lane * HOLD_HEIGHT;
      const most = Math.max(...columns.values());
      return [pic('text', { x: MAP_LEFT, y: y + 16 }, `Held up by ${words}, ${duration(all)} together`),
        pic('rect', { class: 'track', x: MAP_LEFT, y: y + 21, width: width - MAP_LEFT, height: 8 }),
        ...[...columns].map(([column, ns]) => pic('rect', { class: 'hold', x: xOf(column), y: y + 21, width: Math.max(2, columnWidth()), height: 8,
          fill: model.cause_colors[cause], opacity: 0.3 + (0.7 * ns) / most }, pic('title', null, `${duration(ns)} of requests begun at ${timeOfDay(model, column * model.column_ns)}`)))];
    }));
    lanes.setAttribute('width', String(width));
    lanes.setAttribute('height', String(shown.length * HOLD_HEIGHT));
  }

  function paint() {
    width = Math.max(320, node.clientWidth);
    const context = sized(canvas, width, MAP_HEIGHT);
    const box = dragged ?? view.box;
    const kept = keptSelection();
    const isIn = (/** @type {Box | null} */ within, /** @type {number} */ column, /** @type {number} */ row) => (
      !within || (column >= within[0] && column <= within[1] && row >= within[2] && row <= within[3]));
    context.fillStyle = themed('--plot');
    context.fillRect(MAP_LEFT, MAP_TOP, width - MAP_LEFT, MAP_HEIGHT - MAP_BOTTOM - MAP_TOP);
    const most = Math.log1p(Math.max(1, ...counts.values()));
    const levels = [0, 1, 2, 3, 4, 5, 6, 7].map((level) => themed(`--heat-${level}`));
    for (const [key, count] of counts) {
      const row = key % model.latencyRows;
      const column = (key - row) / model.latencyRows;
      context.globalAlpha = isIn(box, column, row) || (kept && isIn(kept.box, column, row)) ? 1 : 0.28;
      context.fillStyle = levels[Math.min(7, Math.floor((Math.log1p(count) / most) * 7.999))];
      const x = xOf(column);
      const y = yOf(row + 1);
      context.fillRect(x, y, Math.max(1, xOf(column + 1) - x - 0.5), Math.max(1, yOf(row) - y - 0.5));
    }
    context.globalAlpha = 1;
    axes(context);
    if (kept) {
      context.setLineDash([5, 3]);
      outline(context, kept.box ?? [0, model.columns - 1, lowest, highest], themed('--kept'), 1.5, 'A');
      context.setLineDash([]);
    }
    if (box) {
      outline(context, box, themed('--accent'), 1.5, kept && view.base === 'kept' ? 'B' : '');
    }
    if (cursor && document.activeElement === canvas) {
      outline(context, [cursor[0], cursor[0], cursor[1], cursor[1]], themed('--ink'), 1);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Box} box
   * @param {string} color
   * @param {number} line
   * @param {string} letter
   */
  function outline(context, box, color, line, letter = '') {
    const within = (/** @type {number} */ row) => Math.min(highest + 1, Math.max(lowest, row));
    const [x, y] = [xOf(box[0]), yOf(within(box[3] + 1))];
    context.strokeStyle = color;
    context.lineWidth = line;
    context.strokeRect(x - 0.5, y - 0.5, xOf(box[1] + 1) - x, yOf(within(box[2])) - y);
    if (letter) {
      // A's is at the left, B's at the right: they may have the same corners.
      const at = letter === 'A' ? x : xOf(box[1] + 1) - LETTER - 1;
      context.fillStyle = color;
      context.fillRect(at - 0.5, y - 0.5, LETTER, LETTER);
      context.fillStyle = themed('--card');
      context.font = 'bold 11px system-ui, sans-serif';
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText(letter, at + LETTER / 2 - 0.5, y + LETTER / 2);
    }
  }

  /** @param {CanvasRenderingContext2D} context */
  function axes(context) {
    context.fillStyle = themed('--faint');
    context.strokeStyle = themed('--line');
    context.lineWidth = 1;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (let power = 0; power < 13; power += 1) {
      const ns = 10 ** power;
      const row = model.edges_ns.findIndex((edge) => edge > ns) - 1;
      if (row >= lowest && row <= highest) {
        const edges = model.edges_ns;
        const y = yOf(row + (ns - edges[row]) / (edges[row + 1] - edges[row]));
        context.fillText(duration(ns).replace(/\.00?/, ''), MAP_LEFT - 8, y);
        context.globalAlpha = 0.5;
        context.beginPath();
        context.moveTo(MAP_LEFT, Math.round(y) + 0.5);
        context.lineTo(width, Math.round(y) + 0.5);
        context.stroke();
        context.globalAlpha = 1;
      }
    }
    context.textBaseline = 'top';
    const until = (model.columns * model.column_ns) / 1e6;
    const start = Number(BigInt(model.start_unix_ns) / 1000n) / 1000;
    const { ticks, letters } = clockSteps(start, start + until, Math.max(2, width / 110));
    for (const tick of ticks) {
      const x = MAP_LEFT + ((tick - start) / until) * (width - MAP_LEFT);
      if (x < width - 4 * letters) {
        context.textAlign = 'center';
        context.fillText(new Date(tick).toISOString().slice(11, 11 + letters), x, MAP_HEIGHT - MAP_BOTTOM + 8);
      }
    }
  }

  /**
   * @param {[number, number]} one
   * @param {[number, number]} other
   * @returns {Box}
   */
  function boxOf(one, other) {
    return [Math.min(one[0], other[0]), Math.max(one[0], other[0]), Math.min(one[1], other[1]), Math.max(one[1], other[1])];
  }

  /**
   * A drag along an axis is over all of the other one.
   * @param {[number, number]} to
   */
  function draggedTo(to) {
    const box = boxOf(dragFrom ?? to, to);
    dragged = along === 'time' ? [box[0], box[1], 0, model.latencyRows - 1] : along === 'latency' ? [0, model.columns - 1, box[2], box[3]] : box;
  }

  /**
   * @param {PointerEvent} event
   * @returns {[number, number]}
   */
  const placeOf = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [columnAt(event.clientX - left), rowAt(event.clientY - top)];
  };

  canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ event) => {
    if (event.button === 0 && cells.length > 0) {
      const { left, top } = canvas.getBoundingClientRect();
      along = event.clientY - top > MAP_HEIGHT - MAP_BOTTOM ? 'time' : event.clientX - left < MAP_LEFT ? 'latency' : '';
      dragFrom = placeOf(event);
      cursor = null;
      draggedTo(dragFrom);
      canvas.setPointerCapture(event.pointerId);
      hideTip();
      paint();
    }
  });
  canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
    if (dragFrom) {
      draggedTo(placeOf(event));
      paint();
    } else if (cells.length > 0) {
      tip(event, placeOf(event));
    }
  });
  canvas.addEventListener('pointerup', () => {
    const box = dragged;
    dragFrom = null;
    dragged = null;
    if (box) {
      const isEmpty = ![...counts.keys()].some((key) => {
        const row = key % model.latencyRows;
        const column = (key - row) / model.latencyRows;
        return column >= box[0] && column <= box[1] && row >= box[2] && row <= box[3];
      });
      look({ box: isEmpty ? null : box });
      paint();
    }
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('focus', paint);
  canvas.addEventListener('blur', paint);
  canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    const [right, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [0, 0];
    if (right === 0 && up === 0) {
      if (event.key === 'Enter') {
        open();
      }
      return;
    }
    event.preventDefault();
    const box = view.box;
    if (event.shiftKey && box) {
      look({ box: grown(box, right, up) });
      return;
    }
    const from = cursor ?? (box ? [box[0], box[3]] : [0, highest]);
    const column = Math.min(model.columns - 1, Math.max(0, from[0] + right));
    const row = Math.min(highest, Math.max(lowest, from[1] + up));
    cursor = [column, row];
    look({ box: [column, column, row, row] });
    paint();
  });

  /**
   * A box with its right or its upper edge moved.
   * @param {Box} box
   * @param {number} right
   * @param {number} up
   * @returns {Box}
   */
  function grown(box, right, up) {
    const [left, last, low, high] = box;
    return [left, Math.min(model.columns - 1, Math.max(left, last + right)), low, Math.min(highest, Math.max(low, high + up))];
  }

  /**
   * @param {PointerEvent} event
   * @param {[number, number]} place
   */
  function tip(event, [column, row]) {
    const count = counts.get(column * model.latencyRows + row) ?? 0;
    showTip(event, [
      `${number(count)} ${count === 1 ? 'request' : 'requests'}`,
      `of ${duration(model.edges_ns[row])} to ${duration(model.edges_ns[row + 1])}`,
      `begun at ${timeOfDay(model, column * model.column_ns)} to ${timeOfDay(model, (column + 1) * model.column_ns)}`,
    ]);
  }

  new ResizeObserver(() => {
    paint();
    drawHolds();
  }).observe(node);
  return { node, draw };
}
