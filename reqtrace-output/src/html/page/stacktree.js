// Stacks as a tree: of all stacks or chains of a page in; where each frame of some of their time lies out.

/**
 * @typedef {import('./model.js').Model} Model
 *
 * A tree; each node comes behind its parent, and the root is no node.
 * @typedef {object} Tree
 * @property {string[]} names
 * @property {number[]} parent
 * @property {number[]} name
 * @property {number[]} leafOf the last frame of each stack
 * @property {Int32Array} order nodes by parent and name
 * @property {Int32Array} first where the children of each node begin in `order`; those of the root are the first
 *
 * What is drawn: of each node nanoseconds, those of the requests to compare with, and what it was spent in.
 * @typedef {object} Values
 * @property {Float64Array} own
 * @property {Float64Array} base
 * @property {Int32Array} state what most of it was
 * @property {Float64Array} part how much of it was that
 * @property {Int32Array} folded the only frame within, which stands for this one too; -1 for none
 * @property {number} all
 * @property {number} baseAll
 *
 * @typedef {{x: number, y: number, width: number, node: number}} Box
 */

/** Frames below this many pixels are not drawn. */
export const LEAST_WIDTH = 0.5;
export const ROOT = -1;
const NOTHING = -1;
/** Frames between a system call, or a fault, and what it does. */
const ENTRY = /^(entry_SYSCALL|do_syscall_64|x64_sys_call|asm_exc_|exc_page_fault|el0t_64_|el0_svc|do_el0_svc|invoke_syscall)/;

/**
 * A tree from paths of names.
 * @param {string[]} names
 * @param {Iterable<Iterable<number>>} paths
 * @returns {Tree}
 */
function treeOf(names, paths) {
  /** @type {number[]} */
  const parent = [];
  /** @type {number[]} */
  const name = [];
  /** @type {number[]} */
  const leafOf = [];
  /** @type {Map<number, number>} */
  const known = new Map();
  for (const path of paths) {
    let at = ROOT;
    for (const next of path) {
      const key = (at + 1) * names.length + next;
      let node = known.get(key);
      if (node === undefined) {
        node = parent.length;
        parent.push(at);
        name.push(next);
        known.set(key, node);
      }
      at = node;
    }
    leafOf.push(at);
  }
  return { names, parent, name, leafOf, ...ordered(names, parent, name) };
}

/**
 * @param {string[]} names
 * @param {number[]} parent
 * @param {number[]} name
 * @returns {{order: Int32Array, first: Int32Array}}
 */
function ordered(names, parent, name) {
  const rank = new Int32Array(names.length);
  names.map((text, at) => ({ text, at }))
    .sort((one, two) => (one.text < two.text ? -1 : Number(one.text > two.text)))
    .forEach(({ at }, place) => {
      rank[at] = place;
    });
  const order = Int32Array.from(parent, (_, node) => node)
    .sort((one, two) => parent[one] - parent[two] || rank[name[one]] - rank[name[two]]);
  const first = new Int32Array(parent.length + 2);
  for (const node of parent) {
    first[node + 2] += 1;
  }
  for (let at = 1; at < first.length; at += 1) {
    first[at] += first[at - 1];
  }
  return { order, first };
}

/**
 * The tree of all stacks of a page.
 * @param {Model} model
 * @param {boolean} reversed innermost frames first
 * @returns {Tree}
 */
export function stacksTree(model, reversed) {
  const names = model.frames.concat(model.states.map((state) => `[${state.name}]`));
  const { node: last } = model.stacks;
  const { parent, frame } = model.nodes;
  const paths = last.map((innermost, stack) => {
    const path = [];
    for (let node = innermost; node >= 0; node = parent[node]) {
      path.push(frame[node]);
    }
    path.unshift(model.frames.length + model.stackState[stack]);
    return reversed ? path : path.reverse();
  });
  return treeOf(names, paths);
}

/**
 * The tree of chains.
 * @param {Model} model
 * @returns {Tree}
 */
export function chainsTree(model) {
  const chains = model.chains ?? { frames: [], ns: [] };
  return treeOf(model.frames, chains.frames);
}

/**
 * What each chain came down to: its last frame says it.
 * @param {Model} model
 * @returns {number[]} causes
 */
export function causesOfChains(model) {
  const known = new Map(model.causes.map(([, words], cause) => [`[${words}]`, cause]));
  const unknown = model.causes.findIndex(([key]) => key === 'unknown');
  return (model.chains?.frames ?? []).map((path) => known.get(model.frames[path[path.length - 1]]) ?? unknown);
}

/**
 * Adds the times of stacks up the tree.
 * @param {Tree} tree
 * @param {ArrayLike<number>} own nanoseconds of each stack
 * @param {ArrayLike<number> | null} base
 * @param {(stack: number) => number} stateOf its state; negative to leave it out
 * @param {number} states how many there are
 * @param {boolean} isOutermostFirst frames before the first fork are folded, too
 * @returns {Values}
 */
export function valuesOf(tree, own, base, stateOf, states, isOutermostFirst) {
  const count = tree.parent.length;
  const values = {
    own: new Float64Array(count),
    base: new Float64Array(count),
    state: new Int32Array(count).fill(NOTHING),
    part: new Float64Array(count),
    folded: new Int32Array(count).fill(ROOT),
    all: 0,
    baseAll: 0,
  };
  const byState = new Float64Array(count * states);
  for (let stack = 0; stack < tree.leafOf.length; stack += 1) {
    const leaf = tree.leafOf[stack];
    const state = stateOf(stack);
    const ns = own[stack];
    const baseNs = base ? base[stack] : 0;
    if (leaf >= 0 && state >= 0 && (ns > 0 || baseNs > 0)) {
      values.own[leaf] += ns;
      values.base[leaf] += baseNs;
      byState[leaf * states + state] += ns;
      values.all += ns;
      values.baseAll += baseNs;
    }
  }
  const only = new Int32Array(count).fill(ROOT);
  const kids = new Uint8Array(count);
  const isForked = new Uint8Array(count);
  for (let node = count - 1; node >= 0; node -= 1) {
    const parent = tree.parent[node];
    const at = node * states;
    if (values.own[node] === 0 && values.base[node] === 0) {
      continue;
    }
    let most = 0;
    for (let state = 0; state < states; state += 1) {
      most = byState[at + state] > byState[at + most] ? state : most;
    }
    if (values.own[node] > 0) {
      values.state[node] = most;
      values.part[node] = byState[at + most] / values.own[node];
    }
    isForked[node] = Number(kids[node] > 1 || (kids[node] === 1 && isForked[only[node]] === 1));
    if (parent >= 0) {
      values.own[parent] += values.own[node];
      values.base[parent] += values.base[node];
      for (let state = 0; state < states; state += 1) {
        byState[parent * states + state] += byState[at + state];
      }
      kids[parent] = Math.min(2, kids[parent] + 1);
      only[parent] = node;
    }
  }
  const isEntry = tree.names.map((name) => ENTRY.test(name));
  for (let node = 0; node < count; node += 1) {
    const parent = tree.parent[node];
    const isTrunk = isOutermostFirst && isForked[node] === 1 && (parent < 0 || values.folded[parent] === node);
    const isWhole = kids[node] === 1 && values.own[only[node]] === values.own[node];
    if (isWhole && (isTrunk || isEntry[tree.name[node]])) {
      values.folded[node] = only[node];
    }
  }
  return values;
}

/**
 * Where each frame is that is wide enough; what is above the zoomed one has the whole width.
 * @param {Tree} tree
 * @param {Values} values
 * @param {number} zoom
 * @param {number} width
 * @returns {Box[]}
 */
export function laidOut(tree, values, zoom, width) {
  /** @type {Box[]} */
  const boxes = [];
  const above = [];
  for (let at = zoom; at !== ROOT; at = tree.parent[at]) {
    if (at === zoom || values.folded[at] === ROOT) {
      above.unshift(at);
    }
  }
  [ROOT, ...above].forEach((node, y) => boxes.push({ x: 0, y, width, node }));
  const top = boxes[boxes.length - 1];
  const whole = zoom === ROOT ? values.all : values.own[zoom];
  const scale = whole > 0 ? width / whole : 0;
  const waiting = [top];
  for (let box = waiting.pop(); box; box = waiting.pop()) {
    let { x } = box;
    for (let at = tree.first[box.node + 1]; at < tree.first[box.node + 2]; at += 1) {
      let child = tree.order[at];
      while (values.folded[child] !== ROOT) {
        child = values.folded[child];
      }
      const wide = values.own[child] * scale;
      if (wide >= LEAST_WIDTH) {
        const inner = { x, y: box.y + 1, width: wide, node: child };
        boxes.push(inner);
        waiting.push(inner);
      }
      x += wide;
    }
  }
  return boxes;
}
