// Numbers as text, as the report on the terminal has them: nanoseconds and counts in, words out.

/**
 * Digits in groups of three: `1,234,567`.
 * @param {number} value
 * @returns {string}
 */
export function number(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** @type {[string, number][]} */
const UNITS = [['ns', 1], ['µs', 1e3], ['ms', 1e6], ['s', 1e9]];

/**
 * A duration with three significant digits and the unit that fits: `846 ns`, `1.17 ms`.
 * @param {number} ns
 * @returns {string}
 */
export function duration(ns) {
  if (ns < 0) {
    return `−${duration(-ns)}`;
  }
  const fits = UNITS.find(([, scale]) => ns < scale * 1000 - (scale === 1 ? 0.5 : scale / 2));
  const [unit, scale] = fits ?? UNITS[UNITS.length - 1];
  if (scale === 1) {
    return `${Math.round(ns)} ns`;
  }
  const value = ns / scale;
  if (value < 9.995) {
    return `${value.toFixed(2)} ${unit}`;
  }
  return value < 99.95 ? `${value.toFixed(1)} ${unit}` : `${number(value)} ${unit}`;
}

/**
 * A share in percent with one decimal; what is there but rounds to nothing is `<0.1 %`.
 * @param {number} part
 * @param {number} whole
 * @returns {string}
 */
export function share(part, whole) {
  if (!(whole > 0) || part === 0) {
    return '0.0 %';
  }
  const percent = (part / whole) * 100;
  if (percent < 0) {
    return `−${share(-part, whole)}`;
  }
  return percent < 0.05 ? '<0.1 %' : `${percent.toFixed(1)} %`;
}

/**
 * A number per second.
 * @param {number} count
 * @param {number} ns
 * @returns {string}
 */
export function rate(count, ns) {
  const value = ns > 0 ? (count * 1e9) / ns : 0;
  return value >= 99.95 ? number(value) : value.toFixed(value >= 9.995 ? 1 : 2);
}

/**
 * Round steps between two values, for an axis.
 * @param {number} from
 * @param {number} to
 * @param {number} most how many at most
 * @returns {number[]}
 */
export function steps(from, to, most) {
  const rough = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough > 0 ? rough : 1));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough) ?? power * 10;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-9; at += step) {
    ticks.push(at);
  }
  return ticks;
}

/** Milliseconds between the ticks of a clock. */
const CLOCK = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400].map((s) => s * 1000)];

/**
 * Round times of day between two moments, in milliseconds since the epoch, and how many letters of `00:00:00.000` tell them apart.
 * @param {number} from
 * @param {number} to
 * @param {number} most how many at most
 * @returns {{ticks: number[], letters: number}}
 */
export function clockSteps(from, to, most) {
  const step = CLOCK.find((size) => size >= (to - from) / most) ?? 86400000;
  const first = Math.ceil(from / step) * step;
  return { ticks: Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, at) => first + at * step), letters: step < 1000 ? 12 : 8 };
}
