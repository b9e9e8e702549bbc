// Chance: random numbers that a seed decides, quantiles of Student's t, which of many rows are more than noise. As reqtrace-compare has it.

/** Rows that are marked although nothing changed: at most so many of all that are marked. */
const FALSE_SHARE = 0.05;
/** Beyond so many standard deviations nothing is left of a normal distribution. */
const FARTHEST = 8;

/**
 * A generator (SplitMix32) of whole numbers from 0 on, below the one that it is called with.
 * @param {number} seed
 * @returns {(below: number) => number}
 */
export function randomOf(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return Math.floor((((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32) * below);
  };
}

/**
 * The logarithm of the gamma function (Lanczos).
 * @param {number} value above 0
 * @returns {number}
 */
function logGamma(value) {
  const terms = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  const sum = terms.reduce((all, term, at) => all + term / (value + at), 0.99999999999980993);
  const base = value + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (value - 0.5) * Math.log(base) - base + Math.log(sum);
}

/**
 * The continued fraction of the incomplete beta function (Lentz).
 * @param {number} x
 * @param {number} a
 * @param {number} b
 * @returns {number}
 */
function betaFraction(x, a, b) {
  const least = 1e-300;
  const away = (/** @type {number} */ value) => (Math.abs(value) < least ? least : value);
  let one = 1;
  let two = 1 / away(1 - ((a + b) * x) / (a + 1));
  let result = two;
  for (let at = 1; at < 500; at += 1) {
    const even = (at * (b - at) * x) / ((a + 2 * at - 1) * (a + 2 * at));
    const odd = (-(a + at) * (a + b + at) * x) / ((a + 2 * at) * (a + 2 * at + 1));
    const before = result;
    for (const term of [even, odd]) {
      two = 1 / away(1 + term * two);
      one = away(1 + term / one);
      result *= one * two;
    }
    if (Math.abs(result / before - 1) < 1e-14) {
      break;
    }
  }
  return result;
}

/**
 * How probable a value so many standard errors away from 0, or farther, is by chance (Student's t).
 * @param {number} errors
 * @param {number} freedom 1 at least
 * @returns {number}
 */
export function probability(errors, freedom) {
  const free = Math.max(1, freedom);
  const square = errors * errors;
  const [x, rest] = [free / (free + square), square / (free + square)];
  if (rest === 0) {
    return 1;
  }
  const [a, b] = [free / 2, 0.5];
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log(rest));
  return x < (a + 1) / (a + b + 2) ? (front * betaFraction(x, a, b)) / a : 1 - (front * betaFraction(rest, b, a)) / b;
}

/**
 * Where a function that grows has a value.
 * @param {(at: number) => number} grows
 * @param {number} value
 * @param {number} from
 * @param {number} to
 * @returns {number}
 */
function solved(grows, value, from, to) {
  let [low, high] = [from, to];
  for (let step = 0; step < 60; step += 1) {
    const middle = (low + high) / 2;
    [low, high] = grows(middle) < value ? [middle, high] : [low, middle];
  }
  return (low + high) / 2;
}

/**
 * So many standard errors to each side make an interval of 95 %.
 * @param {number} freedom
 * @returns {number}
 */
export function reach(freedom) {
  return solved((errors) => 1 - probability(errors, freedom), 0.95, 0, 20);
}

/**
 * The share of a normal distribution that is below so many standard deviations.
 * @param {number} deviation
 * @returns {number}
 */
export function below(deviation) {
  if (Math.abs(deviation) > FARTHEST) {
    return deviation < 0 ? 0 : 1;
  }
  let sum = deviation;
  let term = deviation;
  for (let odd = 3; sum + term !== sum; odd += 2) {
    term *= (deviation * deviation) / odd;
    sum += term;
  }
  return 0.5 + (sum * Math.exp(-(deviation * deviation) / 2)) / Math.sqrt(2 * Math.PI);
}

/**
 * The other way round.
 * @param {number} part
 * @returns {number}
 */
export function deviations(part) {
  return solved(below, part, -FARTHEST, FARTHEST);
}

/**
 * Which of these probabilities are more than noise, when all are looked at together (Benjamini and Hochberg).
 * @param {number[]} probabilities
 * @returns {boolean[]}
 */
export function clearOf(probabilities) {
  const sorted = Float64Array.from(probabilities).sort();
  const last = sorted.findLastIndex((p, rank) => p <= (FALSE_SHARE * (rank + 1)) / sorted.length);
  return probabilities.map((p) => last >= 0 && p <= sorted[last]);
}
