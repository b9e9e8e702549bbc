// The differential flame graph: stacks with both times in; frames as wide as one of them, coloured by the change, out.

import { el, fill, hideTip, showTip, sized, themed } from './dom.js';
import { duration } from './format.js';

/**
 * @typedef {{name: string, a: number, b: number, children: Map<string, Frame>}} Frame
 * @typedef {{frame: Frame, x: number, y: number, width: number}} Laid
 */

const FRAME_ROW = 18;

/**
 * The picture, and what redraws it.
 * @returns {{node: HTMLElement, draw: (stacks: [string, number, number][]) => void}}
 */
export function diffFlame() {
  const canvas = el('canvas', { id: 'flame-picture', tabindex: '0', role: 'img', 'aria-label': 'Differential flame graph. A click zooms, Escape goes back.' });
  const words = el('p', { id: 'flame-words', class: 'hint' });
  const kinds = [['b', 'As wide as B'], ['gone', 'Gone: only in A']];
  const buttons = kinds.map(([kind, name]) => el('button', { type: 'button', 'data-flame': kind, onclick: () => show(kind) }, name));
  const whole = el('button', { type: 'button', class: 'quiet', onclick: () => zoomTo(root) }, 'Whole graph');
  const search = el('input', { id: 'flame-search', type: 'search', placeholder: 'Search frames', 'aria-label': 'Search frames', spellcheck: 'false', oninput: () => paint() });
  const legend = el('div', { class: 'legend' }, [['--more', 'more a request than in A'], ['--less', 'less'], ['--hit', 'new']].map(([color, name]) => (
    el('span', { class: 'key' }, el('span', { class: 'swatch', style: { background: themed(color) } }), name))));
  const wrap = el('div', { class: 'flame' }, canvas);
  const node = el('div', null, el('div', { class: 'controls' }, el('span', { class: 'group', role: 'group' }, buttons), whole, search), words, legend, wrap);
  /** @type {[string, number, number][]} */
  let stacks = [];
  let kind = 'b';
  /** @type {Frame} */
  let root = blank('all');
  /** @type {Frame} */
  let zoom = root;
  /** @type {Laid[]} */
  let boxes = [];

  /**
   * @param {string} name
   * @returns {Frame}
   */
  function blank(name) {
    return { name, a: 0, b: 0, children: new Map() };
  }

  /** @param {string} wanted */
  function show(wanted) {
    kind = wanted;
    root = blank('all');
    for (const [name, a, b] of stacks) {
      if (kind === 'gone' && !(a > 0 && b === 0)) {
        continue;
      }
      let frame = root;
      frame.a += a;
      frame.b += b;
      for (const part of name.split(';')) {
        if (part === '-') {
          continue;
        }
        let next = frame.children.get(part);
        if (!next) {
          next = blank(part);
          frame.children.set(part, next);
        }
        next.a += a;
        next.b += b;
        frame = next;
      }
    }
    for (const button of buttons) {
      button.setAttribute('aria-pressed', String(button.dataset.flame === kind));
    }
    words.dataset.a = String(root.a);
    words.dataset.b = String(root.b);
    fill(words, kind === 'b' ? `${duration(root.b)} in B; A, as if it had as many requests, has ${duration(root.a)}.`
      : `${duration(root.a)} of A is in stacks that B does not have.`);
    zoomTo(root);
  }

  /** @param {Frame} frame */
  function sizeOf(frame) {
    return kind === 'gone' ? frame.a : frame.b;
  }

  /** @param {Frame} frame */
  function zoomTo(frame) {
    zoom = frame;
    hideTip();
    paint();
  }

  /** @param {Frame} frame */
  function colorOf(frame) {
    if (frame.a === 0) {
      return themed('--hit');
    }
    const change = (frame.b - frame.a) / Math.max(frame.a, frame.b);
    return `color-mix(in oklab, ${themed(change > 0 ? '--more' : '--less')} ${Math.round(Math.min(1, Math.abs(change) * 2) * 100)}%, ${themed('--mixed')})`;
  }

  function paint() {
    const width = Math.max(320, wrap.clientWidth);
    boxes = [];
    /**
     * @param {Frame} frame
     * @param {number} x
     * @param {number} y
     * @param {number} scale
     */
    function lay(frame, x, y, scale) {
      const wide = sizeOf(frame) * scale;
      if (wide < 0.4) {
        return;
      }
      boxes.push({ frame, x, y, width: wide });
      let at = x;
      for (const child of [...frame.children.values()].sort((one, two) => (one.name < two.name ? -1 : 1))) {
        lay(child, at, y + 1, scale);
        at += sizeOf(child) * scale;
      }
    }
    const all = sizeOf(zoom);
    if (all > 0) {
      lay(zoom, 0, 0, width / all);
    }
    const depth = boxes.reduce((most, box) => Math.max(most, box.y), 0) + 1;
    const context = sized(canvas, width, depth * FRAME_ROW + 2);
    context.font = '12px ui-monospace, "DejaVu Sans Mono", monospace';
    context.textBaseline = 'middle';
    const letter = context.measureText('m').width;
    const wanted = search.value.toLowerCase();
    let found = 0;
    for (const { frame, x, y, width: wide } of boxes) {
      const isHit = wanted !== '' && frame.name.toLowerCase().includes(wanted);
      found += Number(isHit);
      context.globalAlpha = wanted === '' || isHit ? 1 : 0.35;
      context.fillStyle = frame === root ? themed('--mixed') : colorOf(frame);
      context.fillRect(x, y * FRAME_ROW, Math.max(0.4, wide - 0.5), FRAME_ROW - 1);
      const letters = Math.floor((wide - 6) / letter);
      if (letters >= 3) {
        context.fillStyle = themed('--frame-ink');
        context.fillText(frame.name.length > letters ? `${frame.name.slice(0, letters - 1)}…` : frame.name, x + 3, y * FRAME_ROW + FRAME_ROW / 2);
      }
    }
    context.globalAlpha = 1;
    canvas.dataset.frames = String(boxes.length);
    canvas.dataset.found = String(found);
    whole.disabled = zoom === root;
  }

  /**
   * @param {MouseEvent} event
   * @returns {Laid | undefined}
   */
  function boxAt(event) {
    const { left, top } = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, Math.floor((event.clientY - top) / FRAME_ROW)];
    return boxes.find((box) => box.y === y && x >= box.x && x < box.x + box.width);
  }

  canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
    const box = boxAt(event);
    if (!box) {
      hideTip();
      return;
    }
    showTip(event, [box.frame.name, `A ${duration(box.frame.a)}, B ${duration(box.frame.b)}: ${duration(box.frame.b - box.frame.a)}`]);
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('click', (/** @type {MouseEvent} */ event) => {
    const box = boxAt(event);
    if (box) {
      zoomTo(box.frame);
    }
  });
  canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Escape') {
      zoomTo(root);
    }
  });
  new ResizeObserver(paint).observe(wrap);
  return {
    node,
    draw: (wanted) => {
      stacks = wanted;
      show(kind);
    },
  };
}
