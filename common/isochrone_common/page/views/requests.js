/** Single requests that a filter selects, each with its phases. */

import { apiPath } from "../api.js";
import { windowChoice } from "../controls.js";
import { html, svg } from "../dom.js";
import { isKnown, moment, number } from "../formats.js";
import { dataTable, heading, scrolling, targetName } from "../tables.js";
import { windowQuery, withOptions } from "../url_state.js";
import { phasesOf } from "./target_model.js";

/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("../dom.js").Child} Child */

const MOST = "200", EXAMPLE = "ttft>500 outcome:timed_out region:eu-*";

/** @type {import("../views.js").View} */
export const REQUESTS = {
  name: "requests",
  label: "Requests",
  path: "/requests",
  defaults: { filter: "", sample: "" },
  topics: ["samples"],
  // An opened request is shown when it is known; it may be kept no more.
  optional: ["opened"],
  requests: ({ options }) => ({
    samples: apiPath("/v1/samples", { ...windowQuery(options), filter: options["filter"] ?? "", limit: MOST }),
    ...(options["sample"] && { opened: `/v1/samples/${encodeURIComponent(options["sample"])}` }),
  }),
  render: ({ samples, opened }, context) => ({
    title: "Requests",
    content: [controls(context), ...(samples ? [list(samples.rows.toReversed(), opened?.rows[0], context)] : [])],
  }),
};

/** @param {Context} context */
function controls({ state, set, ...context }) {
  return html("form", { class: "controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    windowChoice({ state, set, ...context }),
    html("label", { class: "field filter" }, html("span", {}, "Filter: all words hold"),
      html("input", { type: "search", name: "filter", value: state.options["filter"], placeholder: EXAMPLE, autocomplete: "off", spellcheck: "false",
        onchange: (/** @type {Event} */ event) => set({ filter: /** @type {HTMLInputElement} */ (event.target).value.trim(), sample: "" }) })));
}

/**
 * The newest requests, each a link that opens it in its place.
 * @param {any[]} rows
 * @param {any} opened
 * @param {Context} context
 */
function list(rows, opened, context) {
  const { state } = context, isListed = rows.some((row) => row.id === opened?.id);
  if (!rows.length && !opened) {
    return html("p", { class: "empty" }, state.options["filter"] ? "No request of this window passes the filter." : "There is no request in this window.");
  }
  const columns = [heading("round", { unit: "UTC", kind: "name" }), heading("target", { unit: "region", kind: "name" }), heading("outcome", { kind: "name" }),
    heading("first token", { unit: "ms" }), heading("total", { unit: "ms", kind: "minor" }), heading("speed", { unit: "tokens/s", kind: "minor" })];
  const shown = opened && !isListed ? [opened, ...rows] : rows;
  return dataTable(`The newest ${MOST} requests at most, newest first`, columns, shown.flatMap((row) => {
    const isOpen = row.id === opened?.id;
    return [line(row, isOpen, context), ...(isOpen ? [html("tr", { "data-key": `opened ${row.id}` }, html("td", { class: "name", colspan: columns.length }, waterfall(row), facts(row)))] : [])];
  }), "requests");
}

/**
 * @param {any} row
 * @param {boolean} isOpen
 * @param {Context} context
 */
function line(row, isOpen, { state, now, href }) {
  const ms = (/** @type {import("../formats.js").Maybe} */ us) => number(isKnown(us) ? us / 1000 : null, { decimals: 0 });
  return html("tr", { "data-key": row.id, class: isOpen ? "shown" : null },
    html("th", { scope: "row" }, html("a", { href: href(withOptions(state, { sample: isOpen ? "" : row.id })), "aria-expanded": String(isOpen) }, moment(row.round_at, now))),
    html("td", { class: "name" }, targetName(row.target), html("small", {}, row.region)),
    html("td", { class: row.outcome === "ok" ? "name" : "name warn" }, row.outcome, row.http_status && row.http_status !== 200 ? ` ${row.http_status}` : null,
      row.error ? html("small", {}, row.error) : null),
    html("td", {}, ms(row.ttft_us)), html("td", { class: "minor" }, ms(row.e2e_us)), html("td", { class: "minor" }, number(row.tokens_per_second)));
}

/** @param {any} sample */
function waterfall(sample) {
  const phases = phasesOf(sample), total = phases.at(-1)?.until || 1;
  if (!phases.length) return html("p", { class: "empty" }, "No phase of this request is known.");
  const share = (/** @type {number} */ us) => `${(us / total * 100).toFixed(3)}%`;
  const ms = (/** @type {number} */ us) => number(us / 1000);
  return scrolling("phases of the request",
    html("table", { class: "waterfall" }, html("caption", {}, "milliseconds"),
    html("thead", {}, html("tr", {}, html("th", { scope: "col", class: "name" }, "phase"), html("td"), html("th", { scope: "col" }, "took"), html("th", { scope: "col" }, "ended at"))),
    html("tbody", {}, ...phases.map(({ name, from, until }, place) => html("tr", { "data-key": name }, html("th", { scope: "row" }, name),
      html("td", { class: "drawing" }, svg("svg", { "aria-hidden": "true" }, svg("rect", { class: `phase${place}`, x: share(from), width: share(until - from), y: 2, height: 14 }))),
      html("td", {}, ms(until - from)), html("td", {}, ms(until)))))));
}

/** @param {any} sample */
function facts(sample) {
  /** @type {[string, unknown][]} */
  const known = [["outcome", sample.outcome], ["HTTP status", sample.http_status], ["error", sample.error], ["vantage", sample.vantage],
    ["address", sample.remote_address], ["edge", sample.edge], ["output tokens", sample.output_tokens],
    ["tokens/s", isKnown(sample.tokens_per_second) ? number(sample.tokens_per_second) : null], ["stalls", sample.stalls],
    ["unknown frames", sample.frames_unknown || null], ["sample", sample.id]];
  return html("dl", { class: "sample-facts" }, ...known.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, String(value)))));
}
