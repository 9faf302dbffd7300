/** The sections of a target that show its goodput: over time, and by the hour of the day. */

import { choice } from "../controls.js";
import { html, svg } from "../dom.js";
import { UNKNOWN, interval, moment, percent, worthInWords } from "../formats.js";
import { STEPS, stepScale } from "../scales.js";
import { moveCell, scrolling } from "../tables.js";
import { HOURS, goodputOf, hoursOf } from "./goodput_model.js";
import { USES, goodputText, useOf } from "./matrix_model.js";
import { acrossOf, factsMark, legendOf, moveFocus, panelOf, sameAsTable, timeAxis, timeLines, widthOf } from "./target_charts.js";
import { partsOf } from "./target_model.js";

/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("./goodput_model.js").Goodput} Goodput */
/** @typedef {import("./goodput_model.js").GoodputPanel} GoodputPanel */
/** @typedef {import("./goodput_model.js").HourCell} HourCell */

const TOP = 4, HEIGHT = 56, WIDTH = 1000, GOAL = 95;

/**
 * The choice of the limit.
 * @param {Context} context
 */
export function limitChoice({ state, set }) {
  return choice("Goodput", USES.map(([name, limit]) => [name, `${name}: ${limit}`]), useOf(state.options["use"]).name, (value) => set({ use: value }));
}

/** @param {Context} context */
function limitText({ state }) {
  return `The ${goodputText(state.options["use"])}`;
}

/**
 * The goodput over time per region, all with the same axes; nothing without requests.
 * @param {any} series
 * @param {string} target
 * @param {Context} context
 */
export function goodputSection(series, target, context) {
  const found = goodputOf(series, target);
  if (!found.panels.length) return [];
  const name = "Goodput over time, %";
  return [html("section", { class: "goodput low", "data-key": "goodput", onkeydown: moveFocus }, html("h2", {}, name),
    html("p", { class: "note" }, `${limitText(context)}.`),
    legendOf([["median", "goodput"], ["goal", `${GOAL} %`]]),
    ...found.panels.map((panel, place) => panelOfRegion(panel, found, context, place === 0)),
    timeAxis(found),
    sameAsTable("shares", name, ["begins (UTC)", "region", "goodput, %", "in time", "planned"], () => found.panels.flatMap(({ region, points }) =>
      points.toReversed().map((point) => ({ key: `${region} ${point.at}`, cells: [moment(new Date(point.at).toISOString(), 0), region,
        percent(point.good / point.planned), point.good, point.planned] }))), context))];
}

/**
 * @param {GoodputPanel} panel
 * @param {Goodput} found
 * @param {Context} context
 * @param {boolean} isFirst
 */
function panelOfRegion(panel, found, context, isFirst) {
  const { region, points, good, planned } = panel, { options } = context.state;
  const y = TOP + (HEIGHT - TOP) * (1 - (GOAL - found.bottom) / (100 - found.bottom));
  return panelOf({ region, note: `${percent(good / planned)} % of ${planned} requests`, label: `Goodput from ${region}, ${points.length} buckets`,
    top: "100", low: String(found.bottom), bottom: HEIGHT },
  timeLines(found, HEIGHT),
  found.bottom < GOAL ? svg("line", { class: "goal", x1: 0, x2: "100%", y1: y, y2: y }) : null,
  line(panel, found),
  ...points.map((point, place) => {
    const at = new Date(point.at).toISOString(), end = new Date(point.end).toISOString();
    return factsMark({ key: `${region} ${at}`, title: `${region}, ${moment(at, context.now)} UTC`,
      facts: [["goodput", `${percent(point.good / point.planned)} %`], ["in time", `${point.good} of ${point.planned} requests`]],
      isStop: isFirst && place === 0, isPressed: options["region"] === region && options["at"] === at && options["end"] === end, context,
      box: { x: acrossOf(found)(point.at), width: widthOf(point.at, point.at + panel.spacing, found), height: HEIGHT },
      open: () => context.set({ region, at, end, sample: "" }) });
  }));
}

/**
 * @param {GoodputPanel} panel
 * @param {Goodput} found
 */
function line({ points, spacing }, { from, until, bottom }) {
  const x = (/** @type {number} */ at) => (Math.max(0, Math.min(1, (at - from) / (until - from))) * WIDTH).toFixed(2);
  const y = (/** @type {number | null} */ share) => ((1 - ((share ?? 0) - bottom) / (100 - bottom)) * (HEIGHT - TOP)).toFixed(2);
  // A bucket is as wide as its time: its goodput is that of all its requests.
  return svg("svg", { class: "lines", y: TOP, width: "100%", height: HEIGHT - TOP, viewBox: `0 0 ${WIDTH} ${HEIGHT - TOP}`, preserveAspectRatio: "none" },
    ...partsOf(points, spacing).map((part) => svg("polyline", { class: "median",
      points: part.flatMap((point) => [`${x(point.at)},${y(point.median)}`, `${x(point.end)},${y(point.median)}`]).join(" ") })));
}

/**
 * The goodput by region and hour of the day, as a table with colours; nothing without requests.
 * @param {any} slo
 * @param {string} target
 * @param {Context} context
 */
export function hoursSection(slo, target, context) {
  const rows = hoursOf(slo, target);
  if (!rows.length) return [];
  const name = "Goodput by hour of the day (UTC), %", { from_at: from, until_at: until } = slo.window;
  const values = rows.flatMap((row) => row.cells.map((cell) => cell?.value ?? null));
  const step = stepScale(values, { moreIsBetter: true, isLinear: true });
  const first = rows[0]?.cells.findIndex((cell) => cell !== null);
  return [html("section", { class: "hours", "data-key": "hours" }, html("h2", {}, name),
    html("p", { class: "note" }, `${limitText(context)}, measured between ${moment(from, 0)} and ${moment(until, 0)}.`),
    keyOf(values),
    scrolling(name, html("table", { class: "matrix", onkeydown: moveCell }, html("caption", { class: "unseen" }, name),
      html("thead", {}, html("tr", {}, html("th", { scope: "col", class: "name" }, "region"),
        ...Array.from({ length: HOURS }, (_, hour) => html("th", { scope: "col" }, String(hour).padStart(2, "0"))))),
      html("tbody", {}, ...rows.map(({ region, cells }, line) => html("tr", { "data-key": region }, html("th", { scope: "row" }, region),
        ...cells.map((cell, hour) => cell ? hourCell(cell, region, hour, { step, context, isStop: line === 0 && hour === first })
          : html("td", { class: "none", title: "no requests" }, UNKNOWN)))))))) ];
}

/**
 * @param {HourCell} cell
 * @param {string} region
 * @param {number} hour
 * @param {{step: (value: number) => number, context: Context, isStop: boolean}} drawing
 */
function hourCell(cell, region, hour, { step, context, isStop }) {
  const title = `${region}, ${String(hour).padStart(2, "0")}:00 to ${String(hour).padStart(2, "0")}:59 UTC`;
  /** @type {[string, string][]} */
  const facts = [["goodput", `${percent(cell.value)} %`], ["95 % interval", `${interval(100 * cell.low, 100 * cell.high)} %`],
    ["planned requests", worthInWords(cell.n, cell.independent)]];
  // Rounded down, so that 100 means all.
  const shown = percent(cell.value).replace(/\..*/, "");
  return html("td", { class: `step${step(cell.value)}` }, html("button", { type: "button", tabindex: isStop ? 0 : -1, "data-key": `${region} ${hour}`,
    "aria-label": [title, ...facts.map(([name, text]) => `${name}: ${text}`)].join(", "), ...context.details(title, facts) }, shown));
}

/** @param {(number | null)[]} values */
function keyOf(values) {
  const known = values.filter((value) => value !== null), [best, worst] = [percent(Math.max(...known)), percent(Math.min(...known))];
  if (best === worst) return null;
  return html("ul", { class: "legend", "aria-label": "colours" }, html("li", { class: "scale" }, best,
    ...Array.from({ length: STEPS }, (_, place) => html("span", { class: `swatch step${place}` })), worst, " %"));
}
