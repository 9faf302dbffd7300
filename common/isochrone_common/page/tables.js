/** Sections and the parts of tables that several views have. */

import { html } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * A part of a view under a heading. Its key is the first word of its title.
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function section(title, ...children) {
  return html("section", { "data-key": title.split(" ", 1)[0] }, html("h2", {}, title), ...children);
}

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

/**
 * The name of a target, which breaks after its provider where there is little space. Without a `provider`, that is the part
 * before the first slash.
 * @param {string} target
 * @param {string} [provider]
 * @returns {Child[]}
 */
export function targetName(target, provider = target.split("/", 1)[0]) {
  const head = target.startsWith(`${provider}/`) ? `${provider}/` : "";
  return [head ? html("span", { class: "provider" }, head) : null, html("wbr"), html("b", {}, target.slice(head.length))];
}

/**
 * The name of a region, which breaks once at most, where there is little space.
 * @param {string} region
 * @returns {Child[]}
 */
export function regionName(region) {
  const [, head = "", rest = ""] = /^([^-]*-)?(.*)$/.exec(region) ?? [];
  return [head, html("wbr"), html("span", { class: "whole" }, rest)];
}

/**
 * Arrow keys move the focus among the cells of a table body: all of them together are one stop of the tab key.
 * @param {KeyboardEvent} event
 */
export function moveCell(event) {
  const from = event.target instanceof Element ? event.target.closest("td") : null;
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!from || !step) return;
  const row = /** @type {HTMLTableRowElement} */ (from.parentElement);
  const body = /** @type {HTMLTableSectionElement} */ (row.parentElement);
  let [line, column] = [row.sectionRowIndex, from.cellIndex];
  for (;;) {
    line += step[0] ?? 0;
    column += step[1] ?? 0;
    const next = body.rows[line]?.cells[column];
    if (!next) return;
    const button = next.querySelector("button");
    if (!button) continue;
    event.preventDefault();
    for (const other of body.querySelectorAll("button[tabindex='0']")) other.setAttribute("tabindex", "-1");
    button.setAttribute("tabindex", "0");
    button.focus();
    return;
  }
}
