// What is looked at: kept in the address's hash, so that a view can be sent with the file.

/**
 * First and last column, lowest and highest row.
 * @typedef {[number, number, number, number]} Box
 *
 * @typedef {object} View
 * @property {number} type request type; -1 for all
 * @property {Box | null} box
 * @property {string} base what the selection is compared with: `typical`, `rest` or `kept`
 * @property {number[] | null} kept the selection that is kept as A: its type, and its box if it has one
 * @property {number} request id of the request whose timeline is shown; 0 for none
 * @property {string} flame `stacks`, `diff` or `chains`
 * @property {string} time whose stacks a flame graph has: `off` the CPU, `on` it, or `all`
 * @property {boolean} reversed
 * @property {string} search
 * @property {string} theme `light`, `dark` or empty for the system's
 */

/** @type {View} */
export const view = {
  type: -1,
  box: null,
  base: 'typical',
  kept: null,
  request: 0,
  flame: 'stacks',
  time: 'off',
  reversed: false,
  search: '',
  theme: '',
};

/** @type {((changed: Set<string>) => void)[]} */
const watchers = [];

/**
 * Is told of each change, with the names of what has changed.
 * @param {(changed: Set<string>) => void} watcher
 */
export function watch(watcher) {
  watchers.push(watcher);
}

/**
 * Changes the view.
 * @param {Partial<View>} change
 */
export function look(change) {
  const changed = new Set(Object.entries(change)
    .filter(([name, value]) => String(value) !== String(/** @type {any} */ (view)[name]))
    .map(([name]) => name));
  if (changed.size === 0) {
    return;
  }
  Object.assign(view, change);
  const hash = written();
  if (location.hash.slice(1) !== hash) {
    history.replaceState(null, '', `#${hash}`);
  }
  watchers.forEach((watcher) => watcher(changed));
}

/** @returns {string} */
function written() {
  const words = new URLSearchParams();
  words.set('type', String(view.type));
  if (view.box) {
    words.set('box', view.box.join('.'));
  }
  words.set('vs', view.base);
  if (view.kept) {
    words.set('a', view.kept.join('.'));
  }
  if (view.request) {
    words.set('request', String(view.request));
  }
  words.set('flame', view.flame);
  words.set('time', view.time);
  if (view.reversed) {
    words.set('reversed', '1');
  }
  if (view.search) {
    words.set('search', view.search);
  }
  if (view.theme) {
    words.set('theme', view.theme);
  }
  return words.toString();
}

/**
 * The selection that is kept as A.
 * @returns {{type: number, box: Box | null} | null}
 */
export function keptSelection() {
  if (!view.kept) {
    return null;
  }
  const [type, ...box] = view.kept;
  return { type, box: box.length > 0 ? /** @type {Box} */ (box) : null };
}

/** Keeps what is selected as A. */
export function keepSelection() {
  look({ kept: [view.type, ...(view.box ?? [])], base: 'kept' });
}

/** Forgets A. */
export function dropKept() {
  look({ kept: null, base: view.base === 'kept' ? 'typical' : view.base });
}

/**
 * What a hash says. What makes no sense in it is left out.
 * @param {string} hash
 * @param {{types: number, columns: number, rows: number, first: number, hasSamples: boolean}} bounds `first`: the type without a hash
 * @returns {Partial<View>}
 */
export function readHash(hash, bounds) {
  const words = new URLSearchParams(hash.replace(/^#/, ''));
  const type = Number(words.get('type') ?? bounds.first);
  const numbers = (/** @type {string} */ word) => (words.get(word) ?? '').split('.').map(Number);
  const box = numbers('box');
  const kept = numbers('a');
  const isType = (/** @type {number} */ one) => Number.isInteger(one) && one >= -1 && one < bounds.types;
  const fits = ([left, right, low, high, ...more] = box) => more.length === 0 && [left, right, low, high].every(Number.isInteger)
    && left >= 0 && left <= right && right < bounds.columns && low >= 0 && low <= high && high < bounds.rows;
  const hasKept = words.has('a') && isType(kept[0]) && (kept.length === 1 || fits(kept.slice(1)));
  const one = (/** @type {string} */ word, /** @type {string[]} */ known) => (
    known.includes(words.get(word) ?? '') ? words.get(word) ?? known[0] : known[0]);
  return {
    type: isType(type) ? type : bounds.first,
    box: fits() ? /** @type {Box} */ (box) : null,
    base: one('vs', hasKept ? ['typical', 'rest', 'kept'] : ['typical', 'rest']),
    kept: hasKept ? kept : null,
    request: Math.max(0, Math.trunc(Number(words.get('request') ?? 0)) || 0),
    flame: one('flame', ['stacks', 'diff', 'chains']),
    time: bounds.hasSamples ? one('time', ['off', 'on', 'all']) : 'off',
    reversed: words.get('reversed') === '1',
    search: words.get('search') ?? '',
    theme: one('theme', ['', 'light', 'dark']),
  };
}
