// The waterfall: bars that add up to the change of a mean in, a table whose numbers do so as they are shown out.

import { el, fill } from './dom.js';
import { duration } from './format.js';

/**
 * @typedef {import('./bootstrap.js').Estimate} Estimate
 * @typedef {{name: string, sides_ns: [number, number], change_ns: number, estimate: Estimate}} Bar
 * @typedef {{total_ns: [number, number], change_ns: number, bars: Bar[]}} Fall
 */

/**
 * Empty for what is more than noise, `~` for noise, `?` where that cannot be told.
 * @param {{is_clear: boolean | null}} estimate
 * @returns {string}
 */
export function markOf(estimate) {
  return estimate.is_clear === true ? '' : estimate.is_clear === false ? '~' : '?';
}

/**
 * @param {number} share
 * @returns {string}
 */
export function percentOf(share) {
  return `${share < 0 ? '−' : '+'}${Math.abs(share * 100).toFixed(1)} %`;
}

/**
 * A change with its sign.
 * @param {number} ns
 * @returns {string}
 */
export function signed(ns) {
  return `${ns < 0 ? '' : '+'}${duration(ns)}`;
}

/**
 * An interval of 95 %, if there is one.
 * @param {Estimate} estimate
 * @returns {string}
 */
export function intervalOf(estimate) {
  return estimate.interval ? `${signed(estimate.interval[0])} to ${signed(estimate.interval[1])}` : '';
}

/**
 * Rounds each `value / denominator` to a multiple of `quantum`, so that the results add up to the rounded sum (the largest
 * remainders are rounded up). Each differs from its value by less than one quantum.
 * @param {number[]} values whole numbers from 0 on
 * @param {number} denominator
 * @param {number} quantum
 * @returns {{total: number, parts: number[]}}
 */
export function addUp(values, denominator, quantum) {
  // Sums in nanoseconds times what they are shown in may be more than a number holds.
  const unit = BigInt(Math.max(1, denominator)) * BigInt(quantum);
  const whole = values.map(BigInt);
  const units = whole.map((value) => Number(value / unit));
  const sum = whole.reduce((all, value) => all + value, 0n);
  const total = Number((sum + unit / 2n) / unit);
  const missing = total - units.reduce((all, one) => all + one, 0);
  const left = whole.map((value) => Number(value % unit));
  const order = values.map((_, at) => at).sort((one, two) => left[two] - left[one]);
  order.slice(0, missing).forEach((at) => {
    units[at] += 1;
  });
  return { total: total * quantum, parts: units.map((one) => one * quantum) };
}

/**
 * A unit in which the largest of these has four digits: its name, its length, and the last digit's.
 * @param {number} largest ns
 * @returns {[string, number, number]}
 */
function unitOf(largest) {
  const [name, length] = /** @type {[string, number]} */ (largest < 1e4 ? ['ns', 1] : largest < 1e7 ? ['µs', 1e3] : largest < 1e10 ? ['ms', 1e6] : ['s', 1e9]);
  return [name, length, 10 ** Math.max(0, String(Math.max(1, Math.floor(largest))).length - 4)];
}

/**
 * Bars from A's mean to B's: each begins where the one before ends. Those in the noise are one, unless all are asked for.
 * @param {Fall} fall
 * @returns {HTMLElement}
 */
export function fallOf(fall) {
  const isNoise = (/** @type {Bar} */ bar) => bar.estimate.is_clear === false;
  const noise = fall.bars.filter(isNoise);
  let isOpen = noise.length < 2;
  const node = el('div', null);
  const draw = () => {
    const lines = fall.bars.filter((bar) => !isNoise(bar)).concat(isOpen ? noise : together(noise));
    const toggle = noise.length < 2 ? null : el('button', { type: 'button', class: 'quiet', 'data-noise': noise.length, 'aria-expanded': String(isOpen), onclick: () => {
      isOpen = !isOpen;
      draw();
    } }, isOpen ? 'Put what is noise together' : `Show the ${noise.length} in the noise`);
    fill(node, fallTable(fall, lines), toggle);
  };
  draw();
  return node;
}

/**
 * @param {Bar[]} noise
 * @returns {Bar}
 */
function together(noise) {
  const sum = (/** @type {(bar: Bar) => number} */ of) => noise.reduce((all, bar) => all + of(bar), 0);
  const change = sum((bar) => bar.change_ns);
  return {
    name: `${noise.length} in the noise`,
    sides_ns: [sum((bar) => bar.sides_ns[0]), sum((bar) => bar.sides_ns[1])],
    change_ns: change,
    estimate: { change, interval: null, p: null, is_clear: false },
  };
}

/**
 * @param {Fall} fall
 * @param {Bar[]} lines
 * @returns {HTMLElement}
 */
function fallTable(fall, lines) {
  let at = fall.total_ns[0];
  const ends = [at, ...lines.map((line) => {
    at += line.change_ns;
    return at;
  })];
  // The part of the scale in which something happens.
  const low = Math.min(...ends);
  const room = Math.max(1, Math.max(...ends) - low) * 1.1;
  const from = Math.max(0, low - room * 0.05);
  const place = (/** @type {number} */ ns) => `${(((ns - from) / room) * 100).toFixed(2)}%`;
  const [unit, length, quantum] = unitOf(Math.max(...fall.total_ns));
  const decimals = Math.max(0, Math.round(Math.log10(length / quantum)));
  const shown = (/** @type {number} */ ns) => (ns / length).toFixed(decimals);
  const [a, b] = [0, 1].map((side) => addUp(lines.map((line) => line.sides_ns[side]), 1, quantum));
  const row = (/** @type {string} */ name, /** @type {number[]} */ sides, /** @type {number} */ change, /** @type {Estimate | null} */ estimate, /** @type {number} */ start) => el('tr', {
    'data-name': name,
    'data-change': change,
    'data-mark': estimate ? markOf(estimate) : null,
    'data-interval': estimate?.interval?.join(' '),
    class: estimate?.is_clear === false ? 'noise' : null,
    title: estimate?.interval ? `${intervalOf(estimate)}, 95 %` : null,
  },
  el('th', { scope: 'row' }, name),
  sides.map((ns) => el('td', { class: 'num' }, shown(ns))),
  el('td', { class: 'num strong' }, `${sides[1] < sides[0] ? '−' : '+'}${shown(Math.abs(sides[1] - sides[0]))}`),
  el('td', { class: 'mark' }, estimate ? markOf(estimate) : ''),
  el('td', { class: 'bars' }, el('span', { class: 'fall' }, el('span', {
    style: {
      left: place(Math.min(start, start + change)),
      width: `max(2px, ${((Math.abs(change) / room) * 100).toFixed(2)}%)`,
      background: `var(${change > 0 ? '--more' : '--less'})`,
    },
  }))));
  return el('table', { class: 'waterfall' },
    el('thead', null, el('tr', null, [unit, 'A', 'B', 'change', '', 'from A to B'].map((name, index) => (
      el('th', { scope: 'col', class: index > 0 && index < 4 ? 'num' : null }, name))))),
    el('tbody', null, lines.map((line, index) => row(line.name, [a.parts[index], b.parts[index]], line.change_ns, line.estimate, ends[index]))),
    el('tfoot', null, row('= all', [a.total, b.total], fall.change_ns, null, fall.total_ns[0])));
}
