/** The section of a target that shows which phases its differences from the baseline come from. */

import { html, svg } from "../dom.js";
import { commonDecimals, interval, number } from "../formats.js";
import { dataTable, heading } from "../tables.js";
import { PHASE_NAMES, phaseRows } from "./phases_model.js";
import { legendOf, percentOf, sameAsTable } from "./target_charts.js";

const PLACES = Object.keys(PHASE_NAMES);

/**
 * The contribution of each phase per region, as a drawing and as numbers; nothing if no phase is known.
 * @param {any} diff
 * @param {string} target
 * @param {import("../views.js").Context} context
 */
export function phasesSection(diff, target, context) {
  const { rows, names, from, until } = phaseRows(diff, target);
  if (!rows.length) return [];
  const title = `Difference from ${rows[0]?.baseline} by phase, ms`;
  const decimals = commonDecimals(rows.flatMap((row) => [row.all, ...[...row.parts.values()].map((part) => part.shift)]));
  const signed = (/** @type {number | undefined} */ value) => number(value, { decimals, signed: true });
  const drawn = PLACES.filter((name) => rows.some((row) => row.segments.some((segment) => segment.name === name)));
  const columns = names.flatMap((name) => (name === "server" ? [name, "all"] : [name]));
  return [html("section", { class: "phases", "data-key": "phases" }, html("h2", {}, title),
    html("p", { class: "note" }, noteOf(names)),
    legendOf(drawn.map((name) => [`part${PLACES.indexOf(name)}`, PHASE_NAMES[name] ?? name])),
    dataTable(title, [heading("region", { kind: "name" }), html("td"), ...columns.map((name) => heading(PHASE_NAMES[name] ?? name)), heading("rounds")],
      rows.map((row) => html("tr", { "data-key": row.region }, html("th", { scope: "row" }, row.region),
        html("td", { class: "drawing" }, drawingOf(row, from, until)),
        ...columns.map((name) => html("td", { class: name === "all" ? "sum" : null }, signed(name === "all" ? row.all : row.parts.get(name)?.shift))),
        html("td", {}, row.n))), "contributions"),
    sameAsTable("parts", "parts of the differences in ms, with 95 % intervals, and the medians of both sides",
      ["region", "phase", "difference", "95 % interval", "median", "median of the baseline", "rounds"],
      () => rows.flatMap((row) => [...row.parts.values()].map((part) => ({ key: `${row.region} ${part.name}`, cells: [row.region,
        PHASE_NAMES[part.name] ?? part.name, number(part.shift, { signed: true }), interval(part.low, part.high, { signed: true }),
        number(part.region), number(part.baseline), part.n] }))), context))];
}

/** @param {readonly string[]} names */
function noteOf(names) {
  const whole = names.some((name) => ["dns", "tcp", "tls"].includes(name)) ? "first token over a fresh connection" : "first token";
  const own = names.includes("provider") ? ": the time that the provider itself reports, and the time behind the edge" : "";
  return `What each phase of a request adds to the difference in the time to the ${whole}. Network is one round trip, and server the rest${own}. `
    + "All is the sum of the phases up to the server.";
}

/**
 * @param {import("./phases_model.js").PhaseRow} row
 * @param {number} from
 * @param {number} until
 */
function drawingOf({ segments }, from, until) {
  const x = (/** @type {number} */ value) => percentOf((value - from) / (until - from));
  return svg("svg", { class: "parts", "aria-hidden": "true" },
    ...segments.map((segment) => svg("rect", { class: `part${segment.place}`, x: x(segment.from), y: 2, height: 14,
      width: percentOf((segment.until - segment.from) / (until - from)) }, svg("title", {}, PHASE_NAMES[segment.name] ?? segment.name))),
    svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: "100%" }));
}
