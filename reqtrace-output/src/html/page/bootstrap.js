// Block bootstrap: sums of blocks of time in, how sure a change of means is out. As reqtrace-compare has it.
//
// Runs of blocks are drawn with replacement, as many as make the same length again (Politis and Romano, circular). How
// long a run is follows from the autocorrelation (Politis and White 2004, with the correction of 2009).

import { below, clearOf, deviations, probability, randomOf, reach } from './chance.js';

/**
 * The sums of one side: of each block its requests and, block by block, its columns.
 * @typedef {{counts: Float64Array, columns: Float64Array, width: number}} Blocks
 *
 * A change; what cannot be told is null.
 * @typedef {{change: number, interval: [number, number] | null, p: number | null, is_clear: boolean | null}} Estimate
 */

/** How often blocks are drawn. */
const DRAWS = 1000;
/** Fewer blocks say nothing about noise. */
export const LEAST_BLOCKS = 30;
/** Draws farther out than this are too few to count. */
const FAR = 2.6;

/**
 * How often each block was drawn: all blocks of the first draw, of the second, and so on.
 * @param {number} blocks
 * @param {number} run blocks of a run
 * @param {number} seed
 * @returns {Uint16Array}
 */
export function drawn(blocks, run, seed) {
  const random = randomOf(seed);
  const times = new Uint16Array(blocks * DRAWS);
  for (let from = 0; from < times.length; from += blocks) {
    for (let left = blocks; left > 0; left -= run) {
      const first = random(blocks);
      for (let at = 0; at < Math.min(run, left); at += 1) {
        times[from + ((first + at) % blocks)] += 1;
      }
    }
  }
  return times;
}

/**
 * How many values in a row have something in common.
 * @param {ArrayLike<number>} values
 * @returns {number}
 */
export function runLength(values) {
  const all = values.length;
  if (all < LEAST_BLOCKS) {
    return 1;
  }
  const mean = Array.from(values).reduce((sum, value) => sum + value, 0) / all;
  const covariance = (/** @type {number} */ lag) => {
    let sum = 0;
    for (let at = lag; at < all; at += 1) {
      sum += (values[at - lag] - mean) * (values[at] - mean);
    }
    return sum / all;
  };
  const variance = covariance(0);
  if (variance <= 0) {
    return 1;
  }
  // 10 % of correlations of noise are beyond it: a run that is too long costs little, one that is too short is wrong.
  const least = 1.645 / Math.sqrt(all);
  const quiet = 5;
  const most = Math.min(Math.floor(Math.sqrt(all)) + quiet, all - 1);
  const correlations = Array.from({ length: most + 1 }, (_, lag) => covariance(lag) / variance);
  const isQuiet = (/** @type {number} */ lag) => {
    const next = correlations.slice(lag + 1, lag + 1 + quiet);
    return next.length === quiet && next.every((one) => Math.abs(one) < least);
  };
  const found = correlations.findIndex((_, lag) => isQuiet(lag));
  const last = found < 0 ? most : found;
  if (last === 0) {
    return 1;
  }
  // A window that is flat, then falls to nothing.
  const window = Math.min(2 * last, all - 1);
  let slope = 0;
  let level = variance;
  for (let lag = 1; lag <= window; lag += 1) {
    const weighted = 2 * Math.min(1, 2 * (1 - lag / window)) * covariance(lag);
    slope += weighted * lag;
    level += weighted;
  }
  if (level <= 0) {
    return 1;
  }
  // Longer than what is best for the variance itself: a run that is cut off takes from it what it has beyond its end.
  const length = 2 * Math.cbrt(1.5 * (slope / level) ** 2 * all);
  return Math.max(1, Math.round(Math.min(length, 3 * Math.sqrt(all), all / 5)));
}

/**
 * Means per request of each column, in each draw: all columns of the first draw, and so on.
 * @param {Blocks} side
 * @param {Uint16Array} times
 * @returns {Float64Array}
 */
export function drawnMeans({ counts, columns, width }, times) {
  const means = new Float64Array(DRAWS * width);
  for (let draw = 0; draw < DRAWS; draw += 1) {
    const to = draw * width;
    let count = 0;
    for (let block = 0; block < counts.length; block += 1) {
      const often = times[draw * counts.length + block];
      if (often > 0 && counts[block] > 0) {
        count += often * counts[block];
        for (let column = 0; column < width; column += 1) {
          means[to + column] += often * columns[block * width + column];
        }
      }
    }
    for (let column = 0; column < width; column += 1) {
      means[to + column] /= count;
    }
  }
  return means;
}

/**
 * @param {Float64Array} values
 * @returns {[number, number]} their mean and variance
 */
function momentsOf(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return [mean, values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length];
}

/**
 * Degrees of freedom of a difference of two sides (Welch 1947): as many as one side has if only that one spreads, twice as
 * many if both do alike.
 * @param {number} runs
 * @param {[Float64Array, Float64Array] | null} sides
 */
function freedomOf(runs, sides) {
  const [a, b] = sides ? sides.map((draws) => momentsOf(draws.filter(Number.isFinite))[1]) : [1, 0];
  const squares = a ** 2 + b ** 2;
  return (runs - 1) * (squares > 0 ? (a + b) ** 2 / squares : 1);
}

/**
 * Judges the changes of means: percentiles of the draws, taken so far out as Student's t with the number of independent
 * runs asks for, since plain ones are too narrow where runs are few.
 * @param {number} runs of the side with the fewer ones
 * @returns {(change: number, draws: Float64Array, sides: [Float64Array, Float64Array] | null) => Estimate} draws of the change, and of both
 *   sides if they are drawn each by itself; is_clear is left open
 */
export function judgeOf(runs) {
  const small = Math.sqrt(runs / Math.max(1, runs - 1));
  return (change, all, sides) => {
    const draws = all.filter(Number.isFinite).sort();
    const count = draws.length;
    if (count === 0 || count * 20 < all.length * 19) {
      return { change, interval: null, p: null, is_clear: null };
    }
    const [mean, variance] = momentsOf(draws);
    if (variance === 0) {
      // Nothing differs within the sides.
      return { change, interval: [change, change], p: change === 0 ? 1 : 0, is_clear: null };
    }
    const freedom = freedomOf(runs, sides);
    const out = below(-reach(freedom) * small);
    const at = (/** @type {number} */ part) => {
      const place = Math.min(count - 1, Math.max(0, part * (count + 1) - 1));
      const [one, two] = [draws[Math.floor(place)], draws[Math.ceil(place)]];
      return one + (two - one) * (place % 1);
    };
    // How far 0 is from the middle of the draws.
    const beyond = draws.findIndex((draw) => draw > 0);
    let errors = Math.abs(deviations(((beyond < 0 ? count : beyond) + 0.5) / (count + 1)));
    if (errors > FAR) {
      errors = Math.max(FAR, Math.abs(mean) / Math.sqrt(variance));
    }
    return { change, interval: [at(out), at(1 - out)], p: probability(errors / small, freedom), is_clear: null };
  };
}

/**
 * Marks estimates that are looked at together.
 * @param {Estimate[]} estimates
 */
export function markClear(estimates) {
  const known = estimates.filter((estimate) => estimate.p !== null);
  clearOf(known.map((estimate) => estimate.p ?? 1)).forEach((isClear, at) => {
    known[at].is_clear = isClear;
  });
}
