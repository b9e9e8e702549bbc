// Elements: names, attributes and text in, nodes out. Text is only ever set as text: names are of strangers.

/** @typedef {Node | string | number | null | undefined} Child */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * An element. What begins with `on` is a listener, `style` an object, and what is null is left out.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * An element of a picture.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function pic(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @param {any} node
 * @param {Record<string, any> | null | undefined} attributes
 * @param {(Child | Child[])[]} children
 */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (name === 'style') {
      Object.assign(node.style, value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/**
 * Puts other children into an element.
 * @param {Element} node
 * @param {...(Child | Child[])} children
 */
export function fill(node, ...children) {
  node.replaceChildren();
  filled(node, null, children);
}

/** @type {HTMLElement | null} */
let tipNode = null;

/**
 * Shows lines beside the pointer; the first is the title.
 * @param {{clientX: number, clientY: number}} event
 * @param {Child[]} lines
 */
export function showTip(event, lines) {
  if (!tipNode) {
    tipNode = el('div', { class: 'tip', role: 'tooltip' });
    document.body.append(/** @type {Node} */ (tipNode));
  }
  const tip = /** @type {HTMLElement} */ (tipNode);
  fill(tip, lines.map((line, at) => el('div', { class: at === 0 ? 'tip-title' : null }, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 14 + width > innerWidth;
  const low = event.clientY + 14 + height > innerHeight;
  tip.style.left = `${Math.max(4, right ? event.clientX - width - 10 : event.clientX + 14)}px`;
  tip.style.top = `${Math.max(4, low ? event.clientY - height - 10 : event.clientY + 14)}px`;
}

/** Hides what `showTip` has shown. */
export function hideTip() {
  if (tipNode) {
    tipNode.hidden = true;
  }
}

/**
 * A canvas made as sharp as the screen; what is drawn on it is in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/**
 * A colour of the style sheet.
 * @param {string} name
 * @returns {string}
 */
export function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * Holds the window's `load` back, for which headless browsers wait before they take a picture: a document that is
 * being written does so.
 * @returns {() => void} lets it go
 */
export function holdLoad() {
  const frame = el('iframe', { hidden: true });
  document.body.append(frame);
  frame.contentDocument.open();
  return () => {
    frame.contentDocument.close();
    frame.remove();
  };
}

/**
 * A card with a heading.
 * @param {string} id
 * @param {string} title
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function card(id, title, ...children) {
  return el('section', { id, class: 'card', 'aria-labelledby': `${id}-title` },
    el('h2', { id: `${id}-title` }, title), ...children);
}
