// What is looked at: kept in the address's hash, so that a view can be sent with the file.

/**
 * @typedef {object} View
 * @property {number} type request type; -1 for all
 * @property {[number, number, number, number] | null} box first and last column, lowest and highest row
 * @property {string} base what the selection is compared with: `typical` or `rest`
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
 * What a hash says. What makes no sense in it is left out.
 * @param {string} hash
 * @param {{types: number, columns: number, rows: number, first: number, hasSamples: boolean}} bounds `first`: the type without a hash
 * @returns {Partial<View>}
 */
export function readHash(hash, bounds) {
  const words = new URLSearchParams(hash.replace(/^#/, ''));
  const type = Number(words.get('type') ?? bounds.first);
  const box = (words.get('box') ?? '').split('.').map(Number);
  const [left, right, low, high] = box;
  const fits = box.length === 4 && box.every(Number.isInteger) && left >= 0 && left <= right
    && right < bounds.columns && low >= 0 && low <= high && high < bounds.rows;
  const one = (/** @type {string} */ word, /** @type {string[]} */ known) => (
    known.includes(words.get(word) ?? '') ? words.get(word) ?? known[0] : known[0]);
  return {
    type: Number.isInteger(type) && type >= -1 && type < bounds.types ? type : bounds.first,
    box: fits ? [left, right, low, high] : null,
    base: one('vs', ['typical', 'rest']),
    request: Math.max(0, Math.trunc(Number(words.get('request') ?? 0)) || 0),
    flame: one('flame', ['stacks', 'diff', 'chains']),
    time: bounds.hasSamples ? one('time', ['off', 'on', 'all']) : 'off',
    reversed: words.get('reversed') === '1',
    search: words.get('search') ?? '',
    theme: one('theme', ['', 'light', 'dark']),
  };
}
