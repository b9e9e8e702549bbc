// Tables of a comparison: rows in, a table that sorts by a click on a heading and shows what a search matches out.

import { el, fill } from './dom.js';

/**
 * A cell: what is shown, and what it is sorted by.
 * @typedef {{text: string, by: number | string}} Cell
 */

/**
 * @param {string} id
 * @param {string[]} names of columns; all but the last are numbers
 * @param {Cell[][]} rows
 * @param {string} leftOut what is not in it, in words
 * @returns {HTMLElement}
 */
export function sortedTable(id, names, rows, leftOut) {
  let column = 0;
  let isDown = true;
  const isText = (/** @type {number} */ at) => at === names.length - 1;
  const search = el('input', { type: 'search', class: 'right', placeholder: 'Search', 'aria-label': `Search ${id}`, spellcheck: 'false', oninput: () => draw() });
  const count = el('span', { class: 'hint', role: 'status' });
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
    const kept = rows.filter((row) => row.some((cell) => cell.text.toLowerCase().includes(wanted)));
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
    fill(count, `${kept.length} of ${rows.length}${leftOut}`);
  }

  draw();
  return el('div', null, el('div', { class: 'controls' }, count, search),
    el('div', { class: 'scroll' }, el('table', { id }, el('thead', null, el('tr', null, heads)), body)));
}
