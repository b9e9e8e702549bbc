// The model: the compressed data of the page in, arrays of numbers and names out.

/**
 * A thread that held a request up, or the request's own: process, thread, name.
 * @typedef {[number, number, string]} Lane
 *
 * A request of such a thread: id, request type, label, whether it had ended.
 * @typedef {[number, number, string, boolean]} OtherRequest
 *
 * @typedef {object} Timeline
 * @property {Lane[]} lanes
 * @property {OtherRequest[]} others
 * @property {number[]} lane
 * @property {number[]} from
 * @property {number[]} ns
 * @property {number[]} did
 * @property {number[]} stack
 * @property {number[]} woken_from
 * @property {number[]} class
 * @property {number[]} by
 * @property {number[]} other
 * @property {[[number, number], [number, number]]} left_out
 * @property {number} lanes_left_out
 * @property {number} missing
 *
 * @typedef {object} Slow
 * @property {number} id
 * @property {number} request
 * @property {number} pid
 * @property {number} tid
 * @property {string} comm
 * @property {string} label
 * @property {number} statement
 * @property {number} begin
 * @property {number} latency
 * @property {number} on_cpu
 * @property {number} run_queue
 * @property {number} preempted
 * @property {number} unattributed
 * @property {number[]} classes
 * @property {number[]} parked
 * @property {number[]} queued
 * @property {number[] | null} causes
 * @property {Timeline | null} timeline
 *
 * @typedef {object} Holding
 * @property {string} victim
 * @property {number} class
 * @property {string} kind
 * @property {string} request
 * @property {string} label
 * @property {string} comm
 * @property {[number, number] | null} thread process and thread; null when several were it
 * @property {number} cause
 *
 * @typedef {object} Cells
 * @property {number[]} request
 * @property {number[]} column
 * @property {number[]} row
 * @property {number[]} count
 * @property {number[]} latency
 * @property {number[]} on_cpu
 * @property {number[]} run_queue
 * @property {number[]} preempted
 * @property {number[]} unattributed
 * @property {number[]} classes
 * @property {number[]} parked
 * @property {number[]} queued
 * @property {number[]} causes
 * @property {number[]} stacks
 * @property {number[]} stack
 * @property {number[]} stack_ns
 * @property {number[]} samples
 * @property {number[]} sample
 * @property {number[]} sample_count
 * @property {number[]} statements
 * @property {number[]} statement
 * @property {number[]} statement_sums
 * @property {number[]} holdings
 * @property {number[]} holding
 * @property {number[]} holding_ns
 *
 * @typedef {object} Rows
 * @property {number[]} id
 * @property {number[]} request
 * @property {number[]} tid
 * @property {number[]} begin
 * @property {number[]} statement
 * @property {number[]} latency
 * @property {number[]} on_cpu
 * @property {number[]} run_queue
 * @property {number[]} preempted
 * @property {number[]} blocked
 * @property {number[]} parked
 * @property {number[]} queued
 *
 * @typedef {object} Data
 * @property {number} version
 * @property {any} summary as `summary.json`
 * @property {string} start_unix_ns
 * @property {string[]} class_colors
 * @property {[string, string, string, string]} colors
 * @property {[string[], string[]]} places
 * @property {[string[], string[]]} place_colors
 * @property {[string, string][]} causes
 * @property {string[]} cause_colors
 * @property {string[]} reasons
 * @property {number} column_ns
 * @property {number[]} edges_ns
 * @property {Cells} cells
 * @property {string[]} statements
 * @property {string[]} frames
 * @property {{parent: number[], frame: number[]}} nodes
 * @property {{node: number[], kind: number[], class: number[]}} stacks
 * @property {number} not_sampled
 * @property {{frames: number[][], ns: number[]} | null} chains
 * @property {Holding[]} holdings
 * @property {Rows | null} rows
 * @property {Slow[]} slowest
 * @property {boolean} has_blame
 * @property {[number, number, number]} merged
 * @property {number} max_rows
 * @property {number} max_slowest
 *
 * What time was spent in: on CPU, run queue, preempted, lost stacks, then the wait classes, then the places where
 * requests are parked, then those where they are queued.
 * @typedef {{name: string, color: string}} State
 *
 * @typedef {Data & {
 *   states: State[],
 *   firstParked: number,
 *   firstQueued: number,
 *   stackState: Int32Array,
 *   cellCount: number,
 *   columns: number,
 *   latencyRows: number,
 *   stackAt: Int32Array,
 *   sampleAt: Int32Array,
 *   hasSamples: boolean,
 *   statementAt: Int32Array,
 *   holdingAt: Int32Array,
 *   slowById: Map<number, Slow>,
 *   types: string[],
 *   duration: number,
 * }} Model
 */

/** The version of the data that these modules read. */
const VERSION = 1;
/** States before the wait classes. */
export const ON_CPU = 0;
export const RUN_QUEUE = 1;
export const PREEMPTED = 2;
export const LOST = 3;
export const FIRST_CLASS = 4;

/**
 * Reads the data of the page.
 * @param {string} text base64
 * @returns {Promise<Model>}
 */
export async function load(text) {
  const packed = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const data = /** @type {Data} */ (JSON.parse(await new Response(stream).text()));
  if (data.version !== VERSION) {
    throw new Error(`the data has version ${data.version}, and this page reads ${VERSION}`);
  }
  return modelOf(data);
}

/**
 * @param {Data} data
 * @returns {Model}
 */
function modelOf(data) {
  const { cells, stacks } = data;
  const names = ['on CPU', 'run queue', 'preempted', 'unattributed'];
  const states = names.map((name, at) => ({ name, color: data.colors[at] }));
  data.summary.classes.forEach((/** @type {{name: string}} */ one, /** @type {number} */ at) => {
    states.push({ name: one.name, color: data.class_colors[at] });
  });
  const firstParked = states.length;
  const firstQueued = firstParked + data.places[0].length;
  data.places.forEach((places, queued) => places.forEach((name, at) => {
    states.push({ name, color: data.place_colors[queued][at] });
  }));
  const stackState = Int32Array.from(stacks.kind, (kind, at) => {
    if (kind === 3) {
      return ON_CPU;
    }
    if (kind === 1) {
      return RUN_QUEUE;
    }
    if (kind === 2) {
      return PREEMPTED;
    }
    if (kind === 4) {
      return firstParked + stacks.class[at];
    }
    if (kind === 5) {
      return firstQueued + stacks.class[at];
    }
    return stacks.class[at] < 0 ? LOST : FIRST_CLASS + stacks.class[at];
  });
  const duration = data.summary.trace.duration_ns;
  const last = cells.column.reduce((most, column) => Math.max(most, column), -1);
  return {
    ...data,
    states,
    firstParked,
    firstQueued,
    stackState,
    cellCount: cells.count.length,
    columns: Math.max(1, last + 1, Math.ceil(duration / Math.max(1, data.column_ns))),
    latencyRows: Math.max(0, data.edges_ns.length - 1),
    stackAt: starts(cells.stacks),
    sampleAt: starts(cells.samples),
    hasSamples: Boolean(data.summary.trace.samples),
    statementAt: starts(cells.statements),
    holdingAt: starts(cells.holdings),
    slowById: new Map(data.slowest.map((slow) => [slow.id, slow])),
    types: data.summary.requests.map((/** @type {{name: string}} */ type) => type.name),
    duration,
  };
}

/**
 * Where the entries of each cell begin, and where those of the last one end.
 * @param {number[]} counts
 * @returns {Int32Array}
 */
function starts(counts) {
  const at = new Int32Array(counts.length + 1);
  counts.forEach((count, cell) => {
    at[cell + 1] = at[cell] + count;
  });
  return at;
}

/**
 * A moment of the trace as time of day (UTC), with milliseconds.
 * @param {Model} model
 * @param {number} ns since the start
 * @returns {string}
 */
export function timeOfDay(model, ns) {
  return new Date(Number(BigInt(model.start_unix_ns) / 1000n) / 1000 + ns / 1e6).toISOString().slice(11, 23);
}

/**
 * Frames of a stack, innermost first.
 * @param {Model} model
 * @param {number} stack
 * @returns {string[]}
 */
export function framesOf(model, stack) {
  const frames = [];
  for (let node = model.stacks.node[stack]; node >= 0; node = model.nodes.parent[node]) {
    frames.push(model.frames[model.nodes.frame[node]]);
  }
  return frames;
}

/**
 * Who held somebody up, in words.
 * @param {{kind: string, request: string, comm: string}} culprit
 * @returns {string}
 */
function culpritWords(culprit) {
  switch (culprit.kind) {
    case 'interrupt': return 'own';
    case 'itself': return 'itself';
    case 'request': return `another ${culprit.request}`;
    case 'thread': return `thread ${culprit.comm}`;
    case 'peer': return `peer ${culprit.comm}`;
    case 'others': return 'others';
    default: return 'nobody known';
  }
}

/**
 * A line of who held whom up: root cause and culprit, whoever waited.
 * @param {Model} model
 * @param {number} at a holding
 * @returns {{key: string, who: string, cause: number}}
 */
export function holderOf(model, at) {
  const holding = model.holdings[at];
  const isKnown = model.causes[holding.cause][0] !== 'unknown';
  const after = holding.kind === 'thread' ? `after ${holding.label}` : holding.label;
  const who = isKnown ? culpritWords(holding) + (holding.label ? ` ${after}` : '') : '';
  return { key: `${holding.cause} ${who}`, who, cause: holding.cause };
}
