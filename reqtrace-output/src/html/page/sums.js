// Sums: cells of a selection in, what its requests have together out.

import { FIRST_CLASS, LOST, ON_CPU, PREEMPTED, RUN_QUEUE } from './model.js';

/**
 * @typedef {import('./model.js').Model} Model
 *
 * @typedef {object} Sum
 * @property {number} count
 * @property {number} latency
 * @property {boolean} isMixed requests of several types are in it, which have no mean together
 * @property {Float64Array} states nanoseconds of each state
 * @property {Float64Array} causes blocked and parked time by root cause
 * @property {Float64Array} stacks nanoseconds of each stack; those on a CPU are by samples, scaled
 * @property {number} samples
 * @property {Float64Array} holdings nanoseconds of each entry of who held whom up
 * @property {Map<number, number[]>} statements requests, latency, on CPU, blocked, longest
 */

/**
 * The cells of a request type, or of all.
 * @param {Model} model
 * @param {number} type
 * @returns {number[]}
 */
export function cellsOf(model, type) {
  const cells = [];
  for (let cell = 0; cell < model.cellCount; cell += 1) {
    if (type < 0 || model.cells.request[cell] === type) {
      cells.push(cell);
    }
  }
  return cells;
}

/**
 * Those of some cells that lie in a box, and the others.
 * @param {Model} model
 * @param {number[]} cells
 * @param {[number, number, number, number] | null} box
 * @returns {[number[], number[]]}
 */
export function split(model, cells, box) {
  if (!box) {
    return [cells, []];
  }
  const [left, right, low, high] = box;
  /** @type {[number[], number[]]} */
  const both = [[], []];
  for (const cell of cells) {
    const column = model.cells.column[cell];
    const row = model.cells.row[cell];
    const inside = column >= left && column <= right && row >= low && row <= high;
    both[inside ? 0 : 1].push(cell);
  }
  return both;
}

/**
 * The columns of time that a selection is of.
 * @param {Model} model
 * @param {[number, number, number, number] | null} box
 * @returns {number[]}
 */
export function columnsOf(model, box) {
  const [left, right] = box ?? [0, model.columns - 1];
  return Array.from({ length: right - left + 1 }, (_, at) => left + at);
}

/**
 * The columns of what is beside a box: all, but for those that the box has the whole of.
 * @param {Model} model
 * @param {[number, number, number, number] | null} box
 * @param {number[]} outside cells
 * @returns {number[]}
 */
export function columnsBeside(model, box, outside) {
  const inside = new Set(columnsOf(model, box));
  const busy = new Set(outside.map((cell) => model.cells.column[cell]));
  return columnsOf(model, null).filter((column) => !inside.has(column) || busy.has(column));
}

/**
 * How many requests there are of each latency.
 * @param {Model} model
 * @param {number[]} cells
 * @returns {Float64Array}
 */
export function byLatency(model, cells) {
  const counts = new Float64Array(model.latencyRows);
  for (const cell of cells) {
    counts[model.cells.row[cell]] += model.cells.count[cell];
  }
  return counts;
}

/**
 * The latencies that hold the requests between two percentiles: lowest and highest row.
 * @param {Float64Array} counts
 * @param {number} from share
 * @param {number} to share
 * @returns {[number, number]}
 */
export function between(counts, from, to) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  let before = 0;
  let low = -1;
  let high = 0;
  counts.forEach((count, row) => {
    if (count > 0 && before + count > all * from && before < all * to) {
      low = low < 0 ? row : low;
      high = row;
    }
    before += count;
  });
  return [Math.max(0, low), high];
}

/**
 * The cells of typical requests: of each type those between the 40th and the 60th percentile of the latency.
 * @param {Model} model
 * @param {number[]} cells
 * @returns {number[]}
 */
export function typicalCells(model, cells) {
  return model.types.flatMap((_, type) => {
    const own = cells.filter((cell) => model.cells.request[cell] === type);
    const [low, high] = between(byLatency(model, own), 0.4, 0.6);
    return own.filter((cell) => model.cells.row[cell] >= low && model.cells.row[cell] <= high);
  });
}

/**
 * The time of a cell by state.
 * @param {Model} model
 * @param {number} cell
 * @param {(state: number, ns: number) => void} add
 */
export function eachState(model, cell, add) {
  const of = model.cells;
  const classes = model.firstParked - FIRST_CLASS;
  const [parked, queued] = model.places.map((places) => places.length);
  add(ON_CPU, of.on_cpu[cell]);
  add(RUN_QUEUE, of.run_queue[cell]);
  add(PREEMPTED, of.preempted[cell]);
  add(LOST, of.unattributed[cell]);
  for (let at = 0; at < classes; at += 1) {
    add(FIRST_CLASS + at, of.classes[cell * classes + at]);
  }
  for (let at = 0; at < parked; at += 1) {
    add(model.firstParked + at, of.parked[cell * parked + at]);
  }
  for (let at = 0; at < queued; at += 1) {
    add(model.firstQueued + at, of.queued[cell * queued + at]);
  }
}

/**
 * Adds cells up.
 * @param {Model} model
 * @param {number[]} cells
 * @returns {Sum}
 */
export function sumOf(model, cells) {
  const of = model.cells;
  const kinds = model.causes.length;
  const sum = {
    count: 0,
    latency: 0,
    isMixed: new Set(cells.map((cell) => of.request[cell])).size > 1,
    states: new Float64Array(model.states.length),
    causes: new Float64Array(kinds),
    stacks: new Float64Array(model.stacks.node.length),
    samples: 0,
    holdings: new Float64Array(model.holdings.length),
    /** @type {Map<number, number[]>} */
    statements: new Map(),
  };
  const { states, causes, stacks, holdings, statements } = sum;
  const onCpu = model.types.map(() => ({ ns: 0, samples: /** @type {Map<number, number>} */ (new Map()) }));
  for (const cell of cells) {
    sum.count += of.count[cell];
    sum.latency += of.latency[cell];
    eachState(model, cell, (state, ns) => {
      states[state] += ns;
    });
    for (let at = 0; at < kinds; at += 1) {
      causes[at] += of.causes[cell * kinds + at];
    }
    for (let at = model.stackAt[cell]; at < model.stackAt[cell + 1]; at += 1) {
      stacks[of.stack[at]] += of.stack_ns[at];
    }
    const ofType = onCpu[of.request[cell]];
    ofType.ns += of.on_cpu[cell];
    for (let at = model.sampleAt[cell]; at < model.sampleAt[cell + 1]; at += 1) {
      ofType.samples.set(of.sample[at], (ofType.samples.get(of.sample[at]) ?? 0) + of.sample_count[at]);
    }
    for (let at = model.holdingAt[cell]; at < model.holdingAt[cell + 1]; at += 1) {
      holdings[of.holding[at]] += of.holding_ns[at];
    }
    for (let at = model.statementAt[cell]; at < model.statementAt[cell + 1]; at += 1) {
      const known = statements.get(of.statement[at]);
      const more = of.statement_sums.slice(at * 5, at * 5 + 5);
      if (known) {
        for (let which = 0; which < 4; which += 1) {
          known[which] += more[which];
        }
        known[4] = Math.max(known[4], more[4]);
      } else {
        statements.set(of.statement[at], more);
      }
    }
  }
  for (const { ns, samples } of onCpu) {
    sum.samples += shareOut(ns, samples, stacks, model.not_sampled);
  }
  return sum;
}

/**
 * Splits the on-CPU time of requests of one type among the stacks that their samples have met, to the nanosecond.
 * @param {number} ns
 * @param {Map<number, number>} samples of each stack
 * @param {Float64Array} stacks that it is added to
 * @param {number} notSampled the stack of time that no sample has met
 * @returns {number} all samples
 */
function shareOut(ns, samples, stacks, notSampled) {
  const all = [...samples.values()].reduce((sum, count) => sum + count, 0);
  let left = ns;
  let greatest = notSampled;
  for (const [stack, count] of samples) {
    // The product may be more than a number holds.
    const part = Number((BigInt(ns) * BigInt(count)) / BigInt(all));
    stacks[stack] += part;
    left -= part;
    greatest = count > (samples.get(greatest) ?? 0) ? stack : greatest;
  }
  // What rounding left goes to the greatest, where it shows least.
  stacks[greatest] += left;
  return all;
}

/**
 * Blocked and parked time: that of which root causes are known.
 * @param {Model} model
 * @param {Sum} sum
 * @returns {number}
 */
export function heldUpOf(model, sum) {
  return sum.states.slice(LOST, model.firstQueued).reduce((all, ns) => all + ns, 0);
}
