// Tables of a comparison: rows in, a table that sorts by a click on a heading and shows what a search matches out.

import { el, fill } from './dom.js';
import { duration, number } from './format.js';
import { markOf, signed } from './fall.js';

/**
 * A cell: what is shown, and what it is sorted by.
 * @typedef {{text: string, by: number | string}} Cell
 */

/** What `changeCells` makes. */
export const CHANGE_COLUMNS = ['change a request', 'A', 'B', 'became', '~', 'name'];

/**
 * What rows of all kinds have: their change, both sides, what became of them, noise or not, and a name.
 * @param {import('./fall.js').Estimate} estimate
 * @param {[number, number]} totals
 * @param {[number, number]} sides
 * @param {string} name
 * @returns {Cell[]}
 */
export function changeCells(estimate, totals, sides, name) {
  const became = totals[0] === 0 ? 'new' : totals[1] === 0 ? 'gone' : estimate.change >= 0 ? 'grown' : 'shrunk';
  return [
    { text: signed(estimate.change), by: estimate.change },
    { text: duration(sides[0]), by: sides[0] },
    { text: duration(sides[1]), by: sides[1] },
    { text: became, by: became },
    { text: markOf(estimate), by: estimate.p ?? 1 },
    { text: name, by: name },
  ];
}

/**
 * What a table does not have, in words.
 * @param {{noise: number, small: number}} rows
 * @returns {string}
 */
export function leftOutOf(rows) {
  return (rows.noise > 0 ? `, and ${number(rows.noise)} in the noise` : '') + (rows.small > 0 ? `, and ${number(rows.small)} small ones` : '');
}

/**
 * @param {string} id
 * @param {string[]} names of columns; all but the last are numbers
 * @param {Cell[][]} rows
 * @param {string} leftOut what is not in it, in words
 * @param {Cell[][]} noise rows that are shown when they are asked for
 * @returns {HTMLElement}
 */
export function sortedTable(id, names, rows, leftOut, noise = []) {
  let column = 0;
  let isDown = true;
  let hasNoise = false;
  const isText = (/** @type {number} */ at) => at === names.length - 1;
  const search = el('input', { type: 'search', class: 'right', placeholder: 'Search', 'aria-label': `Search ${id}`, spellcheck: 'false', oninput: () => draw() });
  const count = el('span', { class: 'hint', role: 'status' });
  const more = noise.length === 0 ? null : el('button', { type: 'button', class: 'quiet', 'data-noise': noise.length, 'aria-pressed': 'false', onclick: () => {
    hasNoise = !hasNoise;
    more.setAttribute('aria-pressed', String(hasNoise));
    draw();
  } }, `Show noise (${number(noise.length)})`);
  const body = el('tbody', null);
  const heads = names.map((name, at) => el('th', { scope: 'col', class: isText(at) ? null : 'num' },
    el('button', { type: 'button', class: 'link', onclick: () => sortBy(at) }, name)));

  /** @param {number} at */
  function sortBy(at) {
    isDown = column === at ? !isDown : !isText(at);
    column = at;
    draw();
  }

  function draw() {
    const wanted = search.value.toLowerCase();
    const all = hasNoise ? rows.concat(noise) : rows;
    const kept = all.filter((row) => row.some((cell) => cell.text.toLowerCase().includes(wanted)));
    const sign = isDown ? -1 : 1;
    kept.sort((one, two) => {
      const [a, b] = [one[column].by, two[column].by];
      // Changes are sorted by their size.
      const order = typeof a === 'number' && typeof b === 'number' ? Math.abs(a) - Math.abs(b) : String(a) < String(b) ? -1 : 1;
      return order * sign;
    });
    heads.forEach((head, at) => head.setAttribute('aria-sort', at !== column ? 'none' : isDown ? 'descending' : 'ascending'));
    fill(body, kept.map((row) => el('tr', null, row.map((cell, at) => (
      el('td', { class: isText(at) ? 'label' : 'num', title: isText(at) ? cell.text : null }, cell.text))))));
    fill(count, `${number(kept.length)} of ${number(all.length)}${leftOut}`);
  }

  draw();
  return el('div', null, el('div', { class: 'controls' }, count, more, search),
    el('div', { class: 'wrap' }, el('table', { id }, el('thead', null, el('tr', null, heads)), body)));
}
