// Two selections against each other: their cells in; what changed from the first to the second, and what of that is noise, out.
//
// The mean latency of a selection is the sum of the means of its parts, as a ledger closes, so changes add up. Which of them are
// more than noise is found by drawing blocks of time: the columns of the picture, so many together that they have a second.
// Selections that are of the same time are drawn together.

import { LEAST_BLOCKS, drawn, drawnMeans, judgeOf, markClear, runLength } from './bootstrap.js';
import { addUp } from './fall.js';
import { LOST, ON_CPU, PREEMPTED, RUN_QUEUE, holderOf } from './model.js';
import { eachState } from './sums.js';

/**
 * @typedef {import('./model.js').Model} Model
 * @typedef {import('./bootstrap.js').Estimate} Estimate
 * @typedef {import('./fall.js').Bar} Bar
 * @typedef {import('./fall.js').Fall} Fall
 *
 * A selection: its name, its cells and the columns of time that it is of, in order.
 * @typedef {{name: string, cells: number[], columns: number[]}} Chosen
 *
 * A row: nanoseconds of both sides a request, and what it changed by.
 * @typedef {{name: string, totals: [number, number], sides: [number, number], estimate: Estimate}} ChangedRow
 *
 * @typedef {object} Against
 * @property {[string, string]} names
 * @property {[number, number]} count
 * @property {[number, number]} mean ns
 * @property {Estimate} change of the mean
 * @property {Fall} parts by state
 * @property {Fall | null} causes by root cause; null when the trace has none
 * @property {(Estimate | undefined)[]} ofState
 * @property {(Estimate | undefined)[]} ofCause blocked and parked time
 * @property {{rows: ChangedRow[], small: number}} held
 * @property {{rows: ChangedRow[], small: number}} statements
 * @property {string | null} lacking why noise cannot be told from change
 * @property {string} how what was drawn
 */

/** The shortest block. */
const SECOND = 1e9;
/** Rows below this share of the mean are small on both sides, and left out. */
const SMALL = 0.005;
/** Time of a request itself that is of no root cause. */
const OWN = ['on CPU', 'run queue', 'preempted', 'queued'];

/**
 * Where the times of cells go: the latency, then states, root causes, holders and statements.
 * @param {Model} model
 * @param {boolean} hasRows whether holders and statements are wanted
 */
function placesOf(model, hasRows) {
  const firstState = 1;
  const firstCause = firstState + model.states.length;
  const firstHolder = firstCause + (model.has_blame ? OWN.length + model.causes.length : 0);
  /** @type {Map<string, number>} */
  const numbers = new Map();
  /** @type {string[]} */
  const holders = [];
  const holderAt = (hasRows ? model.holdings : []).map((_, at) => {
    const { key, who, cause } = holderOf(model, at);
    if (!numbers.has(key)) {
      numbers.set(key, holders.length);
      holders.push([who, model.causes[cause][1]].filter((word) => word !== '').join(': '));
    }
    return firstHolder + (numbers.get(key) ?? 0);
  });
  const firstStatement = firstHolder + holders.length;
  const statements = hasRows && model.statements.length > 2 ? model.statements.map((name) => name || '(no label)') : [];
  const causes = model.has_blame ? OWN.concat(model.causes.map(([, words]) => `blocked: ${words}`)) : [];
  const names = ['latency', ...model.states.map((state) => state.name), ...causes, ...holders, ...statements];
  const unknown = firstCause + OWN.length + model.causes.findIndex(([name]) => name === 'unknown');

  /**
   * @param {number} cell
   * @param {(place: number, ns: number) => void} add
   */
  function each(cell, add) {
    const of = model.cells;
    add(0, of.latency[cell]);
    let heldUp = 0;
    eachState(model, cell, (state, ns) => {
      add(firstState + state, ns);
      if (!model.has_blame) {
        return;
      }
      const own = [ON_CPU, RUN_QUEUE, PREEMPTED].indexOf(state);
      if (own >= 0 || state >= model.firstQueued) {
        add(firstCause + (own >= 0 ? own : OWN.length - 1), ns);
      } else if (state >= LOST) {
        heldUp += ns;
      }
    });
    if (model.has_blame) {
      const kinds = model.causes.length;
      for (let kind = 0; kind < kinds; kind += 1) {
        const ns = of.causes[cell * kinds + kind];
        add(firstCause + OWN.length + kind, ns);
        heldUp -= ns;
      }
      add(unknown, Math.max(0, heldUp));
    }
    for (let at = model.holdingAt[cell]; holders.length > 0 && at < model.holdingAt[cell + 1]; at += 1) {
      add(holderAt[of.holding[at]], of.holding_ns[at]);
    }
    for (let at = model.statementAt[cell]; statements.length > 0 && at < model.statementAt[cell + 1]; at += 1) {
      add(firstStatement + of.statement[at], of.statement_sums[at * 5 + 1]);
    }
  }

  return { names, each, firstState, firstCause, firstHolder, firstStatement };
}

/**
 * Puts columns together to blocks of a second at least; what is left is part of the last one.
 * @param {Model} model
 * @param {number[]} columns
 * @returns {{blockOf: Int32Array, count: number, length: number}} the block of each column; -1 for columns of none
 */
function blocksOf(model, columns) {
  const together = Math.max(1, Math.ceil(SECOND / model.column_ns));
  // The last column of the trace is cut off where the trace ends.
  const missing = columns[columns.length - 1] === model.columns - 1 ? Math.max(0, model.columns * model.column_ns - model.duration) : 0;
  const length = together * model.column_ns;
  const count = Math.max(1, Math.floor((columns.length * model.column_ns - missing) / length));
  const blockOf = new Int32Array(model.columns).fill(-1);
  columns.forEach((column, at) => {
    blockOf[column] = Math.min(count - 1, Math.floor(at / together));
  });
  return { blockOf, count, length };
}

/**
 * Compares; null when a side has no request.
 * @param {Model} model
 * @param {Chosen} base the first side
 * @param {Chosen} own the second side
 * @param {boolean} hasRows whether holders and statements are wanted
 * @returns {Against | null}
 */
export function against(model, base, own, hasRows) {
  const sides = [base, own];
  const places = placesOf(model, hasRows);
  const totals = sides.map((side) => {
    const sums = new Float64Array(places.names.length);
    side.cells.forEach((cell) => places.each(cell, (place, ns) => {
      sums[place] += ns;
    }));
    return sums;
  });
  const counts = sides.map((side) => side.cells.reduce((sum, cell) => sum + model.cells.count[cell], 0));
  if (counts.includes(0)) {
    return null;
  }
  const meanOf = (/** @type {number} */ side, /** @type {number} */ place) => totals[side][place] / counts[side];
  const isSmall = (/** @type {number} */ place) => [0, 1].every((side) => meanOf(side, place) < meanOf(side, 0) * SMALL);
  const kept = places.names.flatMap((_, place) => {
    const isThere = totals.some((sums) => sums[place] > 0);
    return isThere && (place < places.firstHolder || !isSmall(place)) ? [place] : [];
  });
  const { estimates, lacking, how } = estimated(model, sides, places, kept, meanOf);
  const at = new Map(kept.map((place, index) => [place, estimates[index]]));
  const between = (/** @type {number} */ from, /** @type {number} */ to) => kept.filter((place) => place >= from && place < to);
  markClear(estimates.filter((_, index) => kept[index] === 0));
  markClear(between(places.firstState, places.firstHolder).map((place) => /** @type {Estimate} */ (at.get(place))));

  /**
   * @param {number} from
   * @param {number} to
   * @returns {Fall}
   */
  function fall(from, to) {
    const rounded = [0, 1].map((side) => addUp(Array.from(totals[side].subarray(from, to)), counts[side], 1));
    const bars = between(from, to).map((place) => {
      const [a, b] = rounded.map((side) => side.parts[place - from]);
      return /** @type {Bar} */ ({ name: places.names[place], sides_ns: [a, b], change_ns: b - a, estimate: at.get(place) });
    });
    bars.sort((one, two) => Math.abs(two.change_ns) - Math.abs(one.change_ns));
    return { total_ns: [rounded[0].total, rounded[1].total], change_ns: rounded[1].total - rounded[0].total, bars };
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  function rows(from, to) {
    const own = between(from, to);
    markClear(own.map((place) => /** @type {Estimate} */ (at.get(place))));
    const all = totals[0].subarray(from, to).filter((ns, index) => ns > 0 || totals[1][from + index] > 0).length;
    return {
      rows: own.map((place) => /** @type {ChangedRow} */ ({
        name: places.names[place], totals: totals.map((sums) => sums[place]), sides: [meanOf(0, place), meanOf(1, place)], estimate: at.get(place),
      })),
      small: all - own.length,
    };
  }

  return {
    names: [base.name, own.name],
    count: [counts[0], counts[1]],
    mean: [meanOf(0, 0), meanOf(1, 0)],
    change: /** @type {Estimate} */ (at.get(0)),
    parts: fall(places.firstState, places.firstCause),
    causes: model.has_blame ? fall(places.firstCause, places.firstHolder) : null,
    ofState: model.states.map((_, state) => at.get(places.firstState + state)),
    ofCause: model.causes.map((_, cause) => at.get(places.firstCause + OWN.length + cause)),
    held: rows(places.firstHolder, places.firstStatement),
    statements: rows(places.firstStatement, places.names.length),
    lacking,
    how,
  };
}

/**
 * @param {number} ns
 * @returns {string}
 */
function secondsOf(ns) {
  return `${Number((ns / SECOND).toPrecision(3))} s`;
}

/**
 * How sure the changes of means are.
 * @param {Model} model
 * @param {Chosen[]} sides
 * @param {ReturnType<typeof placesOf>} places
 * @param {number[]} kept places; the first is the latency
 * @param {(side: number, place: number) => number} meanOf
 */
function estimated(model, sides, places, kept, meanOf) {
  const first = new Set(sides[0].columns);
  const isPaired = sides[1].columns.some((column) => first.has(column));
  const union = [...new Set(sides.flatMap((side) => side.columns))].sort((one, two) => one - two);
  const width = kept.length;
  const indexOf = new Int32Array(places.names.length).fill(-1);
  kept.forEach((place, index) => {
    indexOf[place] = index;
  });
  const grids = sides.map((side) => blocksOf(model, isPaired ? union : side.columns));
  const blocks = sides.map((side, which) => {
    const { blockOf, count } = grids[which];
    const sums = { counts: new Float64Array(count), columns: new Float64Array(count * width), width };
    for (const cell of side.cells) {
      const block = blockOf[model.cells.column[cell]];
      sums.counts[block] += model.cells.count[cell];
      places.each(cell, (place, ns) => {
        if (indexOf[place] >= 0) {
          sums.columns[block * width + indexOf[place]] += ns;
        }
      });
    }
    return sums;
  });
  const busy = blocks.map((side) => side.counts.filter((count) => count > 0).length);
  const changes = kept.map((place) => meanOf(1, place) - meanOf(0, place));
  const short = sides.flatMap((side, which) => (busy[which] < LEAST_BLOCKS ? [`${side.name} has requests in ${busy[which]} stretches of ${secondsOf(grids[which].length)}`] : []));
  if (short.length > 0) {
    return {
      estimates: changes.map((change) => /** @type {Estimate} */ ({ change, interval: null, p: null, is_clear: null })),
      lacking: `Whether a change is noise cannot be told: ${short.join(', ')}, and ${LEAST_BLOCKS} are needed.`,
      how: '',
    };
  }
  // Time that a side is not of tells nothing.
  const within = sides.map((side, which) => [...new Set(side.columns.map((column) => grids[which].blockOf[column]))]);
  const runs = within.map((own, which) => {
    const { counts, columns } = blocks[which];
    const weights = own.map((block) => counts[block]);
    const all = weights.reduce((sum, weight) => sum + weight, 0);
    // What a block adds to the mean.
    const latencies = own.map((block) => columns[block * width] - meanOf(which, 0) * counts[block]);
    return all < own.length ? 1 : Math.max(runLength(latencies), runLength(weights));
  });
  if (isPaired) {
    runs.fill(Math.max(...runs));
  }
  const times = (isPaired ? [0] : [0, 1]).map((which) => (
    // The same selections are drawn in the same way.
    drawn(grids[which].count, runs[which], (sides[which].cells.length * 31 + grids[which].count) * 2 + which)));
  const [a, b] = blocks.map((side, which) => drawnMeans(side, times[isPaired ? 0 : which]));
  // Runs of mostly empty blocks are as many as there are, but no more than blocks that have requests.
  const independent = Math.min(...busy.map((count, which) => Math.min(count, within[which].length / runs[which])));
  const judge = judgeOf(independent);
  const estimates = changes.map((change, index) => {
    const of = (/** @type {Float64Array} */ means) => Float64Array.from({ length: a.length / width }, (_, draw) => means[draw * width + index]);
    const [ofA, ofB] = [of(a), of(b)];
    return judge(change, ofB.map((mean, draw) => mean - ofA[draw]), isPaired ? null : [ofA, ofB]);
  });
  const run = Math.max(...runs) * grids[0].length;
  return {
    estimates,
    lacking: null,
    how: `Stretches of ${secondsOf(run)} are drawn, ${isPaired ? 'of both sides together, as they overlap in time' : 'of each side by itself'}`
      + `${independent < 10 ? `; only ${Math.floor(independent)} of them are independent, so intervals are wide` : ''}.`,
  };
}
