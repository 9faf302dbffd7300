/**
 * A box with the facts behind a mark, while the pointer or the focus is on it. On a narrow screen it is at the bottom. It
 * repeats what the label of the mark says, so it is hidden from screen readers.
 */

import { html, show } from "./dom.js";

/** @typedef {[name: string, text: string][]} Facts */

const GAP_PX = 8;
const box = html("div", { class: "details", "aria-hidden": "true", hidden: true });
/** @type {Element | null} */
let owner = null;

/** Add the box to the page. */
export function addDetails() {
  document.body.append(box);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", follow, { capture: true, passive: true });
}

/**
 * Handlers that show facts under a title.
 * @param {string} title
 * @param {Facts} facts
 */
export function detailsOf(title, facts) {
  const open = (/** @type {Event} */ event) => {
    owner = /** @type {Element} */ (event.currentTarget);
    fill(title, facts);
    box.hidden = false;
    place(owner.getBoundingClientRect());
  };
  return { onpointerover: open, onfocus: open, onclick: open, onpointerout: hide, onblur: hide };
}

/** The focus scrolls its mark into the window: then the box stays with it. */
function follow() {
  const mark = owner && owner === document.activeElement ? owner.getBoundingClientRect() : null;
  if (mark && mark.bottom > 0 && mark.top < innerHeight) place(mark);
  else hide();
}

function hide() {
  owner = null;
  box.hidden = true;
}

/**
 * @param {string} title
 * @param {Facts} facts
 */
function fill(title, facts) {
  show(box, [html("b", {}, title), html("dl", {}, ...facts.flatMap(([name, text]) => [html("dt", {}, name), html("dd", {}, text)]))]);
}

/**
 * Below the mark, or above it, within the window.
 * @param {DOMRect} mark
 */
function place(mark) {
  const { width, height } = box.getBoundingClientRect();
  const below = mark.bottom + GAP_PX, above = mark.top - height - GAP_PX;
  const left = Math.min(Math.max(GAP_PX, mark.left + mark.width / 2 - width / 2), innerWidth - width - GAP_PX);
  box.style.setProperty("--left", `${left}px`);
  box.style.setProperty("--top", `${below + height > innerHeight && above > 0 ? above : below}px`);
}
