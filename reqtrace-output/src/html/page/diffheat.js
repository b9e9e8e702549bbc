// Two heatmaps on one scale: requests of both sides by time and latency in, two pictures out.

import { el, hideTip, showTip, sized, themed } from './dom.js';
import { duration, number, steps } from './format.js';

/**
 * Cells of one side: block of time, row of latency and requests, one after the other.
 * @typedef {{block_ns: number, blocks: number, cells: [number, number, number][]}} Heat
 */

const HEAT_LEFT = 64;
const HEAT_BOTTOM = 22;
const HEAT_HEIGHT = 210;

/**
 * Both pictures, and what redraws them.
 * @param {number[]} edges lower end of each row of latency, ns
 * @returns {{node: HTMLElement, draw: (sides: [Heat, Heat]) => void}}
 */
export function heatmaps(edges) {
  const pictures = ['A', 'B'].map((name) => {
    const canvas = el('canvas', { id: `heat-${name}`, role: 'img', 'aria-label': `Requests of ${name} by time and latency` });
    return { name, canvas, box: el('div', { class: 'heatmap' }, el('h3', null, name), canvas) };
  });
  const node = el('div', { class: 'two' }, pictures.map((picture) => picture.box));
  /** @type {[Heat, Heat] | null} */
  let shown = null;

  /** Rows, counts and lengths that both have. */
  function scale() {
    const sides = shown ?? [];
    let [low, high, most, length] = [Infinity, -Infinity, 1e-9, 1];
    for (const side of sides) {
      length = Math.max(length, side.blocks * side.block_ns);
      for (const [, row, count] of side.cells) {
        low = Math.min(low, row);
        high = Math.max(high, row);
        // A share of the requests of its time, so that sides of other lengths compare.
        most = Math.max(most, count / side.block_ns);
      }
    }
    return { low, high, most, length };
  }

  function paint() {
    if (!shown) {
      return;
    }
    const { low, high, most, length } = scale();
    const levels = [0, 1, 2, 3, 4, 5, 6, 7].map((level) => themed(`--heat-${level}`));
    pictures.forEach(({ canvas, box }, at) => {
      const side = /** @type {[Heat, Heat]} */ (shown)[at];
      const width = Math.max(320, box.clientWidth);
      const context = sized(canvas, width, HEAT_HEIGHT);
      const plot = width - HEAT_LEFT;
      const tall = HEAT_HEIGHT - HEAT_BOTTOM;
      const high1 = high - low + 1;
      context.fillStyle = themed('--plot');
      context.fillRect(HEAT_LEFT, 0, plot, tall);
      const wide = (side.block_ns / length) * plot;
      for (const [block, row, count] of side.cells) {
        const part = Math.log1p((count / side.block_ns / most) * 255) / Math.log(256);
        context.fillStyle = levels[Math.min(7, Math.floor(part * 7.999))];
        const y = tall - ((row - low + 1) / high1) * tall;
        context.fillRect(HEAT_LEFT + block * wide, y, Math.max(1, wide - 0.5), Math.max(1, tall / high1 - 0.5));
      }
      context.fillStyle = themed('--faint');
      context.font = '11px system-ui, sans-serif';
      context.textBaseline = 'middle';
      context.textAlign = 'right';
      for (let power = 0; power < 13; power += 1) {
        const row = edges.findIndex((edge) => edge > 10 ** power) - 1;
        if (row >= low && row <= high) {
          context.fillText(duration(10 ** power).replace(/\.00?/, ''), HEAT_LEFT - 8, Math.max(7, tall - ((row - low) / high1) * tall));
        }
      }
      context.textBaseline = 'top';
      context.textAlign = 'left';
      for (const second of steps(0, length / 1e9, Math.max(2, width / 110))) {
        context.fillText(`${Number(second.toPrecision(6))} s`, HEAT_LEFT + (second * 1e9 / length) * plot, tall + 6);
      }
    });
  }

  pictures.forEach(({ canvas, name }, at) => {
    canvas.addEventListener('pointerleave', hideTip);
    canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
      if (!shown) {
        return;
      }
      const { low, high, length } = scale();
      const side = shown[at];
      const { left, top, width } = canvas.getBoundingClientRect();
      const block = Math.floor(((event.clientX - left - HEAT_LEFT) / (width - HEAT_LEFT)) * (length / side.block_ns));
      const row = low + Math.floor((1 - (event.clientY - top) / (HEAT_HEIGHT - HEAT_BOTTOM)) * (high - low + 1));
      const cell = side.cells.find((one) => one[0] === block && one[1] === row);
      if (cell) {
        showTip(event, [`${name}, ${duration(edges[row])} to ${duration(edges[row + 1])}`, `${number(cell[2])} requests`]);
      } else {
        hideTip();
      }
    });
  });
  new ResizeObserver(paint).observe(node);
  return {
    node,
    draw: (sides) => {
      shown = sides;
      paint();
    },
  };
}
