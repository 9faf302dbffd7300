/**
 * Elements, made without markup: every text becomes a text node, so no value can become an element or an attribute.
 *
 * A view makes its elements anew for each change. `patch` then changes the shown elements to equal them, so that focus,
 * selection and scroll positions stay. Handlers are properties (`onclick`), which `patch` copies.
 */

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = /** @type {const} */ (["onclick", "onchange", "oninput", "onsubmit", "onkeydown", "onfocus",
  "onblur", "onpointerover", "onpointerout"]);

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, unknown>} Attributes */

/**
 * Make an HTML element. Attributes that are `null`, `undefined` or `false` are left out, `true` ones are empty, and
 * functions are handlers.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/**
 * Make an SVG element, with attributes as `html`.
 * @template {keyof SVGElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[Name]}
 */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/**
 * @template {Element} Made
 * @param {Made} element
 * @param {Attributes} attributes
 * @param {(Child | Child[])[]} children
 * @returns {Made}
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") Object.assign(element, { [name]: value });
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/**
 * Change the children of `parent` to equal `wanted`. An element with a `data-key` is changed only to one with the same
 * key.
 * @param {Element} parent
 * @param {Child[]} wanted
 */
export function show(parent, wanted) {
  patchChildren(parent, filled(document.createElement("div"), {}, [wanted]));
}

/**
 * @param {Node} old
 * @param {Node} fresh
 */
function patch(old, fresh) {
  if (old instanceof Element && fresh instanceof Element) {
    patchAttributes(old, fresh);
    patchChildren(old, fresh);
  } else if (old.nodeValue !== fresh.nodeValue) {
    old.nodeValue = fresh.nodeValue;
  }
}

/**
 * @param {Element} old
 * @param {Element} fresh
 */
function patchChildren(old, fresh) {
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const found = place && (isSame(place, child) ? place : keyed(place, child));
    if (!found) {
      old.insertBefore(child, place);
      continue;
    }
    if (found !== place) old.insertBefore(found, place);
    else place = place.nextSibling;
    patch(found, child);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/**
 * The later sibling of `place` with the key of `child`, if there is one.
 * @param {ChildNode} place
 * @param {Node} child
 * @returns {ChildNode | null}
 */
function keyed(place, child) {
  if (!keyOf(child)) return null;
  let later = place.nextSibling;
  while (later && !isSame(later, child)) later = later.nextSibling;
  return later;
}

/**
 * @param {Node} old
 * @param {Node} fresh
 */
function isSame(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.getAttribute("data-key") : null;
}

/**
 * @param {Element} old
 * @param {Element} fresh
 */
function patchAttributes(old, fresh) {
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const name of fresh.getAttributeNames()) {
    const value = fresh.getAttribute(name) ?? "";
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) {
    const from = /** @type {any} */ (fresh), to = /** @type {any} */ (old);
    if (to[name] !== from[name]) to[name] = from[name];
  }
  patchValue(old, fresh);
}

/**
 * The value of a control is not its attribute. What a user is writing stays.
 * @param {Element} old
 * @param {Element} fresh
 */
function patchValue(old, fresh) {
  if (old === document.activeElement) return;
  if (old instanceof HTMLInputElement && fresh instanceof HTMLInputElement) {
    old.value = fresh.value;
    old.checked = fresh.checked;
  } else if (old instanceof HTMLOptionElement && fresh instanceof HTMLOptionElement) {
    old.selected = fresh.defaultSelected;
  }
}
