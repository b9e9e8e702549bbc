// The head of the page: what was traced, how, what it cost, what was lost.

import { el } from './dom.js';
import { duration, number, rate, share } from './format.js';
import { look, view } from './state.js';

/** @typedef {import('./model.js').Model} Model */

/**
 * The head.
 * @param {Model} model
 * @returns {HTMLElement}
 */
export function header(model) {
  const { summary } = model;
  const { trace } = summary;
  const all = summary.requests.reduce((/** @type {number} */ sum, /** @type {any} */ type) => sum + type.count, 0);
  const processes = trace.processes.map((/** @type {{pid: number, name: string}} */ one) => `${one.name} (pid ${one.pid})`);
  const shown = processes.slice(0, 3).join(', ');
  const more = processes.length > 3 ? ` and ${number(processes.length - 3)} more` : '';
  const start = new Date(Number(BigInt(model.start_unix_ns) / 1000000n));
  return el('header', { class: 'head' },
    el('div', { class: 'head-line' },
      el('h1', null, el('span', { class: 'brand' }, 'reqtrace'), ` ${trace.profile}`),
      el('p', { class: 'what' },
        el('strong', null, number(all)), ` requests in ${duration(model.duration)}`,
        ` (${rate(all, model.duration)} per second) of ${shown}${more}`),
      themeButton()),
    el('p', { class: 'how' },
      `${start.toISOString().replace('T', ' ').slice(0, 19)} UTC · Linux ${trace.kernel} · reqtrace ${trace.reqtrace}`
      + ` · ended by ${trace.ended_by}`),
    ...summary.warnings.map((/** @type {string} */ text) => el('p', { class: 'warning', role: 'alert' }, `Warning: ${text}`)),
    ...verdict(summary),
    filterLine(summary),
    el('p', { class: 'how' }, costLine(model), ' ', incompleteLine(summary)),
    losses(summary),
    hints(summary),
    pageNotes(model));
}

/**
 * Why slow requests were slow, with the way to the numbers.
 * @param {any} summary
 * @returns {HTMLElement[]}
 */
function verdict(summary) {
  return (summary.verdict ?? []).map((/** @type {any} */ one) => {
    const isOwn = ['on_cpu', 'waits_for_cpu', 'queued'].includes(one.class);
    const show = () => document.getElementById(isOwn ? 'where' : 'held')?.scrollIntoView();
    return el('p', { class: 'verdict', 'data-class': one.class }, el('strong', null, 'Verdict: '), one.text, ' ',
      el('button', { type: 'button', class: 'quiet', onclick: show }, 'Show'));
  });
}

/** @returns {HTMLElement} */
function themeButton() {
  const isDark = () => view.theme === 'dark'
    || (view.theme === '' && matchMedia('(prefers-color-scheme: dark)').matches);
  return el('button', {
    type: 'button',
    class: 'quiet',
    title: 'Dark or light',
    onclick: () => look({ theme: isDark() ? 'light' : 'dark' }),
  }, 'Dark / light');
}

/**
 * @param {any} summary
 * @returns {HTMLElement | null}
 */
function filterLine(summary) {
  if (!summary.filter) {
    return null;
  }
  const { which, requests, left_out: leftOut } = summary.filter;
  return el('p', { class: 'how' }, `Only ${which}: ${number(requests)} requests; ${number(leftOut)} others are left out.`);
}

/**
 * What tracing took.
 * @param {Model} model
 * @returns {string}
 */
function costLine(model) {
  const { overhead } = model.summary.trace;
  if (!overhead) {
    return 'What tracing cost was not measured.';
  }
  const begins = model.summary.requests.reduce((/** @type {number} */ sum, /** @type {any} */ type) => sum + type.begins, 0);
  const between = [overhead.inside_least_ns, overhead.inside_most_ns];
  const range = (/** @type {(ns: number) => string} */ figure) => [...new Set(between.map(figure))].join(' to ');
  const each = begins > 0 ? `, ${range((ns) => duration(ns / begins))} a request` : '';
  const share = overhead.processes_ns > 0 ? `${range((ns) => (ns / overhead.processes_ns * 100).toFixed(1))} % of the processes’ CPU time` : range(duration);
  return `Tracing took ${share}${each}; reqtrace itself ${duration(overhead.tracer_ns)}.`;
}

/**
 * @param {any} summary
 * @returns {string}
 */
function incompleteLine(summary) {
  const reasons = new Map();
  for (const type of summary.requests) {
    for (const [reason, count] of Object.entries(type.incomplete)) {
      reasons.set(reason, (reasons.get(reason) ?? 0) + count);
    }
  }
  const words = [...reasons].map(([reason, count]) => `${number(count)} ${reason}`);
  return words.length > 0 ? `Incomplete requests are left out: ${words.join(', ')}.` : '';
}

/**
 * @param {any} summary
 * @returns {HTMLElement}
 */
function losses(summary) {
  const lost = summary.losses;
  if (lost.length === 0) {
    return el('p', { class: 'how', id: 'losses' }, 'Nothing was lost.');
  }
  const sentences = lost.map((/** @type {any} */ one) => ({ ...one, words: `${one.advice.startsWith('the ') ? '' : `${number(one.count)} `}${one.advice}.` }));
  const matters = sentences.filter((/** @type {any} */ { advice }) => !advice.endsWith('no matter'))
    .sort((/** @type {any} */ one, /** @type {any} */ two) => two.count - one.count);
  // The first words of an advice name what it is about.
  const first = matters.slice(0, 2).map((/** @type {any} */ { words }) => words.split(/[,;:.] |[,;:.]$/)[0]).join('; ');
  const more = matters.length > 2 ? `; and ${number(matters.length - 2)} more` : '';
  return el('details', { class: 'how', id: 'losses' },
    el('summary', null, first ? `Not all was kept: ${first}${more}` : 'Nothing that matters was lost'),
    el('ul', null, sentences.map((/** @type {any} */ { name, words }) => el('li', { title: name }, words))));
}

/**
 * @param {any} summary
 * @returns {HTMLElement | null}
 */
function hints(summary) {
  if (summary.hints.length === 0) {
    return null;
  }
  const few = summary.hints.length === 1 ? '1 hint' : `${summary.hints.length} hints`;
  return el('details', { class: 'how' }, el('summary', null, few),
    el('ul', null, summary.hints.map((/** @type {string} */ text) => el('li', null, text))));
}

/**
 * What this page does not have.
 * @param {Model} model
 * @returns {HTMLElement | null}
 */
function pageNotes(model) {
  const texts = [];
  if (!model.has_blame) {
    texts.push('Who held requests up is not known, and there are no timelines: the trace has no intervals.'
      + ' Trace with --html or --blame to record them.');
  }
  const requests = model.cells.count.reduce((sum, count) => sum + count, 0);
  if (!model.rows && requests > 0) {
    texts.push(`There are more than ${number(model.max_rows)} requests: below, cells of time and latency are exact,`
      + ` and only the ${number(model.slowest.length)} slowest requests are listed one by one.`);
  }
  const [stacks, statements, holdings] = model.merged;
  const merged = [[stacks, 'stacks are [other stacks]'], [statements, 'requests are of [other statements]'],
    [holdings, 'culprits are others']].filter(([count]) => Number(count) > 0);
  if (merged.length > 0) {
    texts.push(`Too many names for this page: ${merged.map(([count, what]) => `${number(Number(count))} ${what}`).join(', ')}.`
      + ' Their times are all here.');
  }
  const sampled = model.summary.requests.some((/** @type {any} */ type) => type.recorded < type.exact_count);
  if (sampled) {
    texts.push('Requests were sampled: counts and sums are estimates, each request counts as often as it stands for others.');
  }
  const inexact = model.summary.requests.filter((/** @type {any} */ type) => type.rows < type.recorded);
  for (const type of inexact) {
    texts.push(`Records of ${share(type.recorded - type.rows, type.recorded)} of the requests of ${type.name} were lost;`
      + ' they are in none of the pictures below.');
  }
  return texts.length > 0 ? el('div', { class: 'note' }, texts.map((text) => el('p', null, text))) : null;
}
