// What happened in one request: its thread along time, and on the same axis the threads that held it up.

import { el, fill, hideTip, pic, showTip } from './dom.js';
import { duration, number, steps } from './format.js';
import { ledgerBar, statesOf } from './ledger.js';
import { FIRST_CLASS, LOST, ON_CPU, PREEMPTED, RUN_QUEUE, framesOf, timeOfDay } from './model.js';
import { look, view } from './state.js';

/**
 * @typedef {import('./model.js').Model} Model
 * @typedef {import('./model.js').Slow} Slow
 * @typedef {import('./model.js').Timeline} Timeline
 */

const LEFT = 250;
const OWN_HEIGHT = 34;
const LANE_HEIGHT = 24;
const GAP = 12;
const TOP = 4;
const AXIS = 22;
const BLOCKED = 3;
const BETWEEN = 4;
/** From here on no thread ran the request. */
const PARKED = 5;
/** Frames that a tip shows. */
const FRAMES = 16;
/** Those of the thread that ended a wait. */
const WAKER_FRAMES = 8;

/**
 * The timeline's place, and what draws the request of the view.
 * @param {Model} model
 * @returns {{node: HTMLElement, draw: () => void}}
 */
export function timeline(model) {
  const node = el('div', null);
  /** @type {[number, number] | null} */
  let zoom = null;
  let shown = 0;
  const resized = new ResizeObserver(() => draw());
  resized.observe(node);
  let lastWidth = 0;

  function draw() {
    const slow = model.slowById.get(view.request);
    if (!slow) {
      fill(node);
      shown = 0;
      return;
    }
    if (shown !== slow.id) {
      zoom = null;
      shown = slow.id;
    }
    if (node.clientWidth === 0) {
      return;
    }
    lastWidth = node.clientWidth;
    const name = model.types[slow.request] ?? '';
    const type = model.types.length > 1 && name !== 'request' ? `${name} ` : '';
    fill(node,
      el('div', { class: 'controls' },
        el('p', { class: 'lead' }, el('strong', null, `${type}request ${slow.id}`), ` took ${duration(slow.latency)}, thread ${slow.tid} (${slow.comm}), begun at ${timeOfDay(model, slow.begin)}`),
        zoom ? el('button', { type: 'button', class: 'quiet', onclick: () => zoomTo(null) }, 'Whole request') : null,
        el('button', { type: 'button', class: 'quiet', 'aria-label': 'Close the timeline', onclick: () => look({ request: 0 }) }, 'Close (Esc)')),
      slow.label ? el('p', { class: 'statement' }, slow.label) : null,
      el('div', { class: 'ledger-line' }, ledgerBar(model, statesOf(slow), slow.latency), states(model, slow)),
      slow.timeline ? [heldUp(model, slow.timeline), lanes(model, slow, slow.timeline, zoom, zoomTo, lastWidth), notes(slow.timeline)]
        : el('p', { class: 'empty' }, 'There is no timeline: the trace has no intervals. Trace with --html or --blame.'));
  }

  /** @param {[number, number] | null} part */
  function zoomTo(part) {
    zoom = part;
    hideTip();
    draw();
  }

  return { node, draw };
}

/**
 * The ledger of a request in words.
 * @param {Model} model
 * @param {Slow} slow
 * @returns {HTMLElement}
 */
function states(model, slow) {
  const parts = statesOf(slow).map((ns, at) => ({ ns, state: model.states[at] }))
    .filter(({ ns }) => ns > 0).sort((one, two) => two.ns - one.ns);
  return el('div', { class: 'legend', id: 'request-ledger', 'data-latency': slow.latency },
    parts.map(({ ns, state }) => el('span', { class: 'key', 'data-state': state.name, 'data-ns': ns },
      el('span', { class: 'swatch', style: { background: state.color } }), `${state.name} ${duration(ns)}`)));
}

/**
 * What a thread of a lane is to be called in a sentence.
 * @param {Model} model
 * @param {Timeline} line
 * @param {number} lane
 * @param {number} other
 * @returns {any}
 */
function whoWords(model, line, lane, other) {
  const [, tid, comm] = line.lanes[lane];
  if (other < 0) {
    return `thread ${tid} (${comm})`;
  }
  const [id, type, label, hasEnded] = line.others[other];
  const what = `${model.types[type] ?? 'request'} ${id > 0 ? id : '(not ended)'}${label ? ` ${label}` : ''}`;
  return hasEnded ? `thread ${tid} (${comm}), after ${what}` : `${what}, thread ${tid} (${comm})`;
}

/**
 * What a part of a timeline came down to; empty when other threads held that up, whose parts say it.
 * @param {Model} model
 * @param {Timeline} line
 * @param {number} segment
 * @returns {string}
 */
function endOf(model, line, segment) {
  const did = line.did[segment];
  const by = line.by[segment];
  if (did !== BLOCKED) {
    return line.lane[segment] === 0 ? '' : ['on CPU', 'run queue', 'preempted', '', 'between requests'][did];
  }
  if (by >= -2) {
    return '';
  }
  const wait = stateName(model, line, segment);
  return by <= -30 ? `${wait}, not known by whom` : `${wait}, until the ${byWords(model, line, by)}`;
}

/**
 * Who held the request up, the longest first.
 * @param {Model} model
 * @param {Timeline} line
 * @returns {HTMLElement | null}
 */
function heldUp(model, line) {
  /** @type {Map<string, {lane: number, other: number, ns: number, ends: Map<string, number>}>} */
  const sums = new Map();
  line.ns.forEach((ns, at) => {
    const end = endOf(model, line, at);
    if (!end) {
      return;
    }
    const key = `${line.lane[at]} ${line.other[at]}`;
    const sum = sums.get(key) ?? { lane: line.lane[at], other: line.other[at], ns: 0, ends: new Map() };
    sum.ns += ns;
    sum.ends.set(end, (sum.ends.get(end) ?? 0) + ns);
    sums.set(key, sum);
  });
  const sorted = [...sums.values()].sort((one, two) => two.ns - one.ns);
  if (sorted.length === 0) {
    return null;
  }
  const item = (/** @type {{lane: number, other: number, ns: number, ends: Map<string, number>}} */ sum) => {
    const id = sum.other >= 0 ? line.others[sum.other][0] : 0;
    const words = sum.lane === 0 ? 'its own wait:' : whoWords(model, line, sum.lane, sum.other);
    const ends = [...sum.ends].sort(([, one], [, two]) => two - one);
    return el('li', { 'data-ns': sum.ns },
      el('strong', null, duration(sum.ns)), ' ',
      model.slowById.has(id) && id !== view.request
        ? el('button', { type: 'button', class: 'link', onclick: () => look({ request: id }) }, words) : words,
      el('span', { class: 'ends' }, ` ${ends.slice(0, 3).map(([end, ns]) => `${end} ${duration(ns)}`).join('; ')}${ends.length > 3 ? '; …' : ''}`));
  };
  return el('div', { class: 'held-up', id: 'held-up' }, el('h3', null, 'It was held up by'),
    el('ol', null, sorted.slice(0, 6).map(item)),
    sorted.length > 6 ? el('p', { class: 'hint' }, `${number(sorted.length - 6)} more, each less than these.`) : null);
}

/**
 * The name of a wait class, in which a thread was blocked.
 * @param {Model} model
 * @param {Timeline} line
 * @param {number} segment
 * @returns {string}
 */
function stateName(model, line, segment) {
  return model.states[line.class[segment] < 0 ? LOST : FIRST_CLASS + line.class[segment]].name;
}

/**
 * The picture.
 * @param {Model} model
 * @param {Slow} slow
 * @param {Timeline} line
 * @param {[number, number] | null} zoom
 * @param {(part: [number, number] | null) => void} zoomTo
 * @param {number} width
 * @returns {HTMLElement}
 */
function lanes(model, slow, line, zoom, zoomTo, width) {
  const [from, to] = zoom ?? [0, slow.latency];
  const height = TOP + OWN_HEIGHT + (line.lanes.length - 1) * (LANE_HEIGHT + GAP) + GAP + AXIS;
  const xOf = (/** @type {number} */ ns) => LEFT + ((ns - from) / Math.max(1, to - from)) * (width - LEFT - 8);
  const yOf = (/** @type {number} */ lane) => (lane === 0 ? TOP : TOP + OWN_HEIGHT + GAP + (lane - 1) * (LANE_HEIGHT + GAP));
  const heightOf = (/** @type {number} */ lane) => (lane === 0 ? OWN_HEIGHT : LANE_HEIGHT);
  const svg = pic('svg', {
    id: 'timeline-picture', class: 'timeline', width, height, role: 'img',
    'aria-label': 'What the request and the threads that held it up did along time',
  });
  svg.append(pic('defs', null, pic('marker', { id: 'head', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto' },
    pic('path', { d: 'M0 0L8 4L0 8z', class: 'arrow-head' }))));
  line.lanes.forEach(([, tid, comm], lane) => {
    const y = yOf(lane) + heightOf(lane) / 2;
    const name = lane === 0 ? `request ${slow.id}` : laneName(model, line, lane);
    svg.append(pic('text', { x: 0, y: y - 1, class: lane === 0 ? 'lane own' : 'lane' }, cut(name, 36), pic('title', null, name)));
    svg.append(pic('text', { x: 0, y: y + 11, class: 'lane-thread' }, cut(`thread ${tid} (${comm})`, 40)));
    svg.append(pic('rect', { x: LEFT, y: yOf(lane), width: width - LEFT - 8, height: heightOf(lane), class: 'track' }));
  });
  const clip = (/** @type {number} */ begin, /** @type {number} */ end) => [Math.max(begin, from), Math.min(end, to)];
  const rect = (/** @type {number} */ lane, /** @type {number} */ begin, /** @type {number} */ end, /** @type {string} */ color, /** @type {string} */ css) => {
    const [left, right] = clip(begin, end);
    return pic('rect', {
      x: xOf(left), y: yOf(lane), width: Math.max(0.6, xOf(right) - xOf(left)), height: heightOf(lane), fill: color, class: css,
    });
  };
  // The request's own thread is on a CPU where it is not off it.
  let at = 0;
  for (const segment of own(line)) {
    if (line.from[segment] > at && line.from[segment] > from && at < to) {
      svg.append(onCpu(line, rect(0, at, line.from[segment], model.states[ON_CPU].color, 'segment'), at, line.from[segment]));
    }
    at = Math.max(at, line.from[segment] + line.ns[segment]);
  }
  if (at < slow.latency && at < to) {
    svg.append(onCpu(line, rect(0, at, slow.latency, model.states[ON_CPU].color, 'segment'), at, slow.latency));
  }
  const arrows = [];
  for (let segment = 0; segment < line.ns.length; segment += 1) {
    const begin = line.from[segment];
    const end = begin + line.ns[segment];
    if (end < from || begin > to) {
      continue;
    }
    const lane = line.lane[segment];
    const did = line.did[segment];
    const state = [ON_CPU, RUN_QUEUE, PREEMPTED][did] ?? (line.class[segment] < 0 ? LOST : FIRST_CLASS + line.class[segment]);
    const shape = did === BETWEEN ? rect(lane, begin, end, 'none', 'segment between') : rect(lane, begin, end, model.states[state].color, 'segment');
    shape.dataset.lane = lane;
    shape.dataset.did = did;
    shape.dataset.ns = line.ns[segment];
    shape.dataset.wokenFrom = line.woken_from[segment];
    shape.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => showTip(event, tipOf(model, line, segment)));
    shape.addEventListener('pointerleave', hideTip);
    const id = line.other[segment] >= 0 ? line.others[line.other[segment]][0] : 0;
    if (lane > 0 && model.slowById.has(id) && id !== slow.id) {
      shape.classList.add('opens');
      shape.addEventListener('click', () => look({ request: id }));
    }
    svg.append(shape);
    const by = line.by[segment];
    if (by >= 0 && by !== lane && end >= from && end <= to) {
      arrows.push({ from: by, to: lane, x: xOf(end), ns: line.ns[segment] });
    }
  }
  arrows.sort((one, two) => two.ns - one.ns).slice(0, 60).forEach((arrow) => {
    const up = arrow.from > arrow.to;
    const start = up ? yOf(arrow.from) : yOf(arrow.from) + heightOf(arrow.from);
    const end = up ? yOf(arrow.to) + heightOf(arrow.to) : yOf(arrow.to);
    svg.append(pic('line', { x1: arrow.x, x2: arrow.x, y1: start, y2: end, class: 'arrow', 'marker-end': 'url(#head)' }));
  });
  const ticks = steps(from, to, Math.max(2, (width - LEFT) / 100));
  for (const tick of ticks) {
    svg.append(pic('text', { x: xOf(tick), y: height - 6, class: 'tick', 'text-anchor': tick === from ? 'start' : xOf(tick) > width - 40 ? 'end' : 'middle' }, tick === 0 ? '0' : duration(tick).replace(/\.0+ /, ' ')));
    svg.append(pic('line', { x1: xOf(tick), x2: xOf(tick), y1: TOP, y2: height - AXIS, class: 'grid' }));
  }
  draggable(svg, (x) => Math.min(to, Math.max(from, from + ((x - LEFT) / (width - LEFT - 8)) * (to - from))), zoomTo);
  return el('div', { class: 'lanes' }, svg);
}

/**
 * Indices of the request's own segments, in order of time.
 * @param {Timeline} line
 * @returns {number[]}
 */
function own(line) {
  return [...line.lane.keys()].filter((at) => line.lane[at] === 0).sort((one, two) => line.from[one] - line.from[two]);
}

/**
 * @param {Timeline} line
 * @param {any} shape
 * @param {number} begin
 * @param {number} end
 * @returns {any}
 */
function onCpu(line, shape, begin, end) {
  const isSure = line.missing === 0 && line.left_out[0][0] === 0;
  shape.dataset.lane = '0';
  shape.dataset.did = '0';
  shape.dataset.ns = String(end - begin);
  shape.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => showTip(event, [
    `on CPU ${duration(end - begin)}`, isSure ? null : 'or in an interval that was left out or lost']));
  shape.addEventListener('pointerleave', hideTip);
  return shape;
}

/**
 * @param {Model} model
 * @param {Timeline} line
 * @param {number} lane
 * @returns {string}
 */
function laneName(model, line, lane) {
  /** @type {Map<number, number>} */
  const sums = new Map();
  line.ns.forEach((ns, at) => {
    if (line.lane[at] === lane) {
      sums.set(line.other[at], (sums.get(line.other[at]) ?? 0) + ns);
    }
  });
  const [most] = [...sums].sort(([, one], [, two]) => two - one)[0] ?? [-1];
  if (most < 0) {
    return 'in no request';
  }
  const [id, type, label, hasEnded] = line.others[most];
  const more = sums.size > 1 ? ` +${sums.size - 1}` : '';
  return `${hasEnded ? 'after ' : ''}${label || model.types[type]} ${id > 0 ? id : ''}${more}`;
}

/**
 * @param {Model} model
 * @param {Timeline} line
 * @param {number} segment
 * @returns {any[]}
 */
function tipOf(model, line, segment) {
  const did = line.did[segment];
  const lane = line.lane[segment];
  const name = did === BLOCKED || did >= PARKED ? stateName(model, line, segment)
    : ['on CPU', 'run queue', 'preempted', '', 'between its requests'][did];
  const tip = [`${name} ${duration(line.ns[segment])}`, `at ${duration(line.from[segment])}`];
  if (lane > 0) {
    tip.push(whoWords(model, line, lane, line.other[segment]));
  }
  tip.push(...frameLines(model, line.stack[segment], FRAMES));
  const by = line.by[segment];
  if ((did === BLOCKED || did === PARKED) && by !== -1) {
    const from = line.woken_from[segment];
    tip.push(`ended by ${byWords(model, line, by)}${from >= 0 ? ', which was in' : ''}`);
    tip.push(...frameLines(model, from, WAKER_FRAMES));
  }
  return tip;
}

/**
 * The innermost frames of a stack, a line each.
 * @param {Model} model
 * @param {number} stack -1 for none
 * @param {number} most
 * @returns {any[]}
 */
function frameLines(model, stack, most) {
  const frames = stack >= 0 ? framesOf(model, stack) : [];
  const lines = frames.slice(0, most).map((frame) => el('code', null, `← ${frame}`));
  return frames.length > most ? [...lines, `← ${frames.length - most} more`] : lines;
}

/**
 * @param {Model} model
 * @param {Timeline} line
 * @param {number} by
 * @returns {string}
 */
function byWords(model, line, by) {
  if (by >= 0) {
    const [, tid, comm] = line.lanes[by];
    return by === 0 ? 'the request itself' : `thread ${tid} (${comm})`;
  }
  if (by === -2) {
    return 'another thread';
  }
  return by <= -30 ? `nobody known: ${model.reasons[-30 - by]}` : model.causes[-10 - by][1];
}

/**
 * What a timeline does not have.
 * @param {Timeline} line
 * @returns {HTMLElement}
 */
function notes(line) {
  const [[ownCount, ownNs], [otherCount, otherNs]] = line.left_out;
  const texts = ['A drag along the time shows that part of it; a click on a request in another lane opens that request. Arrows show who woke whom.'];
  if (ownCount > 0) {
    texts.push(`${number(ownCount)} of its shortest intervals are left out, ${duration(ownNs)} together.`);
  }
  if (otherCount > 0) {
    texts.push(`${number(otherCount)} short parts of others are left out, ${duration(otherNs)} together.`);
  }
  if (line.lanes_left_out > 0) {
    texts.push(`${number(line.lanes_left_out)} more threads held it up, each less than these.`);
  }
  if (line.missing > 0) {
    texts.push(`${duration(line.missing)} off the CPU are in no interval: records were lost.`);
  }
  return el('p', { class: 'hint' }, texts.join(' '));
}

/**
 * Lets a part be chosen by dragging.
 * @param {any} svg
 * @param {(x: number) => number} nsAt
 * @param {(part: [number, number]) => void} zoomTo
 */
function draggable(svg, nsAt, zoomTo) {
  let start = -1;
  const mark = pic('rect', { class: 'marked', y: 0, height: svg.getAttribute('height'), width: 0 });
  const xOf = (/** @type {PointerEvent} */ event) => event.clientX - svg.getBoundingClientRect().left;
  svg.addEventListener('pointerdown', (/** @type {PointerEvent} */ event) => {
    start = event.button === 0 && xOf(event) >= LEFT ? xOf(event) : -1;
  });
  svg.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
    if (start >= 0 && Math.abs(xOf(event) - start) > 4) {
      if (!mark.isConnected) {
        svg.append(mark);
        svg.setPointerCapture(event.pointerId);
      }
      mark.setAttribute('x', String(Math.max(LEFT, Math.min(start, xOf(event)))));
      mark.setAttribute('width', String(Math.abs(xOf(event) - start)));
    }
  });
  svg.addEventListener('pointerup', (/** @type {PointerEvent} */ event) => {
    const [from, to] = [nsAt(Math.min(start, xOf(event))), nsAt(Math.max(start, xOf(event)))];
    const isDrag = mark.isConnected && to - from >= 10;
    mark.remove();
    start = -1;
    if (isDrag) {
      zoomTo([from, to]);
    }
  });
}

/**
 * @param {string} text
 * @param {number} letters
 * @returns {string}
 */
function cut(text, letters) {
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}
