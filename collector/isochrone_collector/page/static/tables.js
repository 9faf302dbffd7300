/** The parts of tables that several views have. */

import { html } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * A region that scrolls sideways where its table is too wide.
 * @param {string} label
 * @param {HTMLTableElement} table
 * @param {string | null} [key]
 */
export function scrolling(label, table, key = null) {
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label, "data-key": key }, table);
}

/**
 * A table with a label for screen readers, in a region that scrolls.
 * @param {string} label
 * @param {readonly Child[]} headings
 * @param {HTMLTableRowElement[]} rows
 * @param {string | null} [kind] its class
 */
export function dataTable(label, headings, rows, kind = null) {
  return scrolling(label, html("table", { class: kind }, html("caption", { class: "unseen" }, label),
    html("thead", {}, html("tr", {}, [...headings])), html("tbody", {}, ...rows)), label);
}

/**
 * @param {string} text
 * @param {{unit?: string, kind?: string}} [more]
 */
export function heading(text, { unit = "", kind = "" } = {}) {
  return html("th", { scope: "col", class: kind || null }, text, unit ? html("small", {}, unit) : null);
}
