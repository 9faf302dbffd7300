/** Controls of views: labelled choices whose values are options in the address. */

import { REPORT } from "./api.js";
import { html } from "./dom.js";

const WINDOWS = /** @type {[string, string][]} */ ([["15m", "15 min"], ["1h", "1 hour"], ["6h", "6 hours"],
  ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]]);
const SEARCH_PAUSE_MS = 150;

/**
 * A select with a label. A value that is not among the entries, from an address, is added.
 * @param {string} label
 * @param {readonly [value: string, text: string][]} entries
 * @param {string | undefined} chosen
 * @param {(value: string) => void} onChoice
 */
export function choice(label, entries, chosen = "", onChoice) {
  const all = entries.some(([value]) => value === chosen) ? entries : [...entries, [chosen, chosen]];
  return html("label", { class: "field", "data-key": label }, html("span", {}, label),
    html("select", { name: label, onchange: (/** @type {Event} */ event) => onChoice(valueOf(event)) },
      ...all.map(([value, text]) => html("option", { value, selected: value === chosen, "data-key": value }, text ?? value))));
}

/**
 * A choice of a few, all of them shown.
 * @param {string} label
 * @param {readonly [value: string, text: string][]} entries
 * @param {string} chosen
 * @param {(value: string) => void} onChoice
 */
export function segments(label, entries, chosen, onChoice) {
  return html("fieldset", { class: "segments" }, html("legend", {}, label),
    html("div", {}, ...entries.map(([value, text]) => html("label", { "data-key": value },
      html("input", { type: "radio", name: label, value, checked: value === chosen,
        onchange: (/** @type {Event} */ event) => onChoice(valueOf(event)) }),
      html("span", {}, text)))));
}

/**
 * A text field that searches while it is written.
 * @param {string} label
 * @param {string} text
 * @param {(text: string) => void} onText
 */
export function search(label, text, onText) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  return html("label", { class: "field", "data-key": label }, html("span", {}, label),
    html("input", { type: "search", name: label, value: text, placeholder: "part of a name", autocomplete: "off",
      oninput: (/** @type {Event} */ event) => {
        clearTimeout(timer);
        timer = setTimeout(onText, SEARCH_PAUSE_MS, valueOf(event));
      } }));
}

/**
 * The window of a view; none in a report, which has one. A window with fixed ends comes from the address; another choice ends it.
 * @param {import("./views.js").Context} context
 */
export function windowChoice({ state, set }) {
  if (REPORT) return null;
  const { from, until, window } = state.options;
  const fixed = from ? `${from} – ${until || "now"}` : "";
  /** @type {[string, string][]} */
  const entries = fixed ? [...WINDOWS, [fixed, fixed]] : WINDOWS;
  return choice("Window", entries, fixed || window, (value) =>
    set(value === fixed ? {} : { window: value, from: "", until: "" }));
}

/** @param {Event} event */
function valueOf(event) {
  return /** @type {HTMLInputElement | HTMLSelectElement} */ (event.target).value;
}
